"""Builds models in a separate process; see `whole_path`.

Each line that it prints is a JSON list: index of the model, kind, text. The kinds are "valid" for a model
that reaches C, "refused" with the stage, and "fault" with what is wrong; then, for a model that is compiled,
"ran" or "wrong"; and "project" with the result of a target that makes projects.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

from mace_core import pipeline
from mace_core.api import Content, Stream
from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Deployment, Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.generation import encode
from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.job import Job
from mace_core.levels import Level
from mace_core.plan import Plan
from mace_core.registry import Choice, Registry
from mace_core.run.reference import execute
from mace_core.states import RESET
from mace_core.testing.malformed import MEMORY
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized, SanitizerFinding
from mace_core.testing.whole_path import WholePathOptions
from mace_core.transforms import run_phases

T = TypeVar("T")

SECONDS = 20
"""Limit of processor time for one stage of one model."""

LARGEST = 1 << 19
"""Maximum number of elements of all tensors of a model that is compiled, so that numpy takes no minutes."""

LONGEST = 300
"""Maximum number of calls of a program that is compiled."""

TOLERANCE = 2e-3
"""Relative to the largest expected value; wide, because the numbers of a changed model may cancel."""

ROUNDED_OTHERWISE = 0.02
"""The share of integers that may be one step off, because they are rounded from floats."""


@dataclass
class PendingModel:
    """A model that is to be compiled.  graph: as it was read.  normal: after the transforms."""

    number: int
    graph: Graph
    normal: Graph
    plan: Plan


@dataclass
class Worker:
    """Builds models as far as the plan says."""

    frontend: str
    folder: Path
    plan: WholePathOptions
    registry: Registry = field(default_factory=Registry.load)
    waiting: list[PendingModel] = field(default_factory=list)
    batches: int = 0
    compiled: int = 0

    def __post_init__(self) -> None:
        self.choice = self.registry.select("host")[0]
        self.projects: dict[str, Choice] = {
            name: self.registry.select(name)[0] for name in self.plan.projects
        }

    def take(self, number: int, paths: tuple[Path, ...]) -> None:
        """Build one model up to C, and put it on the list of those that are compiled."""
        stage = "load"
        try:
            model = Model("fuzz", paths, self.frontend, keys={"states": RESET})
            graph = _run_limited(lambda: pipeline.load(model, self.registry))
            stage = "transform"
            normal = _run_limited(lambda: run_phases(graph, self.registry))
            stage = "lower"
            plan = _run_limited(
                lambda: compile_graph(model, normal, Compilation(self.choice, self.registry)).plan
            )
            stage = "emit"
            _run_limited(lambda: _read_all(code.library("fuzz", [plan], self._isas()).files.values()))
        except MaceError as error:
            if str(error).strip():
                report_result(number, "refused", stage)
            else:
                report_result(number, "fault", f"{stage}: an error without a message")
            return
        except MemoryError:
            report_result(number, "fault", f"{stage}: it takes more than {MEMORY >> 20} MB")
            return
        except Exception:  # noqa: BLE001  # which one is the finding
            report_result(number, "fault", f"{stage}: {traceback.format_exc()[-2500:]}")
            return
        self._offer(number, model, normal)
        report_result(number, "valid", "")
        if self.compiled + len(self.waiting) < self.plan.compiled and _is_small(graph, normal, plan):
            self.waiting.append(PendingModel(number, graph, normal, plan))
            if len(self.waiting) >= self.plan.together:
                self.compile_waiting()

    def _isas(self) -> list[Level]:
        targets = library_levels(self.registry.targets_for(self.choice, ()), self.choice.abi)
        return list(chain.from_iterable(targets.values()))

    def _offer(self, number: int, model: Model, normal: Graph) -> None:
        """Compile the model for every target that makes projects."""
        for name, choice in self.projects.items():
            compile_model = partial(compile_graph, model, normal, Compilation(choice, self.registry))
            try:
                compiled = _run_limited(compile_model)
                job = Job(Deployment("fuzz", (model,)), choice)
                _read_all(encode(job, [compiled], self.registry).files.values())
                report_result(number, "project", f"made by {name}")
            except MaceError:
                report_result(number, "project", f"refused by {name}")
            except Exception:  # noqa: BLE001
                report_result(number, "wrong", f"project of {name}: {traceback.format_exc()[-2500:]}")

    def compile_waiting(self) -> None:
        """Compile and run the models on the list."""
        waiting, self.waiting = self.waiting, []
        limits = resource.getrlimit(resource.RLIMIT_AS)
        # The sanitizers' shadow is larger than any memory.
        resource.setrlimit(resource.RLIMIT_AS, (limits[1], limits[1]))
        try:
            if waiting:
                self._compile(waiting)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    def _compile(self, candidates: list[PendingModel]) -> None:
        """Compile models as one library and run each; if that fails, compile halves of them.

        So one model that does not compile costs few compilations, and is named.
        """
        isas = levels_here(self._isas())
        isa = isas[self.batches % len(isas)]
        folder = self.folder / f"library{self.batches}"
        self.batches += 1
        report_result(-1, "progress", f"compiling {len(candidates)} models for {isa.name}")
        try:
            library = Sanitized({f"m{c.number}": c.plan for c in candidates}, [isa], folder)
        except Exception as error:  # noqa: BLE001
            if len(candidates) == 1:
                self.compiled += 1
                report_result(candidates[0].number, "wrong", f"compile: {str(error)[:3000]}")
                return
            half = len(candidates) // 2
            self._compile(candidates[:half])
            self._compile(candidates[half:])
            return
        for candidate in candidates:
            self.compiled += 1
            try:
                _run(candidate, library)
                report_result(candidate.number, "ran", isa.name)
            except Exception as error:  # noqa: BLE001
                text = str(error) if isinstance(error, SanitizerFinding) else traceback.format_exc()
                report_result(candidate.number, "wrong", f"{isa.name}: {text[:3000]}")


def _run(candidate: PendingModel, library: Sanitized) -> None:
    """Run a model on random inputs and compare the outputs with the references of the graph that was read.

    Raises Finding if they differ.
    """
    graph = candidate.graph
    rng = np.random.default_rng(candidate.number)
    inputs = {name: random_input(rng, graph.tensors[name]) for name in graph.inputs}
    outputs = library.run(f"m{candidate.number}", inputs)
    as_read, as_lowered = (execute(g, inputs) for g in (graph, candidate.normal))
    # Floats that are integers times a scale may be off by as many steps as these.
    widened = {node.outputs[0]: graph.tensors[node.inputs[0]] for node in graph.nodes if _widens(node, graph)}
    for name in graph.outputs:
        tensor = widened.get(name, graph.tensors[name])
        arrays = [outputs[name], as_lowered[name], as_read[name]]
        if name in widened:
            arrays = [_count_steps(array, tensor) for array in arrays]
        computed, lowered, read = arrays
        # Compared in two steps, so that the finding says whether a transform or a kernel is wrong.
        stages = {
            "transforms": difference(lowered, read, tensor),
            "kernels": difference(computed, lowered, tensor),
        }
        for stage, problem in stages.items():
            if problem:
                nodes = "; ".join(map(str, graph.nodes))
                raise SanitizerFinding(f"output {name!r}: {stage}: {problem}: {nodes[:1200]}")


def _widens(node: Node, graph: Graph) -> bool:
    """Tell whether a node turns integers of one scale into floats."""
    quant = graph.tensors[node.inputs[0]].quant if node.op.name == "Dequantize" else None
    return quant is not None and len(quant.scale) == 1


def _count_steps(array: Array, tensor: Tensor) -> Array:
    """Return the integers of a quantized tensor from which floats were computed."""
    assert tensor.quant is not None
    return np.rint(array.astype(np.float64) / tensor.quant.scale[0]).astype(np.int64)


def random_input(rng: np.random.Generator, tensor: Tensor) -> Array:
    """Return a random input: normal floats, small integers, booleans, or all quantized integers."""
    if tensor.quant:
        limits = np.iinfo(tensor.dtype.numpy)
        return rng.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(tensor.dtype.numpy)
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.shape).astype(tensor.dtype.numpy)
    return rng.integers(0, 2 if tensor.dtype.value == "bool" else 5, tensor.shape).astype(tensor.dtype.numpy)


def difference(actual: Array, expected: Array, tensor: Tensor) -> str | None:
    """Return how two arrays differ by more than rounding; None if they do not."""
    if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        return f"{actual.dtype} {actual.shape} instead of {expected.dtype} {expected.shape}"
    if actual.dtype.kind == "f":
        finite = np.isfinite(expected)
        if not np.array_equal(np.where(finite, 0, expected), np.where(finite, 0, actual), equal_nan=True):
            return _worst(
                actual, expected, ~finite & ~((actual == expected) | (np.isnan(actual) & np.isnan(expected)))
            )
        scale = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
        off = finite & ~(np.abs(np.subtract(actual, expected, dtype=np.float64)) <= TOLERANCE * scale)
        return _worst(actual, expected, off) if off.any() else None
    steps = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    far = steps > (2 if tensor.quant else 0)
    return _worst(actual, expected, far) if far.sum() > ROUNDED_OTHERWISE * far.size else None


def _worst(actual: Array, expected: Array, off: Array) -> str:
    positions = np.argwhere(off)[:4].tolist()
    pairs = ", ".join(f"{actual[tuple(p)]} instead of {expected[tuple(p)]} at {p}" for p in positions)
    return f"{int(off.sum())} of {off.size} differ: {pairs}"


def _is_small(graph: Graph, normal: Graph, plan: Plan) -> bool:
    tensors = chain(graph.tensors.values(), normal.tensors.values())
    elements = sum(tensor.elements for tensor in tensors)
    return (
        elements < LARGEST
        and len(plan.program.calls) < LONGEST
        and len(graph.inputs) < 64
        and len(graph.outputs) < 64
    )


def _read_all(contents: Iterable[Content]) -> None:
    """Make the content of every file: a stream is made only when it is read, and may fail then."""
    for content in contents:
        if isinstance(content, Stream):
            for _ in content.make():
                pass


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this much processor time."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds:.0f} s")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _run_limited(function: Callable[[], T]) -> T:
    with _limit_time(SECONDS):
        return function()


def report_result(number: int, kind: str, text: str) -> None:
    """Print one line of the report."""
    sys.stdout.write(json.dumps([number, kind, text]) + "\n")
    sys.stdout.flush()


def main(frontend: str, folder: str, first: str, plan: str) -> None:
    """Build the models from index `first` on."""
    stated: Mapping[str, object] = json.loads(plan)
    projects = stated["projects"]
    assert isinstance(projects, list)
    models = [tuple(map(Path, named)) for named in json.loads(Path(folder, "files.json").read_text())]
    # A process that is started again must not find the files of the one before it.
    library_folder = Path(folder, f"from{first}-{time.monotonic_ns()}")
    worker = Worker(
        frontend,
        library_folder,
        WholePathOptions(int(str(stated["compiled"])), int(str(stated["together"])), tuple(projects)),
    )
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        status = Path("/proc/self/statm")
        if status.exists():  # Linux; elsewhere memory is not limited
            used = int(status.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(
                resource.RLIMIT_AS, (used + 2 * MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1])
            )
        for number in range(int(first), len(models)):
            worker.take(number, models[number])
        worker.compile_waiting()


if __name__ == "__main__":
    main(*sys.argv[1:])
