"""Quantized pools of ONNX Runtime (com.microsoft), whose windows differ from those of ONNX's pools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from quantized_cases import check_compiled, check_steps
from runtime_cases import RuntimeCase

from mace_core.errors import MaceError
from mace_core.run.reference import execute

STORED = {"s": np.float32(0.0513), "u": np.float32(0.0207)}
AVERAGES = {
    "plain": "kernel_shape=[2,2]",
    "strides": "kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]",
    "counted_pads": "kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1",
    "ceil": "kernel_shape=[2,3], strides=[2,2], pads=[0,1,1,0], ceil_mode=1",
    # Divided by 9 where the window reaches beyond the padding; ONNX's AveragePool divides by fewer.
    "counted_ceil": "kernel_shape=[3,3], strides=[2,3], pads=[1,0,1,1], ceil_mode=1, count_include_pad=1",
    "upper": 'kernel_shape=[3,2], auto_pad="SAME_UPPER", strides=[2,1], count_include_pad=1',
    # Columns 0, 2 ... and rows 0, 3: none lies before the image.
    "gaps": 'kernel_shape=[1,2], auto_pad="SAME_LOWER", strides=[3,2]',
    "lower": 'kernel_shape=[2,3], auto_pad="SAME_LOWER", ceil_mode=1',
    # One more row than ONNX's AveragePool has with these attributes.
    "valid_ceil": 'kernel_shape=[3,3], auto_pad="VALID", strides=[2,2], ceil_mode=1',
}


def average(attributes: str, dtype: str, channels_last: bool) -> RuntimeCase:
    constants = STORED | {"p": np.dtype(dtype).type(20), "r": np.dtype(dtype).type(30)}
    shape = (2, 6, 7, 3) if channels_last else (2, 3, 6, 7)
    body = f"QLinearAveragePool<{attributes}, channels_last={int(channels_last)}>(x, s, p, u, r)"
    x = np.random.default_rng(1).integers(-60 if dtype == "int8" else 0, 120, shape)
    ports = f"{dtype}[{','.join(map(str, shape))}] x"
    return RuntimeCase(f"y = com.microsoft.{body}", ports, constants, values={"x": x})


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", AVERAGES)
def test_average_of_windows(name: str, dtype: str, channels_last: bool, tmp_path: Path) -> None:
    case = average(AVERAGES[name], dtype, channels_last)
    ops = check_steps(case, tmp_path / "m.onnx", case.values)
    assert ops.count("AveragePool") == 1
    assert ("Transpose" in ops) != channels_last


@pytest.mark.parametrize(("shape", "kernel"), [("2,3,9", "[3]"), ("2,3,4,5,6", "[2,3,2]")])
def test_average_along_one_axis_and_three(shape: str, kernel: str, tmp_path: Path) -> None:
    constants = STORED | {"p": np.uint8(20), "r": np.uint8(30)}
    body = f"y = com.microsoft.QLinearAveragePool<kernel_shape={kernel}>(x, s, p, u, r)"
    case = RuntimeCase(body, f"uint8[{shape}] x", constants)
    x = np.random.default_rng(1).integers(0, 120, tuple(map(int, shape.split(","))))
    check_steps(case, tmp_path / "m.onnx", {"x": x})


@pytest.mark.slow
def test_libraries_average_as_onnx_runtime_does(tmp_path: Path) -> None:
    cases = {
        f"{name}_{dtype}_{int(is_last)}": average(attributes, dtype, is_last)
        for name, attributes in AVERAGES.items()
        for dtype, is_last in (("uint8", False), ("int8", True))
    }
    check_compiled(cases, tmp_path)


@pytest.mark.parametrize("operator", ["AveragePool<kernel_shape=[2,2]>", "Add"])
def test_result_without_a_zero_point_has_the_type_of_its_operand(operator: str, tmp_path: Path) -> None:
    constants = STORED | {"p": np.int8(20)}
    operands = "x, s, p, x, s, p, u" if operator == "Add" else "x, s, p, u"
    case = RuntimeCase(f"y = com.microsoft.QLinear{operator}({operands})", "int8[1,3,4,5] x", constants)
    x = np.random.default_rng(1).integers(-20, 60, (1, 3, 4, 5))
    check_steps(case, tmp_path / "m.onnx", {"x": x})


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            'AveragePool<kernel_shape=[1,2], strides=[3,2], auto_pad="SAME_UPPER">',
            r"strides \[3, 2\] leave gaps with auto_pad=SAME_UPPER; export the model with pads",
        ),
        (
            'AveragePool<kernel_shape=[1,1], strides=[6,1], auto_pad="SAME_LOWER">',
            r"strides \[6, 1\] leave gaps with auto_pad=SAME_LOWER; export the model with pads",
        ),
        # ONNX Runtime describes it, and has no kernel for it.
        (
            "ReduceMean<axes=[2], keepdims=1>",
            "operator com.microsoft::QLinearReduceMean is not supported; cut",
        ),
    ],
)
def test_pool_that_is_refused(operator: str, message: str, tmp_path: Path) -> None:
    constants = STORED | {"p": np.uint8(20), "r": np.uint8(30)}
    body = f"y = com.microsoft.QLinear{operator}(x, s, p, u, r)"
    with pytest.raises(MaceError, match=message):
        RuntimeCase(body, "uint8[1,3,6,7] x", constants).load(tmp_path / "m.onnx")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_tie_goes_where_quantize_linear_rounds_it(dtype: type, tmp_path: Path) -> None:
    """ONNX Runtime's optimizer lets it go the other way with an odd zero point: both are results of one file."""
    constants = {"s": np.float32(0.5), "z": dtype(31)}
    x = np.random.default_rng(1).integers(0, 100, (1, 2, 8, 8)).astype(dtype)
    ports = f"{np.dtype(dtype).name}[1,2,8,8] x"
    attributes = "kernel_shape=[2,2], strides=[2,2]"
    body = f"a = DequantizeLinear(x, s, z) b = AveragePool<{attributes}>(a) y = QuantizeLinear(b, s, z)"
    file = RuntimeCase(body, ports, constants, values={"x": x})
    single = RuntimeCase(
        f"y = com.microsoft.QLinearAveragePool<{attributes}>(x, s, z, s, z)", ports, constants
    )
    means = x.reshape(1, 2, 4, 2, 4, 2).astype(np.float64).mean((3, 5))
    assert (means % 1 == 0.5).mean() > 0.1
    for case in (file, single):
        graph = case.load(tmp_path / "m.onnx")
        np.testing.assert_array_equal(execute(graph, {"x": x})["y"], np.rint(means - 31) + 31)
    file.write(tmp_path / "m.onnx")
    levels = onnxruntime.GraphOptimizationLevel
    for level, expected in (
        (levels.ORT_DISABLE_ALL, np.rint(means - 31) + 31),
        (levels.ORT_ENABLE_ALL, np.rint(means)),
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
