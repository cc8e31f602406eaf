"""Products and convolutions of integers with zero points and scales of every form, against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

SIZE = 4
"""Rows, columns and inner axis alike, so that a zero point along the wrong axis does not fail by its shape."""


def integers(shape: Shape, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)


def save(op: str, arrays: dict[str, Array], constants: tuple[str, ...], path: Path, opset: int = 13) -> None:
    """Write a model of one node; arrays: its inputs in order, "" in front of the name of an absent one."""
    names = [name if array.size else "" for name, array in arrays.items()]
    present = {name: array for name, array in arrays.items() if array.size}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in present.items()}
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"])],
        "g",
        [
            helper.make_tensor_value_info(name, kinds[name], array.shape)
            for name, array in present.items()
            if name not in constants
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(present[name], name) for name in constants if name in present],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def load(path: Path) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def compute(op: str, arrays: dict[str, Array], constants: tuple[str, ...], path: Path) -> Array:
    save(op, arrays, constants, path)
    inputs = {name: array for name, array in arrays.items() if array.size and name not in constants}
    return execute(load(path), inputs)["y"]


ABSENT = np.zeros(0, np.uint8)
FORMS: tuple[tuple[Shape | None, Shape | None], ...] = (
    (None, None),
    ((), ()),
    ((1,), None),
    (None, (SIZE,)),
    (None, (1, SIZE)),
    ((SIZE,), None),
    ((SIZE, 1), (SIZE,)),
)
"""Shapes of the zero points of A, one for all or for each row, and of B, one for all or for each column."""


@pytest.mark.parametrize("constants", [(), ("b", "bz"), ("b", "az", "bz")])
@pytest.mark.parametrize("forms", FORMS)
def test_matmul_integer_with_zero_points_by_row_and_column(
    forms: tuple[Shape | None, Shape | None], constants: tuple[str, ...], tmp_path: Path
) -> None:
    a_form, b_form = forms
    arrays = {
        "a": integers((SIZE, SIZE), 0),
        "b": integers((SIZE, SIZE), 1),
        "az": ABSENT if a_form is None else integers(a_form, 2),
        "bz": ABSENT if b_form is None else integers(b_form, 3),
    }
    a, b = arrays["a"].astype(np.int64), arrays["b"].astype(np.int64)
    if a_form is not None:
        a -= arrays["az"].astype(np.int64).reshape(-1, 1)
    if b_form is not None:
        b -= arrays["bz"].astype(np.int64).reshape(1, -1)
    result = compute("MatMulInteger", arrays, constants, tmp_path / "m.onnx")
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, a @ b)
    # The op of the IR has exact sums in 32 bits, and kernels of their own; only several zero points need floats.
    is_single = all(form is None or form in ((), (1,)) for form in forms)
    ops = [node.op.name for node in load(tmp_path / "m.onnx").nodes]
    assert ("MatMulInteger" in ops, "MatMul" in ops) == (is_single, not is_single)


def quantized(seed: int, form: Shape, scale: float) -> tuple[Array, Array, Array]:
    """Return integers of a matrix, and a scale and zero point of this shape."""
    rng = np.random.default_rng(seed)
    scales = (scale * rng.uniform(0.5, 1.5, form)).astype(np.float32)
    return integers((SIZE, SIZE), seed), scales, rng.integers(100, 150, form).astype(np.uint8)


@pytest.mark.parametrize("has_runtime_scale", [False, True])
@pytest.mark.parametrize("forms", [((), ()), ((), (SIZE,)), ((SIZE,), ()), ((SIZE,), (SIZE,))])
def test_qlinear_matmul_with_scales_by_row_and_column(
    forms: tuple[Shape, Shape], has_runtime_scale: bool, tmp_path: Path
) -> None:
    (a, a_scale, a_zero), (b, b_scale, b_zero) = (
        quantized(seed, form, 0.02) for seed, form in enumerate(forms)
    )
    y_scale, y_zero = np.float32(0.07), np.uint8(120)
    names = ("a", "as", "az", "b", "bs", "bz", "ys", "yz")
    values = (a, a_scale, a_zero, b, b_scale, b_zero, np.asarray(y_scale), np.asarray(y_zero))
    arrays = dict(zip(names, values, strict=True))
    constants = ("b", "bz") if has_runtime_scale else ("as", "az", "b", "bs", "bz", "ys", "yz")
    result = compute("QLinearMatMul", arrays, constants, tmp_path / "m.onnx")
    real_a = (a.astype(np.float64) - a_zero.reshape(-1, 1)) * a_scale.reshape(-1, 1)
    real_b = (b.astype(np.float64) - b_zero.reshape(1, -1)) * b_scale.reshape(1, -1)
    expected = np.clip(np.round(real_a @ real_b / y_scale) + y_zero, 0, 255)
    # A product near a half may round either way, because the sums are scaled in single precision.
    assert np.abs(result.astype(int) - expected).max() <= 1
    assert (result == expected).mean() > 0.9


@pytest.mark.parametrize("halves", [("as", "bs", "ys"), ("as",), ("bs",), ("ys",)])
def test_qlinear_matmul_with_scales_of_half_precision(halves: tuple[str, ...], tmp_path: Path) -> None:
    """From operator set 21 on; as inputs, so that nothing converts them when the model is read."""
    (a, a_scale, a_zero), (b, b_scale, b_zero) = (quantized(seed, (), 0.02) for seed in range(2))
    scales = {"as": a_scale, "bs": b_scale, "ys": np.asarray(np.float32(0.07))}
    scales = {
        name: scale.astype(np.float16 if name in halves else np.float32) for name, scale in scales.items()
    }
    y_zero = np.asarray(np.uint8(120))
    first, second = {"a": a, "as": scales["as"], "az": a_zero}, {"b": b, "bs": scales["bs"], "bz": b_zero}
    arrays = {**first, **second, "ys": scales["ys"], "yz": y_zero}
    save("QLinearMatMul", arrays, ("az", "bz", "yz"), tmp_path / "m.onnx", opset=21)
    inputs = {name: array for name, array in arrays.items() if name not in ("az", "bz", "yz")}
    result = execute(load(tmp_path / "m.onnx"), inputs)["y"]
    factor = np.prod([scales[name].astype(np.float64) for name in ("as", "bs")]) / scales["ys"].astype(
        np.float64
    )
    sums = (a.astype(np.float64) - a_zero) @ (b.astype(np.float64) - b_zero)
    expected = np.clip(np.round(sums * factor) + y_zero, 0, 255)
    assert np.abs(result.astype(int) - expected).max() <= 1
    assert (result == expected).mean() > 0.9


def test_several_scales_of_a_product_are_refused(tmp_path: Path) -> None:
    a, scale, zero = quantized(0, (), 0.02)
    y_scale, y_zero = np.full(SIZE, 0.07, np.float32), np.full(SIZE, 120, np.uint8)
    names = ("a", "as", "az", "b", "bs", "bz", "ys", "yz")
    arrays = dict(zip(names, (a, scale, zero, a, scale, zero, y_scale, y_zero), strict=True))
    save("QLinearMatMul", arrays, ("as", "az", "bs", "bz", "ys", "yz"), tmp_path / "m.onnx")
    with pytest.raises(MaceError, match="several scales of its result; export the model with one"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("form", [None, (), (3,)])
def test_conv_integer_with_zero_points_by_output_channel(form: Shape | None, tmp_path: Path) -> None:
    x, w = integers((1, 2, 5, 5), 0), integers((3, 2, 3, 3), 1)
    wz = ABSENT if form is None else integers(form, 2)
    arrays = {"x": x, "w": w, "xz": np.asarray(np.uint8(7)), "wz": wz}
    result = compute("ConvInteger", arrays, ("w", "wz"), tmp_path / "m.onnx")
    weights = w.astype(np.int64) - (0 if form is None else wz.astype(np.int64).reshape(-1, 1, 1, 1))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 7, (3, 3), (2, 3))
    np.testing.assert_array_equal(result, np.einsum("nchwij,ocij->nohw", windows, weights))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("form", [(), (3,)])
@pytest.mark.parametrize("computed", ["", "b", "xs ys ws xz yz"])
def test_qlinear_conv_with_scales_by_output_channel(
    form: Shape, has_bias: bool, computed: str, tmp_path: Path
) -> None:
    """computed: the inputs besides x that are computed at run time."""
    rng = np.random.default_rng(5)
    x, w = integers((1, 2, 5, 5), 0), integers((3, 2, 3, 3), 1)
    w_scale = (0.02 * rng.uniform(0.5, 1.5, form)).astype(np.float32)
    w_zero = rng.integers(100, 150, form).astype(np.uint8)
    bias = rng.integers(-5000, 5000, 3).astype(np.int32) if has_bias else ABSENT
    names = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b")
    scales = np.asarray(np.float32(0.02)), np.asarray(np.float32(0.09))
    zeros = np.asarray(np.uint8(120)), np.asarray(np.uint8(130))
    values = (x, scales[0], zeros[0], w, w_scale, w_zero, scales[1], zeros[1], bias)
    arrays = dict(zip(names, values, strict=True))
    constants = tuple(name for name in names[1:] if name not in computed.split())
    result = compute("QLinearConv", arrays, constants, tmp_path / "m.onnx")
    weights = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 120, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, weights)
    if has_bias:
        sums += bias.reshape(-1, 1, 1)
    real = sums * (0.02 * w_scale.astype(np.float64)).reshape(-1, 1, 1) / 0.09
    expected = np.clip(np.round(real) + 130, 0, 255)
    # As in the product: a sum near a half may round either way.
    assert np.abs(result.astype(int) - expected).max() <= 1
    assert (result == expected).mean() > 0.9


@pytest.mark.parametrize(("scale", "op"), [(0.5, "Quantize"), (0.0, "Div"), (-0.5, "Div"), (np.inf, "Div")])
def test_scale_that_the_ir_has_not_is_computed_in_real_numbers(scale: float, op: str, tmp_path: Path) -> None:
    x = np.linspace(-3, 3, 6, dtype=np.float32)
    arrays = {"x": x, "s": np.asarray(np.float32(scale)), "z": np.asarray(np.uint8(9))}
    save("QuantizeLinear", arrays, ("s", "z"), tmp_path / "m.onnx")
    assert next(node.op.name for node in load(tmp_path / "m.onnx").nodes) == op
