"""The arena of a program whose levels make different calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mace_core.ir import DType, Tensor
from mace_core.memory import arena, touches_of
from mace_core.program import Call, Kernel, Program


def calls(*rows: tuple[Sequence[str], str, bool, tuple[str, ...]]) -> Program:
    kernel = Kernel("k", Path("none"))
    tensors = {name: Tensor(name, DType.F32, (16,)) for row in rows for name in (*row[0], row[1])}
    result = tuple(
        Call(kernel, {}, tuple(reads), (write,), inplace=inplace, levels=levels)
        for reads, write, inplace, levels in rows
    )
    return Program("p", result, tensors, {}, {}, ("x",), (rows[-1][1],))


def test_alternatives_write_one_tensor_that_takes_over_their_operand_if_both_may() -> None:
    before, after = (["x"], "a", False, ()), (["b"], "o", False, ())
    both = calls(before, (["a"], "b", True, ("l1",)), (["a"], "b", True, ("l2",)), after)
    assert arena(both).bytes == 64
    one = calls(before, (["a"], "b", True, ("l1",)), (["a"], "b", False, ("l2",)), after)
    assert arena(one).bytes == 128
    read_later = calls(
        before,
        (["a"], "b", True, ("l1",)),
        (["a"], "b", True, ("l2",)),
        (["a", "b"], "c", False, ("l1",)),
        after,
    )
    assert arena(read_later).offsets["a"] != arena(read_later).offsets["b"]


def test_temporaries_of_alternatives_share_bytes() -> None:
    result = calls(
        (["x"], "a", False, ()),
        (["a"], "t1", False, ("l1",)),
        (["t1"], "b", False, ("l1",)),
        (["a"], "t2", False, ("l2",)),
        (["t2"], "b", False, ("l2",)),
        (["b"], "o", False, ()),
    )
    plan = arena(result)
    assert plan.offsets["t1"] == plan.offsets["t2"]
    assert len({plan.offsets["a"], plan.offsets["b"], plan.offsets["t1"]}) == 3


def test_what_one_target_reads_at_its_levels_lives_whatever_level_another_target_chose() -> None:
    result = calls(
        (["x"], "a", False, ()),
        (["a"], "b", True, ("l1",)),
        (["a"], "b", True, ("l2",)),
        (["a", "b"], "c", False, ("m1",)),
        (["b"], "c", False, ("m2",)),
        (["c"], "o", False, ()),
    )
    touches = touches_of(result, "one")[:3] + touches_of(result, "other")[3:]
    plan = arena(result, touches)
    assert plan.offsets["a"] != plan.offsets["b"]
