"""The graph's data: element types as numpy has them, tensors, uses."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Storage, Tensor, frozen


@pytest.mark.parametrize("dtype", DType)
def test_types_are_numpys(dtype: DType) -> None:
    array = np.zeros(2, dtype.numpy)
    assert DType.of(array) is DType.of(array.dtype) is dtype
    assert dtype.size == array.itemsize
    assert dtype.is_float == (array.dtype.kind == "f")


@pytest.mark.parametrize("code", [">f4", "<f4", "=f4"])
def test_the_order_of_bytes_is_no_other_type(code: str) -> None:
    assert DType.of(np.zeros(1, code)) is DType.F32


@pytest.mark.parametrize("code", ["c8", "U1", "M8[s]", "V4", "O"])
def test_other_types_are_no_types_of_the_ir(code: str) -> None:
    with pytest.raises(LookupError):
        DType.of(np.zeros(1, code))


def test_a_tensor_counts_its_elements_and_bytes() -> None:
    assert (Tensor("x", DType.I16, (2, 3)).elements, Tensor("x", DType.I16, (2, 3)).bytes) == (6, 12)
    assert Tensor("x", DType.F64, ()).bytes == 8
    assert Tensor("x", DType.F64, (0, 5)).bytes == 0
    assert str(Tensor("x", DType.F64, (0, 5))) == "x:f64[0, 5]"


def test_an_op_sees_real_numbers() -> None:
    stored = Tensor("x", DType.I8, (2,), Quant.of(0.5, 1))
    assert stored.real == Tensor("x", DType.F32, (2,))
    assert stored.storage == Storage(DType.I8, Quant.of(0.5, 1))
    plain = Tensor("x", DType.I8, (2,))
    assert plain.real is plain
    assert plain.storage is None


def test_every_reading_counts_as_a_use() -> None:
    new = Builder("g")
    x = new.input("x", DType.F32, (2,))
    y = new.one("Add", [x, x])
    graph = new.finish([new.one("Clip", [y], {"min": 0.0}), y])
    assert graph.uses()["x"] == 2
    assert graph.uses()[y] == 2, "by a node and as an output"
    assert graph.inputs_of(graph.nodes[0]) == (graph.tensors["x"],) * 2


def test_frozen_arrays_are_native_contiguous_and_not_writable() -> None:
    given = np.arange(6, dtype=">i4").reshape(2, 3).T
    array = frozen(given)
    assert array.flags.c_contiguous
    assert array.dtype.isnative
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, given)
    assert frozen(np.float32(3)).shape == ()
    own = np.zeros(3)
    assert np.shares_memory(frozen(own), own), "no copy where none is needed"
    own[0] = 1  # the caller's array stays writable
