"""Results written into the tensor that a later call would join them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.ir import DType, Tensor
from mace_core.joint_results import join_results
from mace_core.program import Call, Kernel, Program, Weight


def call(text: str, *levels: str) -> Call:
    """The call "KERNEL x,y>z", on behalf of a node of the result's name."""
    kernel, _, tensors = text.partition(" ")
    reads, _, writes = tensors.partition(">")
    node = writes.partition(",")[0]
    return Call(
        Kernel(kernel, Path()), {}, reads.split(","), writes.split(","), 0, False, node, (node,), levels
    )


def program(
    calls: Sequence[Call], outputs: str = "out", aliases: dict[str, str] | None = None, **sizes: int
) -> Program:
    names = {name for c in calls for name in (*c.reads, *c.writes) if name} - {"table"}
    sizes = {"out": 4, "third": 3, **sizes}
    tensors = {name: Tensor(name, DType.F32, (sizes.get(name, 2),)) for name in names}
    weights = {"table": Weight.of(np.zeros(1))}
    return Program("p", tuple(calls), tensors, weights, aliases or {}, ("in",), tuple(outputs.split(",")))


def place(first: Call, joint: Call, program: Program) -> Call | None:
    """A kernel "f" writes where "join" would move its result."""
    if first.kernel.name != "f" or joint.kernel.name != "join":
        return None
    number = joint.reads.index(first.writes[0])
    return replace(first, kernel=Kernel(f"f_at_{number}", Path()))


def show(placed: Program) -> list[str]:
    return [
        f"{c.kernel.name} {','.join(c.reads)}>{','.join(c.writes)}"
        + "".join(f" @{level}" for level in c.levels)
        for c in placed.calls
    ]


JOIN = "join a,b,table>out"


def test_all_parts_are_written_in_place() -> None:
    placed = join_results(program([call("f in>a"), call("f in>b"), call(JOIN)]), place)
    assert show(placed) == ["f_at_0 in>out", "f_at_1 in>out"]
    assert [c.sources for c in placed.calls] == [("a", "out"), ("b", "out")]
    assert set(placed.tensors) == {"in", "out"}


def test_each_level_writes_its_own() -> None:
    calls = [call("f in>a", "avx2"), call("f in,w>a", "sse2"), call("f in>b"), call(JOIN)]
    after = ["f_at_0 in>out @avx2", "f_at_0 in,w>out @sse2", "f_at_1 in>out"]
    assert show(join_results(program(calls), place)) == after


@pytest.mark.parametrize(
    "calls",
    [
        ["f in>a", "g in>b", JOIN],  # a kernel that cannot
        ["f in>a", "f in>b", JOIN, "g a>c"],  # another reader
        ["f in>a,c", "f in>b", JOIN],  # several results
        ["f in>a", "join a,a,table>out"],  # one part at two places
        ["f in>a", "join a,in,table>out"],  # memory of the application
        ["f in>a", "join a,table>out"],  # a constant among the parts
        ["f in>a", "f in>b", "join a,b,table>third"],  # parts that overlap
        ["join table>out"],  # constants alone
        ["f in>a", "f in>b", "join a,b,table>out,more"],  # several joint results
    ],
)
def test_one_part_that_cannot_leaves_all(calls: list[str]) -> None:
    before = program([call(text) for text in calls])
    assert join_results(before, place).calls == before.calls


@pytest.mark.parametrize(
    ("outputs", "aliases"), [("a,out", {}), ("out", {"view": "a"}), ("out", {"a": "root"})]
)
def test_bytes_that_are_seen_elsewhere_stay(outputs: str, aliases: dict[str, str]) -> None:
    before = program([call("f in>a"), call("f in>b"), call(JOIN)], outputs, aliases)
    assert join_results(before, place).calls == before.calls


def test_a_join_of_some_levels_stays() -> None:
    before = program([call("f in>a"), call("f in>b"), call(JOIN, "avx2")])
    assert join_results(before, place).calls == before.calls


def test_a_join_of_joins_leaves_the_outer_one() -> None:
    calls = [
        call("f in>a"),
        call("f in>b"),
        call("join a,b,table>c"),
        call("f in>d"),
        call("join c,d,table>out"),
    ]
    after = ["f_at_0 in>c", "f_at_1 in>c", "f in>d", "join c,d,table>out"]
    assert show(join_results(program(calls, c=4, out=6), place)) == after
