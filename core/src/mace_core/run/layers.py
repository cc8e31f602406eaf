"""Finds the first wrong layer: compares inner tensors with the framework, and with the ops' references.

Rounding drifts: a chain of layers of 8-bit integers may end far from the framework's, though every layer is
right. So each layer is judged by what it makes of the other side's own operands; what it makes of its own
chain from the input on is shown beside that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Node
from mace_core.pipeline import load
from mace_core.quantization import compute
from mace_core.run.framework import Framework
from mace_core.run.reference import execute
from mace_core.run.results import LayerComparison
from mace_core.run.similarity import Similarity, numbers
from mace_core.run.validate import expectation, min_cosine
from mace_core.run.validation_job import ValidationJob
from mace_core.transforms import run_phases


def compare_layers(job: ValidationJob) -> list[LayerComparison]:
    """Compare every tensor that can be, in order: first as it was read, beside its framework.

    Then as it was computed.
    """
    model, built = job.model, job.built
    expected = expectation(job)
    sample = {n: a[0] for n, a in expected.samples.items()}
    normal = run_phases(load(model, job.registry), job.registry)
    computed = _Comparison("computed", normal, sample, built.layers(model.name, sample))
    read = _as_read(job, sample)
    rows = _select_tensors(model, [*(read.rows() if read else ()), *computed.rows()])
    minimum = min_cosine(model, any(t.quant for t in normal.tensors.values()))
    target = built.programs.name
    return [
        replace(row, model=model.name, target=target, passed=row.layer_alone.cosine >= minimum)
        for row in rows
    ]


def _select_tensors(model: Model, rows: list[LayerComparison]) -> list[LayerComparison]:
    """The rows of the tensors under `check_tensors`.

    All if it names none, MaceError for a name that no row has.
    """
    names = model.keys.get("check_tensors")
    if not isinstance(names, Sequence) or not names:
        return rows
    names_selected = {str(name).removesuffix(":0") for name in names}
    selected = [row for row in rows if row.tensor.removesuffix(":0") in names_selected]
    missing = names_selected - {row.tensor.removesuffix(":0") for row in selected}
    if missing:
        problem = (
            f"check_tensors: {', '.join(sorted(missing))}: no tensor of the built model or of its framework"
        )
        raise MaceError(
            f"model {model.name!r}",
            problem,
            "`mace validate --layers` without it lists those that can be compared",
        )
    return selected


def _as_read(job: ValidationJob, sample: Mapping[str, Array]) -> _Comparison | None:
    """Return the graph of the frontend and the framework's tensors; None if it offers no inner ones."""
    framework = Framework.of(job.model, job.registry, job.processes)
    graph = framework.graph
    try:
        run = framework.inner(list(chain.from_iterable(node.outputs for node in graph.nodes)))
        inputs = framework.convert_inputs(sample)
        tensors = run(inputs) if run else {}
    except MaceError:  # a framework that does not give its inner tensors
        return None
    return _Comparison("read", graph, inputs, tensors)


@dataclass(frozen=True)
class _Comparison:
    """A graph beside what the other side computed of it.

    inputs: of the graph.  other: arrays by the name of the tensor; those that do not fit their tensor are
    left out.
    """

    stage: str
    graph: Graph
    inputs: Mapping[str, Array]
    other: Mapping[str, Array]

    def rows(self) -> Iterator[LayerComparison]:
        """A row for each tensor that the other side has, without the verdict."""
        chain = execute(self.graph, self.inputs)
        theirs = {
            n: a
            for n, a in self.other.items()
            if n in chain and a.size == chain[n].size and a.dtype.kind in "fiu"
        }
        starts = {state.input: state.start for state in self.graph.states}
        values: dict[str, Array] = {**self.graph.weights, **starts, **self.inputs}
        for node in self.graph.nodes:
            outputs = dict(zip(node.outputs, self._compute(node, values), strict=False))
            values.update(outputs)
            for name in node.outputs:
                if name in theirs:
                    yield self._row(name, node, (chain[name], outputs[name], theirs[name]))
                    values[name] = self._as_operand(name, theirs[name], outputs[name])

    def _compute(self, node: Node, values: Mapping[str, Array]) -> Iterable[Array]:
        operands = [(self.graph.tensors[i], values[i]) if i else None for i in node.inputs]
        return compute(node.op, node.attrs, operands, self.graph.outputs_of(node))

    def _as_operand(self, name: str, theirs: Array, ours: Array) -> Array:
        """Return the other side's result as an operand of the next layer; ours if its type does not fit.

        A device may store floats in half precision, from which its next layer computes.
        """
        are_floats = theirs.dtype.kind == ours.dtype.kind == "f"
        fits = are_floats or theirs.dtype == ours.dtype
        return theirs.reshape(ours.shape).astype(ours.dtype) if fits else ours

    def _row(self, name: str, node: Node, values: tuple[Array, Array, Array]) -> LayerComparison:
        tensor = self.graph.tensors[name]
        chain, fed, theirs = (numbers(a.reshape(tensor.shape), tensor) for a in values)
        # The library is what is judged in the second stage, and the framework what is judged by in the first.
        pairs = ((chain, theirs), (fed, theirs)) if self.stage == "read" else ((theirs, chain), (theirs, fed))
        similarity, similarity_alone = (Similarity.of(*pair) for pair in pairs)
        return LayerComparison("", "", self.stage, name, node.op.name, similarity, similarity_alone)
