"""Graphs through the generated C of targets, beside their numpy reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from mace_core.api import BuildConfig, Compiler, GeneratedFiles, Region, Target
from mace_core.candidates import Selection
from mace_core.compilation import Compilation, CompiledModel, compile_graph, compile_region
from mace_core.deployment import Deployment, Model
from mace_core.generation import Job, encode
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Tensor
from mace_core.levels import Level
from mace_core.plan import Plan, make_plan
from mace_core.registry import Choice, Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.tuning import TUNING
from mace_core.verify import verify

CASES = "cases"
"""The name of the library of tests."""


@cache
def host() -> Compiler:
    """The compiler that the installed toolchains have for this machine."""
    return _installed().select("host")[0].compiler


@cache
def _installed() -> Registry:
    """Return the installed plugins; to load them takes a quarter of a second."""
    return Registry.load()


def case(
    name: str,
    op: str,
    inputs: Sequence[Array | None],
    attrs: Mapping[str, object] | None = None,
    **how: object,
) -> Graph:
    """A graph of one node.

    inputs: arrays; their values matter only for those named in `constants`, the others become inputs of the
    graph.
    constants: numbers of the inputs that are constants.  outputs: how many outputs the node has.
    """
    constants = how.get("constants", ())
    count = how.get("outputs", 1)
    assert isinstance(constants, tuple)
    assert isinstance(count, int)
    new = Builder(name)
    names = []
    for i, array in enumerate(inputs):
        if array is None:
            names.append("")
        elif i in constants:
            names.append(new.weight(f"w{i}", array))
        else:
            names.append(new.input(f"x{i}", DType.of(array), array.shape))
    outputs = new.add(op, names, attrs or {}, outputs=[f"y{i}" for i in range(count)])
    return new.finish(outputs)


def plan_graph(target: Target, graph: Graph, abi: str = "host") -> Plan:
    """Return the plan of a graph that one target computes whole.

    A node that it refuses fails the assertion with its reason.
    """
    verify(graph)
    for node in graph.nodes:
        refusal = target.refuses(node, graph)
        assert refusal is None, f"{graph.name}: {refusal}"
    return make_plan(
        graph, [compile_region(Region(target, graph), BuildConfig(abi, abi, Model(graph.name, ())))]
    )


def generate_library(targets: Sequence[Target], graphs: Sequence[Graph], abi: str = "host") -> GeneratedFiles:
    """Return the sources of the library `cases` with each graph as a model, divided among the targets by preference.

    abi: what targets compile for; the library itself is for this machine.
    """
    return _encode(targets, _compile(targets, graphs, abi), abi)


def _compile(
    targets: Sequence[Target], graphs: Sequence[Graph], abi: str, tuning: str = ""
) -> list[CompiledModel]:
    work = Compilation(*_choose(targets, abi))
    models = [Model(graph.name, (), keys={TUNING: tuning} if tuning else {}) for graph in graphs]
    return [compile_graph(model, verify(graph), work) for model, graph in zip(models, graphs, strict=True)]


def _encode(targets: Sequence[Target], compiled: Sequence[CompiledModel], abi: str) -> GeneratedFiles:
    choice, registry = _choose(targets, abi)
    return encode(
        Job(Deployment(CASES, tuple(model.model for model in compiled)), choice), compiled, registry
    )


def _choose(targets: Sequence[Target], abi: str) -> tuple[Choice, Registry]:
    """Return a choice of these targets alone, with the compiler of this machine."""
    installed = _installed()
    choice = replace(installed.select("host")[0], text=abi, abi=abi, targets=tuple(targets))
    return choice, replace(installed, targets={target.name: target for target in targets})


def load_library(sources: GeneratedFiles, folder: Path) -> dict[str, native.Model]:
    """Compile what `generate_library` gave, drivers among it, and load it: each model in a session."""
    return native.load(shared_library(sources, host(), folder, ("-O1",)), CASES)


def compile_graphs(
    target: Target, graphs: Iterable[Graph], folder: Path, abi: str = "host"
) -> dict[str, native.Model]:
    """Every graph as a model of one library, loaded; a node that the target refuses fails with its reason."""
    return load_library(generate_library([target], list(graphs), abi), folder)


def with_levels(target: Target, levels: Sequence[Level]) -> Target:
    """Return the target with other levels, such as those of its own that the compiler of this machine knows."""
    derived = type(type(target).__name__, (type(target),), {"levels": lambda _self, _abi: tuple(levels)})
    leveled = copy(target)
    leveled.__class__ = derived
    return leveled


def merge(name: str, graphs: Iterable[Graph]) -> Graph:
    """One graph that computes what all of these do, each tensor as `GRAPH/TENSOR`: compiled once, for little more than one of them."""
    merged = Graph(name, (), {}, {}, (), ())
    tensors: dict[str, Tensor] = {}
    weights: dict[str, Array] = {}
    nodes: list[Node] = []
    ends: tuple[list[str], list[str]] = ([], [])
    for graph in graphs:
        names = {t: f"{graph.name}/{t}" for t in graph.tensors}
        tensors |= {names[t]: replace(tensor, name=names[t]) for t, tensor in graph.tensors.items()}
        weights |= {names[t]: array for t, array in graph.weights.items()}
        for node in graph.nodes:
            inputs, outputs = (tuple(t and names[t] for t in side) for side in (node.inputs, node.outputs))
            nodes.append(replace(node, name=f"{graph.name}/{node.name}", inputs=inputs, outputs=outputs))
        ends[0].extend(names[t] for t in graph.inputs)
        ends[1].extend(names[t] for t in graph.outputs)
    return replace(
        merged,
        nodes=tuple(nodes),
        tensors=tensors,
        weights=weights,
        inputs=tuple(ends[0]),
        outputs=tuple(ends[1]),
    )


def split_by_graph(arrays: Mapping[str, Array], graph: Graph) -> dict[str, Array]:
    """Those arrays of a merged graph that belong to one of its graphs, by the names that it has for them."""
    prefix = f"{graph.name}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def run_merged(
    target: Target,
    graphs: Sequence[Graph],
    folder: Path,
    inputs: Mapping[str, Mapping[str, Array]],
    levels: Sequence[Level] | None = None,
) -> dict[str, dict[str, Array]]:
    """Return what the generated C computes of each graph, by graph and output; inputs by graph and name.

    levels: all if None.

    The graphs are compiled as one model: each model of a library costs a start of the compiler for its calls
    and one for its weights, which takes far longer than what it compiles.
    """
    target = with_levels(target, levels) if levels else target
    model = compile_graphs(target, [merge("merged", graphs)], folder)["merged"]
    found = model.run(
        {f"{graph.name}/{name}": array for graph in graphs for name, array in inputs[graph.name].items()}
    )
    return {graph.name: split_by_graph(found, graph) for graph in graphs}


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Normal floats, small integers, fair coins; the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {name: _random(rng, graph.tensors[name].dtype, graph.tensors[name].shape) for name in graph.inputs}


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 8, shape).astype(dtype.numpy)


def assert_close(found: Array, expected: Array, name: str, tolerance: float = 1e-5) -> None:
    """Equal, for floats within `tolerance` of the larger of 1 and the expected value.

    Infinities and NaN in the same places.
    """
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}"
    assert found.dtype == expected.dtype, f"{name}: {found.dtype}, expected {expected.dtype}"
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=name)


def check_graphs(
    target: Target,
    graphs: Sequence[Graph],
    folder: Path,
    inputs: Mapping[str, Mapping[str, Array]] | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Assert that the generated C computes what the numpy references compute.

    Inputs by graph and name, else random.
    """
    given = {graph.name: (inputs or {}).get(graph.name) or random_inputs(graph) for graph in graphs}
    found = run_merged(target, graphs, folder, given)
    for graph in graphs:
        expected = execute(graph, given[graph.name])
        for name in graph.outputs:
            assert_close(found[graph.name][name], expected[name], f"{graph.name}/{name}", tolerance)


