"""A target with two candidates for Add, at two levels, and the checks that tests of candidates share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mace_core.candidates import Candidate
from mace_core.emit import code
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.kernel_target import KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Program
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import host, random_inputs, with_quick_flags

SIZE = 6
HEAD = "static void {{ name }}(const mace_workers *run, const {{ name }}_args *a, void *const *t) {\n  (void)run;\n"
BODIES = {
    # y = x + w, one after another
    "plain": "  const float *x = t[0], *w = t[1];\n  float *y = t[2];\n  for (int i = 0; i < a->n; i++) y[i] = x[i] + w[i];\n}\n",
    # y = x + w with w stored in groups of `stride`, the last of each group first: wrong numbers with the
    # weights of another stride
    "turned": "  const float *x = t[0], *w = t[1];\n  float *y = t[2];\n"
    "  for (int i = 0; i < a->n; i++) y[i] = x[i] + w[i / a->stride * a->stride + a->stride - 1 - i % a->stride];\n}\n",
    "copy": "  memcpy(t[1], t[0], (size_t)a->n * 4);\n}\n",
    "relu": "  const float *x = t[0];\n  float *y = t[1];\n  for (int i = 0; i < a->n; i++) y[i] = x[i] > 0 ? x[i] : 0;\n}\n",
}
COSTS = {("plain", "fast"): 9.0, ("plain", "base"): 4.0, ("turned", "fast"): 2.0, ("turned", "base"): 8.0}


@dataclass(frozen=True, kw_only=True)
class GroupedLevel(Level):
    """A level of the test target: its weights lie in groups of `stride`."""

    stride: int


class Grouping(KernelTarget):
    """Adds a constant with either of two kernels, at two levels; `stride` is asked for by one of them."""

    name = "grouping"
    device = "cpu"
    cost_unit = "points"

    def __init__(self, folder: Path, is_fast: bool = True, strides: tuple[int, int] = (3, 2)) -> None:
        self.folder, self.is_fast, self.strides = folder, is_fast, strides
        for name, body in BODIES.items():
            (folder / f"{name}.c.in").write_text(HEAD + body)
        (folder / "empty.h.in").write_text("\n")
        self.lowerings = {
            "Add": (
                Candidate("plain", self.add_plain, partial(find_cost, "plain")),
                Candidate("turned", self.add_turned, partial(find_cost, "turned")),
            ),
            "Relu": self.relu,
            "Sub": self.add_turned,
        }

    def levels(self, abi: str) -> tuple[Level, ...]:
        fast, base = self.strides
        empty = self.folder / "empty.h.in"
        return (
            GroupedLevel("fast", (), str(int(self.is_fast)), empty, stride=fast),
            GroupedLevel("base", (), "", empty, stride=base),
        )

    def parameters(self, level: Level | None) -> int:
        return level.stride if isinstance(level, GroupedLevel) else 1

    def kernel(self, name: str, *fields: str) -> Kernel:
        return Kernel(name, self.folder / f"{name}.c.in", tuple((field, "i32") for field in ("n", *fields)))

    def relu(self, node: Node, to: Lowering) -> None:
        to.call(
            node,
            Call(
                self.kernel("relu"),
                {"n": to.tensors[node.inputs[0]].elements},
                node.inputs,
                node.outputs,
                inplace=True,
            ),
        )

    def add_plain(self, node: Node, to: Lowering) -> None:
        to.call(
            node,
            Call(
                self.kernel("plain"), {"n": constant(node, to).size}, node.inputs, node.outputs, inplace=True
            ),
        )

    def add_turned(self, node: Node, to: Lowering) -> None:
        """Copy the operand to a tensor of its own, then add to that: two calls, with weights that depend on the level."""
        array, stride = constant(node, to), to.parameters
        assert isinstance(stride, int)
        turned = np.ascontiguousarray(array.reshape(-1, stride)[:, ::-1]).reshape(-1)
        weight = to.once(
            (node.inputs[1], stride),
            lambda: to.weight(f"{node.inputs[1]}.turned", turned.shape, "float32", lambda: turned),
        )
        copied = to.temporary(replace(to.tensors[node.inputs[0]], name=f"{node.inputs[0]}.copied"))
        to.call(node, Call(self.kernel("copy"), {"n": array.size}, [node.inputs[0]], [copied]))
        args = {"n": array.size, "stride": stride}
        to.call(
            node, Call(self.kernel("turned", "stride"), args, [copied, weight], node.outputs, inplace=True)
        )


def constant(node: Node, to: Lowering) -> np.ndarray:
    array = to.constant(node.inputs[1])
    if array is None or array.size % SIZE:
        raise Refused("adds only a constant of whole groups")
    return array


def find_cost(name: str, node: Node, to: Lowering, level: Level) -> float:
    return COSTS[name, str(level.name)]


def network(op: str = "Add") -> Graph:
    """relu(x) + w, and that + v: the second one reads what the first one writes at either level."""
    new = Builder("network")
    x = new.input("x", DType.F32, (2, SIZE))
    y = new.one("Relu", [x], outputs=["y"])
    w, v = (
        new.weight(name, np.arange(2 * SIZE, dtype=np.float32).reshape(2, SIZE) * factor)
        for name, factor in (("w", 1), ("v", 100))
    )
    z = new.one(op, [y, w], outputs=["z"])
    return new.finish([new.one("Relu", [new.one(op, [z, v], outputs=["s"])], outputs=["r"])])


def names(program: Program) -> list[tuple[str, tuple[str, ...]]]:
    return [(str(call.kernel.name), call.levels) for call in program.calls]


def check_numbers(target: Grouping, graph: Graph, program: Program, folder: Path) -> None:
    """Compile the program for all levels and run it at the level that `is_fast` says."""
    sources = code.library("cases", [plan_calls(program)], target.levels("host"))
    model = native.load(shared_library(with_quick_flags(sources), host(), folder / "library", ()), "cases")[
        "network"
    ]
    inputs = random_inputs(graph)
    seen: list[str] = []
    actual = model.run(inputs, lambda layer, result: seen.append(layer))
    np.testing.assert_array_equal(actual["r"], execute(graph, inputs)["r"])
    # Both levels' calls one after another would compute the same numbers, so those that were made are
    # counted.
    level = "fast" if target.is_fast else "base"
    assert seen == [call.node for call in program.calls if call.is_made_at(level)]


def folder_of(path: Path, name: str) -> Path:
    path = path / name
    path.mkdir()
    return path
