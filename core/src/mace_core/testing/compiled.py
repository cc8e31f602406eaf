"""Compiles graphs with the generated C of targets and compares the results with the numpy references."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from mace_core.api import BuildConfig, Compiler, Content, GeneratedFiles, Region, Target
from mace_core.compilation import Compilation, CompiledModel, compile_graph, compile_region
from mace_core.deployment import Deployment, Model
from mace_core.generation import encode
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Tensor
from mace_core.job import Job
from mace_core.levels import Level, with_levels
from mace_core.manifest import Unit
from mace_core.numerics import Numerics
from mace_core.plan import Plan, make_plan
from mace_core.registry import Choice, Registry
from mace_core.run import native
from mace_core.run.compile import WARNINGS, device_libraries, shared_library
from mace_core.run.reference import execute
from mace_core.selection import Selection
from mace_core.testing.headers import precompiled_headers
from mace_core.tuning import TUNING
from mace_core.verify import verify

CASES = "cases"
"""Name of the library that tests compile."""

OPTIMIZATION = "MACE_TEST_OPTIMIZATION"
"""Environment variable: the flag with which tests compile the kernels that they run; default -O0."""


@cache
def host() -> Compiler:
    """Return the compiler for this machine of the installed toolchains."""
    return load_registry().select("host")[0].compiler


@cache
def load_registry() -> Registry:
    """Return the installed plugins, loaded once because that takes a quarter of a second."""
    return Registry.load()


class CaseOptions(TypedDict, total=False):
    """Options of `case`.

    constants: indices of the inputs that are constants.  outputs: number of outputs of the node (1).
    """

    constants: tuple[int, ...]
    outputs: int


def case(
    name: str,
    op: str,
    inputs: Sequence[Array | None],
    attrs: Mapping[str, object] | None = None,
    **options: Unpack[CaseOptions],
) -> Graph:
    """Return a graph of one node.

    inputs: an array for each, None for one that is absent. Only type and shape are read of those that are no
    constants.
    """
    constants = options.get("constants", ())
    builder = Builder(name)
    names = []
    for i, array in enumerate(inputs):
        if array is None:
            names.append("")
        elif i in constants:
            names.append(builder.weight(f"w{i}", array))
        else:
            names.append(builder.input(f"x{i}", DType.of(array), array.shape))
    outputs = builder.add(op, names, attrs or {}, outputs=[f"y{i}" for i in range(options.get("outputs", 1))])
    return builder.finish(outputs)


def plan_graph(target: Target, graph: Graph, abi: str = "host") -> Plan:
    """Return the plan of a graph that one target computes completely.

    A node that it refuses fails the assertion with the reason.
    """
    verify(graph)
    for node in graph.nodes:
        refusal = target.refuses(node, graph)
        assert refusal is None, f"{graph.name}: {refusal}"
    return make_plan(
        graph, [compile_region(Region(target, graph), BuildConfig(abi, abi, Model(graph.name, ())))]
    )


def generate_library(targets: Sequence[Target], graphs: Sequence[Graph], abi: str = "host") -> GeneratedFiles:
    """Return the sources of the library `cases`, in which each graph is a model.

    targets: those that share the nodes, the preferred one first.
    abi: the ABI that targets compile for; the library itself is compiled for this machine.
    """
    return _encode(targets, _compile(targets, graphs, abi), abi)


def _compile(
    targets: Sequence[Target], graphs: Sequence[Graph], abi: str, tuning: str = ""
) -> list[CompiledModel]:
    compilation = Compilation(*_choose(targets, abi))
    models = [Model(graph.name, (), keys={TUNING: tuning} if tuning else {}) for graph in graphs]
    return [
        compile_graph(model, verify(graph), compilation) for model, graph in zip(models, graphs, strict=True)
    ]


def _encode(targets: Sequence[Target], compiled: Sequence[CompiledModel], abi: str) -> GeneratedFiles:
    choice, registry = _choose(targets, abi)
    return encode(
        Job(Deployment(CASES, tuple(model.model for model in compiled)), choice), compiled, registry
    )


def _choose(targets: Sequence[Target], abi: str) -> tuple[Choice, Registry]:
    """Return a choice of only these targets, with the compiler of this machine."""
    installed = load_registry()
    choice = replace(installed.select("host")[0], text=abi, abi=abi, targets=tuple(targets))
    return choice, replace(installed, targets={target.name: target for target in targets})


def load_library(
    sources: GeneratedFiles,
    folder: Path,
    flags: tuple[str, ...] = (),
    config: native.Config | None = None,
) -> dict[str, native.LoadedModel]:
    """Compile the result of `generate_library` and load it, with a session for each model.

    What its parts call on processors of other ABIs is compiled into the same folder.
    flags: further ones of the compiler.  config: of the sessions.
    """
    build_device_libraries(sources, folder)
    return native.load(shared_library(with_quick_flags(sources), host(), folder, flags), CASES, config)


def build_device_libraries(sources: GeneratedFiles, folder: Path) -> list[Path]:
    """Compile the libraries for processors of other ABIs, each with the toolchain of its ABI."""
    registry = load_registry()
    # A compiler that the tests of kernels do not use warns of more, such as of a value compared with itself.
    return device_libraries(
        sources,
        lambda abi: registry.find_toolchain(abi).compiler(abi),
        folder,
        ("-O1", "-s", "-Wno-error"),
    )


def with_quick_flags(sources: GeneratedFiles, compiler: Compiler | None = None) -> GeneratedFiles:
    """Return sources that a compiler compiles in the shortest time; `host()` if none is given.

    Only the kernels of each target's best level may be optimized; see `_choose_flags`.
    """
    chosen = compiler or host()
    manifests = (replace(m, units=_choose_flags(m.units, sources.files, chosen)) for m in sources.manifests)
    return replace(sources, manifests=tuple(manifests))


def _choose_flags(
    units: Sequence[Unit], files: Mapping[str, Content], compiler: Compiler
) -> tuple[Unit, ...]:
    """Return the units with -O0, but the kernels of each target's best level as OPTIMIZATION says.

    Compilers take most of the time of all tests, and more than twice as long for -O1 as for -O0. Without
    optimization every kernel is still compiled for every level; a test of another level's numbers makes that
    level the only one (`with_levels`). Kernels include slow headers in their precompiled form.
    """
    optimized = os.environ.get(OPTIMIZATION, "-O0")
    compiled: set[str] = set()
    chosen: list[Unit] = []
    for unit in units:
        table, kernels, _ = unit.source.rpartition("_kernels_")
        is_best = bool(kernels) and table not in compiled
        compiled.add(table)
        flags = (*unit.flags, optimized if is_best else "-O0")
        text = files.get(unit.source)
        if kernels and isinstance(text, str):
            command = (*compiler.cc, *compiler.flags, *WARNINGS, *flags, "-fPIC")
            flags += precompiled_headers(text, command)
        chosen.append(replace(unit, flags=flags))
    return tuple(chosen)


def compile_graphs(
    target: Target, graphs: Iterable[Graph], folder: Path, abi: str = "host"
) -> dict[str, native.LoadedModel]:
    """Compile and load a library of these graphs; a node that the target refuses fails the test."""
    return load_library(generate_library([target], list(graphs), abi), folder)


def merge(name: str, graphs: Iterable[Graph]) -> Graph:
    """Return one graph that computes what all of these do, with each tensor renamed to `GRAPH/TENSOR`.

    One model takes little longer to compile than one of the graphs, many models much longer.
    """
    graphs = tuple(graphs)
    rules = {graph.numerics for graph in graphs} or {Numerics.SINGLE_ROUNDING}
    assert len(rules) == 1, "a graph rounds by one rule"
    merged = Graph(name, (), {}, {}, (), (), numerics=rules.pop())
    tensors: dict[str, Tensor] = {}
    weights: dict[str, Array] = {}
    nodes: list[Node] = []
    merged_inputs: list[str] = []
    merged_outputs: list[str] = []
    for graph in graphs:
        names = {t: f"{graph.name}/{t}" for t in graph.tensors}
        tensors |= {names[t]: replace(tensor, name=names[t]) for t, tensor in graph.tensors.items()}
        weights |= {names[t]: array for t, array in graph.weights.items()}
        for node in graph.nodes:
            inputs, outputs = (tuple(t and names[t] for t in side) for side in (node.inputs, node.outputs))
            nodes.append(replace(node, name=f"{graph.name}/{node.name}", inputs=inputs, outputs=outputs))
        merged_inputs.extend(names[t] for t in graph.inputs)
        merged_outputs.extend(names[t] for t in graph.outputs)
    return replace(
        merged,
        nodes=tuple(nodes),
        tensors=tensors,
        weights=weights,
        inputs=tuple(merged_inputs),
        outputs=tuple(merged_outputs),
    )


def split_by_graph(arrays: Mapping[str, Array], graph: Graph) -> dict[str, Array]:
    """Return those arrays of a merged graph that belong to one graph, under their names in that graph."""
    prefix = f"{graph.name}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def run_merged(
    target: Target,
    graphs: Sequence[Graph],
    folder: Path,
    inputs: Mapping[str, Mapping[str, Array]],
    levels: Sequence[Level] | None = None,
) -> dict[str, dict[str, Array]]:
    """Run the generated C of all graphs and return the outputs by graph and name.

    inputs: arrays by graph and name.  levels: the levels to compile; None for all of the target.
    """
    # One merged model, because each model of a library starts the compiler twice, for its calls and for its
    # weights, and that takes far longer than what it compiles.
    target = with_levels(target, levels) if levels else target
    model = compile_graphs(target, [merge("merged", graphs)], folder)["merged"]
    arrays: dict[str, Array] = {}
    for graph in graphs:
        arrays |= {f"{graph.name}/{name}": array for name, array in inputs[graph.name].items()}
    results = model.run(arrays)
    return {graph.name: split_by_graph(results, graph) for graph in graphs}


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return random inputs: floats of a normal distribution, small integers, fair booleans."""
    rng = np.random.default_rng(seed)
    return {name: _random(rng, graph.tensors[name].dtype, graph.tensors[name].shape) for name in graph.inputs}


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 8, shape).astype(dtype.numpy)


