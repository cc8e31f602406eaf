"""The quantized operators of ONNX Runtime (com.microsoft): which op of the IR computes them, with which attributes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from quantized_cases import check_steps
from runtime_cases import RuntimeCase, normal

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

SHAPE = (2, 3, 4, 5)
SCALES = {"s": 0.0513, "t": 0.0971, "u": 0.0207}
"""Not multiples of each other, so that few results lie at a half."""
ZEROS = {"p": 120, "q": 100, "r": 130}
CONSTANTS = {name: np.float32(scale) for name, scale in SCALES.items()} | {
    name: np.uint8(zero) for name, zero in ZEROS.items()
}


def load(path: Path, body: str) -> Graph:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"g (uint8[2,3,4,5] x, uint8[2,3,4,5] v) => (uint8[a,b,c,d] y) {{ y = com.microsoft.{body} }}"
    )
    model = onnx.parser.parse_model(text)
    for name, value in CONSTANTS.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    path.write_bytes(model.SerializeToString())
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("body", "compute"),
    [
        ("QLinearAdd(x, s, p, v, t, q, u, r)", lambda a, b: a + b),
        ("QLinearMul(x, s, p, v, t, q, u, r)", lambda a, b: a * b),
        ("QLinearSigmoid(x, s, p, u, r)", lambda a, b: sigmoid(a)),
        ("QLinearLeakyRelu<alpha=0.3>(x, s, p, u, r)", lambda a, b: np.where(a > 0, a, 0.3 * a)),
        ("QLinearLeakyRelu(x, s, p, u, r)", lambda a, b: np.where(a > 0, a, 0.01 * a)),
        ("QLinearSoftmax<opset=13>(x, s, p, u, r)", lambda a, b: softmax(a)),
        ("QLinearGlobalAveragePool(x, s, p, u, r)", lambda a, b: a.mean((2, 3), keepdims=True)),
        (
            "QLinearGlobalAveragePool<channels_last=1>(x, s, p, u, r)",
            lambda a, b: a.mean((1, 2), keepdims=True),
        ),
        ("QLinearConcat<axis=1>(u, r, x, s, p, v, t, q)", lambda a, b: np.concatenate((a, b), 1)),
    ],
)
def test_quantized_operator_against_its_formula(body: str, compute: object, tmp_path: Path) -> None:
    assert callable(compute)
    rng = np.random.default_rng(0)
    x, v = (rng.integers(90, 140, SHAPE).astype(np.uint8) for _ in range(2))
    y = execute(load(tmp_path / "m.onnx", body), {"x": x, "v": v})["y"]
    real = compute((x.astype(np.float64) - 120) * 0.0513, (v.astype(np.float64) - 100) * 0.0971)
    expected = np.clip(np.round(real / 0.0207) + 130, 0, 255)
    assert y.shape == expected.shape
    # A quotient near a half may round either way in single precision.
    assert np.abs(y.astype(int) - expected).max() <= 1
    assert (y == expected).mean() > 0.9


STORED = {"s": np.float32(0.05), "z": np.uint8(120), "t": np.float32(0.02), "q": np.uint8(130)}
WEIGHTS = (normal(4, 3, 2, 2, seed=3) * 40).astype(np.int8)
BY_CHANNEL = {
    "u": np.abs(normal(4, seed=4)) * np.float32(0.01) + np.float32(0.001),
    "r": np.zeros(4, np.int8),
}
BIAS = np.arange(4, dtype=np.int32) * 300
IMAGE = "uint8[1,3,5,4] x"


@pytest.mark.parametrize(
    "attributes", ["axis=1, opset=12", "axis=-2, opset=1", "axis=2, opset=11", "opset=12"]
)
def test_softmax_of_an_older_operator_set_normalizes_all_axes_from_one_on(
    attributes: str, tmp_path: Path
) -> None:
    case = RuntimeCase(f"y = com.microsoft.QLinearSoftmax<{attributes}>(x, s, z, t, q)", IMAGE, STORED)
    x = np.random.default_rng(1).integers(110, 130, (1, 3, 5, 4))
    check_steps(case, tmp_path / "m.onnx", {"x": x})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shapes", [("1,3,5,4", "1,3,5,4", "1,3,5,4"), ("4", "3,5,4", "1,3,1,1")])
def test_choice_between_two_scales(shapes: tuple[str, str, str], dtype: type, tmp_path: Path) -> None:
    scales = {"s": np.float32(0.0513), "t": np.float32(0.0971), "u": np.float32(0.0207)}
    zeros = {"p": dtype(20), "q": dtype(0), "r": dtype(30)}
    kind = np.dtype(dtype).name
    ports = f"bool[{shapes[0]}] c, {kind}[{shapes[1]}] x, {kind}[{shapes[2]}] v"
    case = RuntimeCase("y = com.microsoft.QLinearWhere(c, x, s, p, v, t, q, u, r)", ports, scales | zeros)
    rng = np.random.default_rng(1)
    sizes = [tuple(map(int, shape.split(","))) for shape in shapes]
    values = {"c": rng.integers(0, 2, sizes[0])}
    values |= {name: rng.integers(0, 60, size) for name, size in zip("xv", sizes[1:], strict=True)}
    ops = check_steps(case, tmp_path / "m.onnx", values)
    assert ops.count("Where") == 1


WHERE_PORTS = "bool[3,4] c, uint8[3,4] x, uint8[3,4] v"
WHERE_SCALES = STORED | {"u": np.float32(0.03), "r": np.uint8(3)}
COMPUTED = "its scale or zero point (input {}) is computed at run time; export the model with constants"


@pytest.mark.parametrize("inputs", ["x, s, z, v, t, q, u", "x, s, , v, t, q, u, r", "x, s, z, v, t, , u, r"])
def test_choice_without_a_zero_point_is_refused_as_by_onnx_runtime(inputs: str, tmp_path: Path) -> None:
    used = {name: value for name, value in WHERE_SCALES.items() if name in inputs}
    case = RuntimeCase(f"y = com.microsoft.QLinearWhere(c, {inputs})", WHERE_PORTS, used)
    index = f"c, {inputs}, ".split(", ").index("")
    problem = (
        rf"node 'QLinearWhere_0' \(QLinearWhere\): its input \[{index}\] is absent; export the model again"
    )
    with pytest.raises(MaceError, match=problem):
        case.load(tmp_path / "m.onnx")
    with pytest.raises(MaceError, match="ONNX Runtime refuses it"):
        Onnx().reference((tmp_path / "m.onnx",), Model("m", (tmp_path / "m.onnx",)))


@pytest.mark.parametrize(("name", "index"), [("s", 2), ("z", 3), ("t", 5), ("q", 6), ("u", 7), ("r", 8)])
def test_choice_with_a_scale_or_zero_point_of_run_time_is_refused(
    name: str, index: int, tmp_path: Path
) -> None:
    constants = {key: value for key, value in WHERE_SCALES.items() if key != name}
    ports = f"{WHERE_PORTS}, {'float' if name in 'stu' else 'uint8'} {name}"
    case = RuntimeCase("y = com.microsoft.QLinearWhere(c, x, s, z, v, t, q, u, r)", ports, constants)
    with pytest.raises(MaceError, match=re.escape(COMPUTED.format(index))):
        case.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf])
def test_scale_that_is_no_positive_number_is_refused(scale: float, tmp_path: Path) -> None:
    constants = WHERE_SCALES | {"t": np.float32(scale)}
    case = RuntimeCase("y = com.microsoft.QLinearWhere(c, x, s, z, v, t, q, u, r)", WHERE_PORTS, constants)
    with pytest.raises(
        MaceError, match="one of its scales is not a single positive number; quantize the model"
    ):
        case.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("computed", ["", "s", "u", "s t u"])
def test_sum_whose_result_has_no_zero_point(computed: str, dtype: type, tmp_path: Path) -> None:
    kind, names = np.dtype(dtype).name, computed.split()
    constants = {"s": np.float32(0.05), "z": dtype(20), "t": np.float32(0.02), "u": np.float32(0.06)}
    stored = {name: value for name, value in constants.items() if name not in names}
    ports = ", ".join([f"{kind}[2,6] x", f"{kind}[2,6] v", *(f"float {name}" for name in names)])
    case = RuntimeCase("y = com.microsoft.QLinearAdd(x, s, z, v, t, z, u)", ports, stored)
    numbers = np.random.default_rng(1).integers(0, 127, (2, 2, 6))
    values = {"x": numbers[0], "v": numbers[1]} | {name: np.asarray(constants[name]) for name in names}
    check_steps(case, tmp_path / "m.onnx", values)


@pytest.mark.parametrize("computed", ["", "s", "t", "s t u"])
def test_sum_with_scales_computed_at_run_time(computed: str, tmp_path: Path) -> None:
    """Real numbers are added then; the zero points stay as they are."""
    constants = STORED | {"u": np.float32(0.06)}
    names = computed.split()
    ports = ", ".join(["uint8[2,6] x", "uint8[2,6] v", *(f"float {name}" for name in names)])
    stored = {name: value for name, value in constants.items() if name not in names}
    case = RuntimeCase("y = com.microsoft.QLinearAdd(x, s, z, v, t, q, u, z)", ports, stored)
    numbers = np.random.default_rng(1).integers(0, 255, (2, 2, 6))
    values = {"x": numbers[0], "v": numbers[1]} | {name: np.asarray(constants[name]) for name in names}
    ops = check_steps(case, tmp_path / "m.onnx", values)
    assert (ops == ["Add"] or "Dequantize" in ops or "Quantize" in ops) == (not names)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("attributes", ["", "<pads=[1,0,0,1], strides=[2,1]>", "<kernel_shape=[2,2]>"])
def test_convolution_with_a_scale_for_each_channel_stays_one(
    attributes: str, has_bias: bool, tmp_path: Path
) -> None:
    constants = STORED | BY_CHANNEL | {"w": WEIGHTS, "b": BIAS}
    inputs = "x, s, z, w, u, r, t, q" + (", b" if has_bias else "")
    used = {name: value for name, value in constants.items() if f" {name}" in f" {inputs}"}
    case = RuntimeCase(f"y = QLinearConv{attributes}({inputs})", IMAGE, used)
    x = np.random.default_rng(1).integers(0, 255, (1, 3, 5, 4))
    ops = check_steps(case, tmp_path / "m.onnx", {"x": x})
    assert ops.count("Conv") == 1
    assert "Round" not in ops, "computed in real numbers"


@pytest.mark.parametrize("is_constant", [True, False])
def test_product_with_a_scale_for_each_column_stays_one(is_constant: bool, tmp_path: Path) -> None:
    weights = (normal(6, 4, seed=3) * 40).astype(np.int8)
    constants = STORED | BY_CHANNEL | ({"w": weights} if is_constant else {})
    ports = "uint8[3,6] x" if is_constant else "uint8[3,6] x, int8[6,4] w"
    case = RuntimeCase("y = QLinearMatMul(x, s, z, w, u, r, t, q)", ports, constants)
    x = np.random.default_rng(1).integers(0, 255, (3, 6))
    assert "Round" not in check_steps(case, tmp_path / "m.onnx", {"x": x, "w": weights})


GEMM = STORED | BY_CHANNEL | {"w": (normal(6, 4, seed=3) * 40).astype(np.int8), "b": BIAS, "n": np.int8(-3)}
GEMM_PORTS = "uint8[3,6] x"


@pytest.mark.parametrize(
    "attributes", ["transA=0", "transB=1", "transA=1", "alpha=0.4", "transA=1, transB=1, alpha=1.5"]
)
@pytest.mark.parametrize("inputs", ["w, u, r, b, t, q", "w, u, r, , t, q", "w, t, n, b, t, q", "w, u, r, b"])
def test_gemm_with_a_scale_for_each_column_stays_one_product(
    attributes: str, inputs: str, tmp_path: Path
) -> None:
    """Without a scale of the result, that is floats."""
    constants = dict(GEMM)
    if "transB=1" in attributes:
        constants["w"] = GEMM["w"].T.copy()
    names = [name.strip() for name in f"s, z, {inputs}".split(",")]
    used = {name: constants[name] for name in names if name}
    ports = "uint8[6,3] x" if "transA=1" in attributes else GEMM_PORTS
    case = RuntimeCase(f"y = com.microsoft.QGemm<{attributes}>(x, s, z, {inputs})", ports, used)
    x = np.random.default_rng(1).integers(0, 255, (6, 3) if "transA=1" in attributes else (3, 6))
    path = tmp_path / "m.onnx"
    if names[-1] == "b":
        graph = RuntimeCase(case.body, ports, used, values={"x": x}).check(path, rtol=1e-4, atol=1e-4)
        ops = [node.op.name for node in graph.nodes]
    else:
        ops = check_steps(case, path, {"x": x})
    assert ops.count("MatMul") == 1


@pytest.mark.parametrize("attributes", ["transB=0", "transB=1"])
def test_gemm_of_two_operands_that_are_computed(attributes: str, tmp_path: Path) -> None:
    shape = (4, 6) if attributes == "transB=1" else (6, 4)
    ports = f"{GEMM_PORTS}, int8[{shape[0]},{shape[1]}] w"
    constants = {name: GEMM[name] for name in "szurbtq"}
    case = RuntimeCase(f"y = com.microsoft.QGemm<{attributes}>(x, s, z, w, u, r, b, t, q)", ports, constants)
    rng = np.random.default_rng(1)
    check_steps(
        case, tmp_path / "m.onnx", {"x": rng.integers(0, 255, (3, 6)), "w": rng.integers(-40, 40, shape)}
    )


@pytest.mark.parametrize(
    ("attributes", "ports", "changes", "message"),
    [
        ("alpha=-1.0", "", {}, "alpha is -1.0; export the model with a positive one"),
        ("alpha=0.0", "", {}, "alpha is 0.0; export"),
        (
            "transB=0",
            "",
            {"b": np.ones((3, 4), np.int32)},
            "its C is no constant with one number for each column",
        ),
        ("transB=0", ", float s", {"s": None}, r"its scale or zero point \(input 1\) is computed"),
        ("transB=0", ", int32[4] b", {"b": None}, "its C is no constant"),
    ],
)
def test_gemm_that_is_refused(
    attributes: str, ports: str, changes: dict[str, np.ndarray | None], message: str, tmp_path: Path
) -> None:
    values = {name: GEMM[name] for name in "szwurbtq"} | changes
    constants = {name: value for name, value in values.items() if value is not None}
    body = f"y = com.microsoft.QGemm<{attributes}>(x, s, z, w, u, r, b, t, q)"
    with pytest.raises(MaceError, match=message):
        RuntimeCase(body, GEMM_PORTS + ports, constants).load(tmp_path / "m.onnx")
