"""The contract of targets for all kinds of hardware, from `refuses` and `compile` to results of a session."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, product
from pathlib import Path
from typing import ClassVar

import numpy as np

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, State
from mace_core.levels import with_levels
from mace_core.manifest import Manifest
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing import hostile
from mace_core.testing.compiled import (
    assert_close,
    check_merged,
    compile_graphs,
    generate_library,
    load_library,
    merge,
    random_inputs,
)
from mace_core.testing.heap import list_allocators, measure_heap
from mace_core.testing.plugin import PluginContract
from mace_core.testing.samples import VARIANTS, sample
from mace_core.testing.strategies import random_graph

PLAIN = (DType.F32, DType.I32, DType.U8, DType.BOOL)
STORED = (DType.I8, DType.U8)
ZERO_POINT = 3
SMOOTH = (
    *(
        "Add",
        "Sub",
        "Mul",
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "HardSwish",
        "Softmax",
        "ReduceMean",
        "Resize",
    ),
    *(
        "Conv",
        "ConvTranspose",
        "MatMul",
        "MaxPool",
        "AveragePool",
        "Pad",
        "Slice",
        "Concat",
        "Transpose",
        "Reshape",
    ),
)
"""Ops that turn a small error of a quantized operand into a small error of the result."""

SHAPED = ("Relu", "Abs", "Neg", "Tanh", "Sigmoid", "MatMul", "Conv")
"""Ops that chains consist of; each keeps the shape (1, 4, 4, 4)."""

LENGTH = 7
"""Nodes of a chain, and the number of regions that it can be divided into."""


class EverySecond(Target):
    """A target that refuses every second node, so that the other half of a graph goes to another target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = target.name  # type: ignore[misc]
        self.device = target.device  # type: ignore[misc]

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        number = [n.name for n in graph.nodes].index(node.name)
        if number % 2:
            return Refusal("other", "the contract gives it to another target")
        return self.target.refuses(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        return self.target.compile(region, config)


class TargetContract(PluginContract):
    """Tests of a target: derive a class and set `target`.

    abi: the ABI that the target compiles for. Code for another ABI is compiled for this machine nevertheless,
    without levels that have compiler flags.
    seeds: number of random networks.  tolerance: that of floats, relative to the larger of 1 and the value.
    """

    kind = "target"
    target: ClassVar[Target]
    abi: ClassVar[str] = "host"
    seeds: ClassVar[int] = 12
    tolerance: ClassVar[float] = 1e-4

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    def test_states_itself(self) -> None:
        assert self.target.device
        assert self.target.abis
        assert all(fnmatchcase(pattern.strip("*") or "x", pattern) for pattern in self.target.abis)

    def test_missing_is_stable(self) -> None:
        assert self.target.missing() == self.target.missing()
        assert self.target.missing() is None or str(self.target.missing()).strip()

    def test_refusals_are_data(self) -> None:
        """A target answers the same when it is asked twice about a node: None or a Refusal."""
        for graph in self.graphs():
            for node in graph.nodes:
                first = self.target.refuses(node, graph)
                assert first is None or isinstance(first, Refusal), f"{node}: refuses() returns {first!r}"
                assert self.target.refuses(node, graph) == first, f"{node}: two answers"

    def test_parts_fit_their_regions(self) -> None:
        """A part has the ports of its region, in order, and its driver is in a manifest of the target."""
        drivers = set(chain.from_iterable(manifest.drivers for manifest in self._manifests()))
        for graph in self.accepted_graphs()[:5]:
            part = self.target.compile(
                Region(self.target, graph), BuildConfig(self.abi, self.abi, Model(graph.name, ()))
            )
            assert part.target == self.name
            assert [port.tensor for port in part.inputs] == [graph.tensors[name] for name in graph.inputs]
            assert [port.tensor for port in part.outputs] == [graph.tensors[name] for name in graph.outputs]
            assert part.nodes == tuple(node.name for node in graph.nodes)
            assert not part.driver or part.driver in drivers, (
                f"no manifest of {self.name} names the driver {part.driver}"
            )

    def test_sources_are_the_same_twice(self, tmp_path: Path) -> None:
        graph = merge("twice", self.accepted_graphs()[:5])
        first, second = (generate_library([self.target], [graph], self.abi) for _ in range(2))
        assert first.files == second.files
        assert first.manifests == second.manifests
        for name, content in first.files.items():
            data = content.encode() if isinstance(content, str) else bytes(content)
            assert str(Path.home()).encode() not in data, name
            assert str(tmp_path.parent).encode() not in data, name

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """No part of a name in a model becomes code; for this machine the library is compiled and run."""
        graph = next(
            (g for g in (hostile.branches(), hostile.relus(), hostile.chain()) if self._accepts(g)), None
        )
        assert graph, (
            f"{self.name} computes neither Relu nor Conv: override this test with other hostile names"
        )
        library = generate_library([self.target], [graph], self.abi)
        assert hostile.escapes(library.files) == []
        if self.abi == "host":
            model = load_library(library, tmp_path)["names"]
            assert [t.name for t in (*model.inputs, *model.outputs)] == [*graph.inputs, *graph.outputs]
            inputs = random_inputs(graph)
            expected, outputs = execute(graph, inputs), model.run(inputs)
            for name, array in outputs.items():
                assert_close(array, expected[name], name, self.tolerance)

    def test_levels_end_with_one_for_every_processor(self) -> None:
        """A target whose kernels core compiles has a last level without conditions; another has no levels."""
        levels = self.target.levels(self.abi)
        assert all(not level.available for level in levels[-1:])
        assert len({level.name for level in levels}) == len(levels)

    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        """Every op and random networks, as one library: a target must compute what it accepts."""
        check_merged(self.portable(), self.accepted_graphs(), tmp_path, self.tolerance, self.abi)
        if not any(manifest.drivers for manifest in self._manifests()):
            assert list_allocators(tmp_path) == [], "kernels must not use the heap"

    def test_sessions_use_the_heap_only_if_a_driver_says_so(self, tmp_path: Path) -> None:
        """Sessions allocate nothing, from opening to closing, unless a driver sets MACE_ALLOCATES."""
        graph = merge("heap", self.accepted_graphs()[:5])
        (use,) = measure_heap(generate_library([self.portable()], [graph], self.abi), tmp_path)
        assert use.status == 0, (
            f"a session of the program {tmp_path / 'heap_probe'} fails with status {use.status}"
        )
        assert use.is_declared or not use.requests, (
            f"{use.requests} allocations: set MACE_ALLOCATES in the driver's flags, "
            "or use the memory that `open` and `load` get"
        )

    def test_several_regions_compute_what_one_does(self, tmp_path: Path) -> None:
        """Parts of one target share its memory, and keep tensors while another target's part runs."""
        target, graph = self.portable(), self.chain()
        one = load_library(generate_library([target], [graph], self.abi), tmp_path / "one")[graph.name]
        several = generate_library([EverySecond(target), target], [graph], self.abi)
        split = load_library(several, tmp_path / "several")[graph.name]
        assert len(split.devices()) == LENGTH
        for seed in range(3):
            inputs = random_inputs(graph, seed)
            expected, actual, reference = one.run(inputs), split.run(inputs), execute(graph, inputs)
            for name in graph.outputs:
                assert_close(expected[name], reference[name], name, self.tolerance)
                assert actual[name].tobytes() == expected[name].tobytes(), (
                    f"{name}: {LENGTH} regions compute other numbers than one"
                )

    def test_states_last_from_run_to_run(self, tmp_path: Path) -> None:
        """A region reads the value that the previous run wrote, and the start value after a reset."""
        op = self._op()
        builder = Builder("memory")
        x, before = (builder.input(name, DType.F32, (1, 4, 4, 4)) for name in ("x", "before"))
        after, y = (_add(builder, op, tensor, number) for number, tensor in enumerate((x, before)))
        graph = builder.finish([y, after], ["y", "after"])
        start = np.full((1, 4, 4, 4), 0.5, np.float32)
        graph = replace(graph, states=(State("before", "after", start),))
        (model,) = compile_graphs(self.portable(), [graph], tmp_path, self.abi).values()
        for _ in range(2):
            value = start
            for seed in range(3):
                inputs = {"x": random_inputs(graph, seed)["x"], "before": value}
                expected = execute(graph, inputs)
                assert_close(
                    model.run({"x": inputs["x"]})["y"], expected["y"], f"step {seed}", self.tolerance
                )
                value = expected["after"]
            model.reset()

    def portable(self) -> Target:
        """Return the target as this machine's compiler can compile it.

        For another ABI these are the levels without flags. Override it where they use intrinsics of the ABI.
        """
        target = self.target
        if self.abi == "host":
            return target
        portable = [level for level in target.levels(self.abi) if not level.flags]
        assert portable, (
            f"all levels for {self.abi} have flags, which the compiler of this machine may not know: "
            "move flags that every processor of the ABI has into the toolchain"
        )
        return with_levels(target, portable)

    def graphs(self) -> list[Graph]:
        """Return the samples of all ops and variants, and random networks."""
        graphs: list[Graph | None] = []
        for op, dtype in product(core_ops(), PLAIN):
            graphs += [sample(op, dtype, variant=variant) for variant in _variants(op)]
        for op, dtype in product(SMOOTH, STORED):
            graphs += [
                sample(op, dtype, quantized=True, zero_point=ZERO_POINT, variant=variant)
                for variant in _variants(op)
            ]
        graphs += [random_graph(seed) for seed in range(self.seeds)]
        return [graph.with_name(f"{number}_{graph.name}") for number, graph in enumerate(graphs) if graph]

    def accepted_graphs(self) -> list[Graph]:
        """Return the graphs whose nodes the target takes all."""
        accepted = [graph for graph in self.graphs() if self._accepts(graph)]
        assert accepted, f"{self.name} accepts no node of any sample"
        return accepted

    def chain(self) -> Graph:
        """Return a chain of nodes that the target takes; two tensors inside it are outputs as well."""
        builder, op = Builder("chain"), self._op()
        values = [builder.input("x", DType.F32, (1, 4, 4, 4))]
        for number in range(LENGTH):
            values.append(_add(builder, op, values[-1], number))
        return builder.finish([values[-1], values[2], values[5]])

    def _op(self) -> str:
        for op in SHAPED:
            builder = Builder(op)
            x = builder.input("x", DType.F32, (1, 4, 4, 4))
            if self._accepts(builder.finish([_add(builder, op, x, 0)])):
                return op
        raise AssertionError(f"{self.name} takes none of {', '.join(SHAPED)} over floats: override chain()")

    def _manifests(self) -> tuple[Manifest, ...]:
        return self.target.manifests("contract", [Model("small", ())], self.abi)

    def _accepts(self, graph: Graph) -> bool:
        return not any(self.target.refuses(node, graph) for node in graph.nodes)


def _variants(op: str) -> range:
    """Return the variants of an op's sample, beginning with -1 for the sample itself."""
    return range(-1, len(VARIANTS.get(op, ())))


def _add(builder: Builder, op: str, x: str, number: int) -> str:
    """Append a node of an op that keeps the shape (1, 4, 4, 4)."""
    rng = np.random.default_rng(number)
    if op == "MatMul":
        return builder.one(op, [x, builder.weight("w", rng.normal(0, 0.5, (4, 4)).astype(np.float32))])
    if op == "Conv":
        windows = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
        return builder.one(
            op, [x, builder.weight("w", rng.normal(0, 0.2, (4, 3, 3, 4)).astype(np.float32))], windows
        )
    return builder.one(op, [x])
