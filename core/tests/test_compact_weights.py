"""Weights in smaller forms: every bit comes back, and only what gets smaller is replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.compact_weights import (
    FIELDS,
    INTEGER_FIELDS,
    MAX_READERS,
    MIN_BYTES,
    PIECE,
    WideningKernels,
    _sparse,
    compact_weights,
    decode,
    encode,
)
from mace_core.integer_recovery import IntegerForm
from mace_core.ir import Array, DType, Tensor
from mace_core.memory import arena
from mace_core.program import Call, Kernel, Program, Weight

TEMPLATE = Path("none.c.in")
KERNELS = WideningKernels(
    Kernel("f16", TEMPLATE, FIELDS),
    Kernel("sparse", TEMPLATE, FIELDS),
    Kernel("sparse_f16", TEMPLATE, FIELDS),
)
READ = Kernel("read", TEMPLATE)
MANY = MIN_BYTES // 4
SPECIAL = (
    0x0,
    0x80000000,
    0x1,
    0x807FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x7F800001,
    0x7FC02000,
    0x33800000,
    0x477FE000,
    0x47800000,
)
"""Bits: zeros, denormals, infinities, NaNs that are quiet, signal or have a payload, the least and greatest half, and one above."""


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32)


def floats_from_bits(numbers: list[int]) -> Array:
    return np.array(numbers, np.uint32).view(np.float32)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(SPECIAL) | st.integers(0, 2**32 - 1), min_size=1, max_size=50),
    st.sampled_from((1, 63, 64, 65, 1000, PIECE - 1, PIECE, PIECE + 1)),
    st.floats(0, 1),
    st.booleans(),
)
def test_every_bit_comes_back(values: list[int], size: int, density: float, halves: bool) -> None:
    pool = floats_from_bits(values)
    if halves:
        pool = (pool.view(np.uint32) & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
    rng = np.random.default_rng(size)
    array = np.where(rng.random(size) < density, rng.choice(pool, size), np.float32(0))
    encoding = encode(array)
    if encoding:
        assert encoding.bytes < array.nbytes
        assert np.array_equal(bits(decode(encoding, size)), bits(array))
    elif halves and not np.isnan(array).any():
        pytest.fail("halves were not stored as such")


@pytest.mark.parametrize(
    ("fill", "kernel"),
    [
        ((0.5,), "f16"),
        ((-0.0,), "f16"),
        ((np.inf, -np.inf, np.nan, 2.0**-24, 65504.0), "f16"),
        ((0.1,), None),
        ((65520.0,), None),
        ((2.0**-25,), None),
        ((0.1, 0.0), None),
        ((0.0, 0.0, 0.1), "sparse"),
        ((0.0, 0.0, 0.0, 0.0, 0.5), "sparse_f16"),
        ((0.0,), "sparse_f16"),
        ((-0.0, -0.0, -0.0, 0.1), None),
    ],
)
def test_form_of(fill: tuple[float, ...], kernel: str | None) -> None:
    encoding = encode(np.resize(np.array(fill, np.float32), (60, 60)))
    assert (encoding.kernel if encoding else None) == kernel


def program(weights: dict[str, Array], reads: list[tuple[str, ...]], **changes: object) -> Program:
    """A chain x -> t0 -> t1 ..., each call reading the tensor before it and these weights.

    The last tensor is the output.
    """
    chain = ["x", *(f"t{i}" for i in range(len(reads)))]
    calls = tuple(
        Call(READ, {}, (chain[i], *names), (chain[i + 1],), node=f"n{i}") for i, names in enumerate(reads)
    )
    tensors = {name: Tensor(name, DType.F32, (MANY,)) for name in chain}
    stored = {name: Weight.of(array) for name, array in weights.items()}
    whole = Program("m", calls, tensors, stored, {}, ("x",), (chain[-1],))
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_each_call_reads_what_a_call_before_it_widened() -> None:
    half, odd = np.full(MANY, 0.5, np.float32), np.full(MANY, 0.1, np.float32)
    before = program({"w": half, "v": odd}, [("w", "v"), ("w", "w"), ("v",)])
    compacted = compact_weights(before, KERNELS)
    after = compacted.program
    assert [c.kernel.name for c in after.calls] == ["f16", "read", "f16", "read", "read"]
    for widening, call in ((after.calls[0], after.calls[1]), (after.calls[2], after.calls[3])):
        assert widening.reads == ("w.f16",)
        assert widening.writes[0] in call.reads
        assert widening.node == call.node
        assert widening.args == {"n": MANY, "piece": PIECE}
    assert after.calls[3].reads[1] == after.calls[3].reads[2]
    assert set(after.weights) == {"w.f16", "v"}
    assert after.weights["w.f16"].make().nbytes == after.weights["w.f16"].bytes == 2 * MANY
    assert compacted.figures == {
        "weights": 1,
        "packed_bytes": 4 * MANY,
        "stored_bytes": 2 * MANY,
        "widened_bytes": 4 * MANY,
    }
    # One weight at a time: the second takes the place of the first.
    assert arena(after).bytes == arena(before).bytes + 4 * MANY


def test_weights_that_stay() -> None:
    half = np.full(MANY, 0.5, np.float32)
    small, whole, double = half[:-1], np.ones(MANY, np.int32), np.ones(MANY, np.float64)
    reads = [("small", "whole", "double", "alias"), *(("often",) for _ in range(MAX_READERS + 1))]
    weights = {
        "small": small,
        "whole": whole,
        "double": double,
        "shared": half,
        "often": half,
        "output": half,
    }
    tensors = {"output": Tensor("output", DType.F32, (MANY,))}
    before = program(weights, reads, aliases={"alias": "shared"})
    before = replace(before, outputs=(*before.outputs, "output"), tensors={**before.tensors, **tensors})
    after = compact_weights(before, KERNELS).program
    assert after.calls == before.calls
    assert after.weights == before.weights


def test_no_result_lies_over_a_weight_that_was_widened() -> None:
    before = program({"w": np.full(MANY, 0.5, np.float32)}, [("w",), ()])
    calls = tuple(replace(c, inplace=True) for c in before.calls)
    after = compact_weights(replace(before, calls=calls), KERNELS).program
    offsets = arena(after).offsets
    assert offsets["w.widened"] != offsets["t0"]
    assert [c.inplace for c in after.calls] == [False, False, True]


def test_new_names_do_not_clash() -> None:
    half = np.full(MANY, 0.5, np.float32)
    before = program({"w": half, "w.f16": half, "w.widened": half}, [("w", "w.f16", "w.widened")])
    after = compact_weights(before, KERNELS).program
    names = [*after.weights, *after.tensors]
    assert len(names) == len(set(names))
    assert len(after.weights) == 3
    assert len(set(after.calls[-1].reads)) == 4


def test_each_piece_knows_how_many_values_lie_before_it() -> None:
    """Of two pieces and five more values, the first and the last of each are present."""
    present = np.zeros(2 * PIECE + 5, bool)
    present[[0, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 4]] = True
    values = np.arange(present.size, dtype=np.float32)
    bitmap, before, nonzero = _sparse(values, present)
    assert before.tolist() == [0, 2, 4]
    assert nonzero.tolist() == [0, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 4]
    bits = np.unpackbits(bitmap.view(np.uint8), bitorder="little")
    assert bits[: present.size].tolist() == present.tolist()
    assert not bits[present.size :].any()


def read_second(call: Call, position: int, form: IntegerForm) -> Call | None:
    """A kernel that reads integers as its second tensor only."""
    kernel = Kernel(f"read_{form.bits}", TEMPLATE)
    return replace(call, kernel=kernel) if position == 1 else None


INTEGERS = replace(
    KERNELS,
    integers_4=Kernel("integers_4", TEMPLATE, INTEGER_FIELDS),
    integers_8=Kernel("integers_8", TEMPLATE, INTEGER_FIELDS),
    read_integers=read_second,
)


def matrix_of_integers(bits: int, *, zero: int = 0) -> Array:
    """Weights [64, 32] of all integers of so many bits, which half precision does not hold."""
    rng = np.random.default_rng(bits)
    limit = 1 << (bits - 1)
    integers = rng.integers(-limit, limit, (64, 32)) - zero
    integers[:2] = np.array([[-limit - zero], [limit - 1 - zero]])
    return integers.astype(np.float32) * np.float32(0.1)


@pytest.mark.parametrize(("bits", "zero"), [(8, 0), (8, 100), (4, 0), (4, 3)])
def test_integers_are_read_as_they_are_or_widened(bits: int, zero: int) -> None:
    array = matrix_of_integers(bits, zero=zero)
    floats = np.random.default_rng(0).standard_normal(MANY).astype(np.float32)
    before = program({"w": array, "v": floats}, [("w", "v"), ("v", "w")])
    compacted = compact_weights(before, INTEGERS)
    direct, widening, last = compacted.program.calls
    assert [call.kernel.name for call in (direct, widening, last)] == [
        f"read_{bits}",
        f"integers_{bits}",
        "read",
    ]
    parts = [f"w.integers_{bits}", f"w.integers_{bits}.1", f"w.integers_{bits}.2" if zero else ""]
    assert list(direct.reads) == ["x", *parts, "v"]
    assert list(widening.reads) == parts
    assert widening.args == {"outer": 1, "depth": 64, "lanes": 32, "span": 64, "piece": PIECE}
    assert last.reads[-1] == widening.writes[0]
    arrays = [compacted.program.weights[name].make() for name in parts if name]
    factors = arrays[1:] if zero else [*arrays[1:], None]
    form = IntegerForm(1, 64, 32, bits, 64, *factors)
    assert np.array_equal(form.restore(arrays[0])[0], array)
    assert compacted.figures["stored_bytes"] == sum(a.nbytes for a in arrays) == form.bytes
    assert compacted.figures["widened_bytes"] == array.nbytes


def test_targets_without_kernels_of_integers_keep_floats() -> None:
    before = program({"w": matrix_of_integers(8)}, [("w",)])
    assert compact_weights(before, KERNELS).program.calls == before.calls


def test_the_smallest_of_all_forms_is_taken() -> None:
    """Half precision holds multiples of 0.5; four bits take a quarter of that, a bitmap of few values less."""
    coarse = matrix_of_integers(4) / np.float32(0.1) * np.float32(0.5)
    few = np.where(np.random.default_rng(0).random(coarse.shape) < 0.01, coarse, np.float32(0))
    after = compact_weights(program({"w": coarse, "v": few}, [("w",), ("v",)]), INTEGERS).program
    assert [call.kernel.name for call in after.calls] == ["read_4", "sparse_f16", "read"]