def assert_close(actual: Array, expected: Array, name: str, tolerance: float = 1e-5) -> None:
    """Assert that two arrays are equal, floats within `tolerance` of the larger of 1 and the expected value.

    Infinities and NaN must be in the same places.
    """
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, expected {expected.dtype}"
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=name)


def check_graphs(
    target: Target,
    graphs: Sequence[Graph],
    folder: Path,
    inputs: Mapping[str, Mapping[str, Array]] | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Assert that the generated C computes what the numpy references compute.

    inputs: arrays by graph and name; random ones for a graph without.
    """
    arrays = {graph.name: (inputs or {}).get(graph.name) or random_inputs(graph) for graph in graphs}
    results = run_merged(target, graphs, folder, arrays)
    for graph in graphs:
        expected = execute(graph, arrays[graph.name])
        for name in graph.outputs:
            assert_close(results[graph.name][name], expected[name], f"{graph.name}/{name}", tolerance)


def check_merged(
    target: Target, graphs: Sequence[Graph], folder: Path, tolerance: float, abi: str = "host"
) -> None:
    """Assert that one library of all these graphs computes what the numpy references do.

    The assertion names every graph that differs. Where a target knows several candidates for a node, each of
    them is chosen once. Quantized results may be one step off: kernels round from floats, the reference from
    doubles.
    """
    merged = merge("all", graphs)
    compiled = _compile([target], [merged], abi)
    _check_sources(_encode([target], compiled, abi), graphs, folder, tolerance)
    for name, entries in _each_candidate(compiled[0].plan.program.selections).items():
        tuning = folder / f"{name}.json"
        tuning.write_text(json.dumps({"choices": entries}))
        forced = _compile([target], [merged], abi, str(tuning))
        _check_sources(_encode([target], forced, abi), graphs, folder / name, tolerance)


def _each_candidate(selections: Sequence[Selection]) -> dict[str, list[dict[str, str]]]:
    """Return by candidate the entries of a tuning file that choose it wherever it was not chosen."""
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
    """Assert that the library of the merged graphs computes what each of them does."""
    merged = merge("all", graphs)
    model = load_library(sources, folder)["all"]
    inputs = {**random_inputs(merged), **_quantized_inputs(merged)}
    outputs, wrong = model.run(inputs), []
    for graph in graphs:
        results, expected = split_by_graph(outputs, graph), execute(graph, split_by_graph(inputs, graph))
        for name in graph.outputs:
            if not is_close(results[name], expected[name], graph.tensors[name], tolerance):
                wrong.append(f"{graph.name}/{name} ({', '.join(map(str, graph.nodes[:3]))})")
    assert not wrong, f"{len(wrong)} of {len(graphs)} graphs differ from their references:\n" + "\n".join(
        wrong
    )


def _quantized_inputs(graph: Graph) -> dict[str, Array]:
    """Return integers of the whole range of its type for each quantized input."""
    rng = np.random.default_rng(1)
    arrays: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.quant:
            limits = np.iinfo(tensor.dtype.numpy)
            arrays[name] = rng.integers(
                limits.min, limits.max, tensor.shape, tensor.dtype.numpy, endpoint=True
            )
    return arrays


def is_close(actual: Array, expected: Array, tensor: Tensor, tolerance: float) -> bool:
    """Tell whether an array is what the reference computes for a tensor.

    Quantized results may be one step off: kernels round exact sums once, the reference rounds real numbers.
    """
    if tensor.quant:
        return bool((np.abs(actual.astype(np.int64) - expected.astype(np.int64)) <= 1).all())
    if tensor.dtype.is_float:
        return np.allclose(actual, expected, tolerance, tolerance, equal_nan=True)
    return np.array_equal(actual, expected)