def check_merged(
    target: Target, graphs: Sequence[Graph], folder: Path, tolerance: float, abi: str = "host"
) -> None:
    """Assert that one library of all these graphs computes what the numpy references do, and name every graph that differs.

    Where a target knows several ways to compute a node, each of them is chosen once. Quantized results may be
    one step off: kernels round once from floats, the reference from doubles.
    """
    whole = merge("all", graphs)
    compiled = _compile([target], [whole], abi)
    _check_sources(_encode([target], compiled, abi), graphs, folder, tolerance)
    for name, entries in _each_candidate(compiled[0].plan.program.selections).items():
        tuning = folder / f"{name}.json"
        tuning.write_text(json.dumps({"choices": entries}))
        forced = _compile([target], [whole], abi, str(tuning))
        _check_sources(_encode([target], forced, abi), graphs, folder / name, tolerance)


def _each_candidate(selections: Sequence[Selection]) -> dict[str, list[dict[str, str]]]:
    """For each candidate that was not chosen somewhere, the entries of a tuning file that choose it wherever it serves."""
    entries: dict[str, list[dict[str, str]]] = {}
    for selection in selections:
        for choice in selection.choices:
            for name in choice.costs.keys() - {choice.candidate}:
                entry = {"node": selection.key.node, "level": choice.level, "candidate": name}
                known = entries.setdefault(name, [])
                # A node that is computed through floats has a selection for each of its steps.
                if entry not in known:
                    known.append(entry)
    return entries


def _check_sources(sources: GeneratedFiles, graphs: Sequence[Graph], folder: Path, tolerance: float) -> None:
    """Assert that the library of these graphs, merged into one, computes what each of them does."""
    whole = merge("all", graphs)
    model = load_library(sources, folder)["all"]
    given = {**random_inputs(whole), **_whole_range(whole)}
    found, wrong = model.run(given), []
    for graph in graphs:
        results, expected = split_by_graph(found, graph), execute(graph, split_by_graph(given, graph))
        for name in graph.outputs:
            if not _agrees(results[name], expected[name], graph.tensors[name], tolerance):
                wrong.append(f"{graph.name}/{name} ({', '.join(map(str, graph.nodes[:3]))})")
    assert not wrong, f"{len(wrong)} of {len(graphs)} graphs differ from their references:\n" + "\n".join(
        wrong
    )


def _whole_range(graph: Graph) -> dict[str, Array]:
    """For each quantized input, all that it can store."""
    rng = np.random.default_rng(1)
    stored = [graph.tensors[name] for name in graph.inputs if graph.tensors[name].quant]
    limits = [np.iinfo(t.dtype.numpy) for t in stored]
    return {
        t.name: rng.integers(i.min, i.max, t.shape, t.dtype.numpy, endpoint=True)
        for t, i in zip(stored, limits, strict=True)
    }


def _agrees(found: Array, expected: Array, tensor: Tensor, tolerance: float) -> bool:
    if tensor.quant:
        return bool((np.abs(found.astype(np.int64) - expected.astype(np.int64)) <= 1).all())
    if tensor.dtype.is_float:
        return np.allclose(found, expected, tolerance, tolerance, equal_nan=True)
    return np.array_equal(found, expected)
