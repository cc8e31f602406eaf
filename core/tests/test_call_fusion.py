"""Pairs of calls that one kernel computes: what becomes one, where it runs, what stays apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mace_core.call_fusion import MAX_TRIALS, fuse_calls, fuse_where
from mace_core.ir import DType, Tensor
from mace_core.program import Call, Kernel, Program


def call(text: str, *levels: str) -> Call:
    """The call "KERNEL x,y>z", on behalf of a node of the result's name that computes two of the model's."""
    kernel, _, tensors = text.partition(" ")
    reads, _, writes = tensors.partition(">")
    sources = (f"{writes}_a", "both")
    return Call(
        Kernel(kernel, Path()), {}, reads.split(","), writes.split(","), 0, False, writes, sources, levels
    )


def program(calls: Sequence[Call], outputs: str = "out", aliases: dict[str, str] | None = None) -> Program:
    names = {name for c in calls for name in (*c.reads, *c.writes) if name}
    tensors = {name: Tensor(name, DType.F32, (2,)) for name in names}
    return Program("p", tuple(calls), tensors, {}, aliases or {}, ("in",), tuple(outputs.split(",")))


def join(first: Call, second: Call, tensor: str) -> Call | None:
    """A kernel "f..." computes any "g" behind it."""
    if first.kernel.name[0] != "f" or second.kernel.name != "g":
        return None
    reads = [*first.reads, *(name for name in second.reads if name != tensor)]
    return Call(Kernel(f"{first.kernel.name}g", Path()), {}, reads, second.writes)


def show(fused: Program) -> list[str]:
    return [
        f"{c.kernel.name} {','.join(c.reads)}>{','.join(c.writes)}"
        + "".join(f" @{level}" for level in c.levels)
        for c in fused.calls
    ]


CASES = {
    "a chain": (["f in>a", "g a>b", "g b>out"], ["fgg in>out"]),
    "runs where the second stood": (
        ["f in>a", "h in>b", "g a>c", "h c,b>out"],
        ["h in>b", "fg in>c", "h c,b>out"],
    ),
    "the later of two": (["f in>a", "f in>b", "g a,b>out"], ["f in>a", "fg in,a>out"]),
    "an operand that comes later": (["f in>a", "h in>b", "g a,b>out"], ["f in>a", "h in>b", "g a,b>out"]),
    "read twice": (["f in>a", "g a,a>out"], ["f in>a", "g a,a>out"]),
    "read by others": (["f in>a", "g a>b", "h a,b>out"], ["f in>a", "g a>b", "h a,b>out"]),
    "absent operands": (["f in,>a", "g a,>out"], ["fg in,,>out"]),
    "no such kernel": (["h in>a", "g a>out"], ["h in>a", "g a>out"]),
    "parts of one tensor": (["f in>a", "f b>a", "g a>out"], ["f in>a", "f b>a", "g a>out"]),
    "several results": (["f in>a,b", "g a>c", "h b,c>out"], ["f in>a,b", "g a>c", "h b,c>out"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_one(name: str) -> None:
    before, after = CASES[name]
    assert show(fuse_calls(program([call(text) for text in before]), join)) == after


def test_what_both_stand_for_is_told_and_the_tensor_between_goes() -> None:
    fused = fuse_calls(program([call("f in>a"), call("g a>out")]), join)
    assert (fused.calls[0].node, fused.calls[0].sources) == ("out", ("a_a", "both", "out_a"))
    assert set(fused.tensors) == {"in", "out"}


@pytest.mark.parametrize(
    ("outputs", "aliases"), [("a,out", {}), ("out", {"view": "a"}), ("out", {"a": "root"})]
)
def test_bytes_that_are_seen_elsewhere_stay(outputs: str, aliases: dict[str, str]) -> None:
    before = program([call("f in>a"), call("g a>out")], outputs, aliases)
    assert fuse_calls(before, join).calls == before.calls


def test_each_level_gets_its_own() -> None:
    calls = [call("f in>a", "avx2"), call("f in,w>a", "sse2"), call("g a>b"), call("g b>out")]
    assert show(fuse_calls(program(calls), join)) == ["fgg in>out @avx2", "fgg in,w>out @sse2"]


def test_one_level_that_cannot_leaves_all_apart() -> None:
    calls = [call("f in>a", "avx2"), call("h in>a", "sse2"), call("g a>out")]
    assert fuse_calls(program(calls), join).calls == tuple(calls)


def test_a_second_call_of_other_levels_stays_apart() -> None:
    calls = [call("f in>a"), call("g a>out", "avx2"), call("h in>out", "sse2")]
    assert fuse_calls(program(calls), join).calls == tuple(calls)


def build_pairs(count: int) -> Program:
    """Return pairs of calls that can be one each, with the tensor "tN" between those of pair N."""
    calls = [
        call(f"{kernel} {tensors}")
        for n in range(count)
        for kernel, tensors in (("f", f"in>t{n}"), ("g", f"t{n}>o{n}"))
    ]
    return program(calls, ",".join(f"o{n}" for n in range(count)))


@pytest.mark.parametrize("costly", [(), (0,), (6,), (2, 3), (0, 3, 6), tuple(range(7))])
def test_only_the_fusions_that_break_a_condition_are_left_out(costly: tuple[int, ...]) -> None:
    before = build_pairs(7)
    needed = {f"t{n}" for n in costly}
    fused = fuse_where(before, join, lambda trial: needed <= {*trial.tensors})
    assert {*before.tensors} - {*fused.tensors} == {f"t{n}" for n in range(7)} - needed
    assert len(fused.calls) == 7 + len(costly)


def test_the_search_ends_with_what_it_has_accepted() -> None:
    """Every second fusion breaks the condition, which would take more trials than there are."""
    before, trials = build_pairs(128), []

    def accepts(trial: Program) -> bool:
        trials.append(trial)
        return all(f"t{n}" in trial.tensors for n in range(0, 128, 2))

    fused = fuse_where(before, join, accepts)
    assert len(trials) == MAX_TRIALS + 1
    assert len(fused.calls) < len(before.calls)
    assert accepts(fused)


def test_parts_that_a_level_writes_stay() -> None:
    calls = [call("f in>a", "avx2"), call("f b>a", "avx2"), call("f in>a", "sse2"), call("g a>out")]
    assert fuse_calls(program(calls), join).calls == tuple(calls)
