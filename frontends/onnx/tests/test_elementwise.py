"""Elementwise, indexing, reducing and product operators in every form, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

X = "float[2,3,4] x"


def case(body: str, ports: str = X, opset: int = 17, **constants: object) -> RuntimeCase:
    return RuntimeCase(body if "y = " in body else f"y = {body}", ports, constants, opset)


INTS = "int64[2,3] x"
ELEMENTWISE = {
    **{
        op: case(f"{op}<{attributes}>(x)", opset=20)
        for op, attributes in (
            ("Elu", "alpha=0.5"),
            ("Celu", "alpha=0.5"),
            ("Selu", "alpha=0.5, gamma=2.0"),
            ("LeakyRelu", "alpha=0.5"),
            ("ThresholdedRelu", "alpha=0.3"),
            ("HardSigmoid", "alpha=0.4, beta=0.3"),
            ("Gelu", 'approximate="tanh"'),
            ("Shrink", "bias=0.1, lambd=0.3"),
        )
    },
    "one max": case("Max(x)"),
    "one mean": case("Mean(x)"),
    "three of max": case("Max(x, v, u)", f"{X}, float[3,1] v, float[4] u"),
    "three of min": case("Min(x, v, u)", f"{X}, float[3,1] v, float[4] u"),
    "sum of four": case("Sum(x, x, v, v)", f"{X}, float[3,1] v"),
    "mean of three": case("Mean(x, v, v)", f"{X}, float[3,1] v"),
    "clip of 10": case("Clip<min=-0.2, max=0.3>(x)", opset=10),
    "clip of 10 above": case("Clip<min=-0.2>(x)", opset=10),
    "clip of 10 below": case("Clip<max=0.3>(x)", opset=10),
    "clip": case("Clip(x, l, h)", l=np.float32(-0.2), h=np.float32(0.3)),
    "clip below": case("Clip(x, , h)", h=np.float32(0.3)),
    "clip of nothing": case("Clip(x)"),
    "crossed clip": case("Clip(x, l, h)", l=np.float32(0.5), h=np.float32(0.3)),
    "clip by tensors": case("Clip(x, l, h)", f"{X}, float l, float h"),
    "clip by one tensor": case("Clip(x, l)", f"{X}, float l"),
    "clip by an upper tensor": case("Clip(x, , h)", f"{X}, float h"),
    "clip of integers": case("Clip(x, l, h)", INTS, l=np.int64(1), h=np.int64(2)),
    "cast": case("Cast<to=6>(x)"),
    "cast to the same": case("Cast<to=1>(x)"),
    "cast like": case("CastLike(x, v)", f"{X}, int32[1] v"),
    "power": case("Pow(x, p)", INTS, p=np.int64(3)),
    "power of floats": case("a = Abs(x) y = Pow(a, p)", p=np.float32(1.5)),
    "integer to a broken power": case("Pow(x, p)", INTS, p=np.float32(0.5)),
    "float to an integer": case("Pow(x, p)", p=np.int64(3)),
    "integer to another": case("Pow(x, p)", INTS, p=np.int32(2)),
    "mod": case("Mod(x, v)", "int64[6] x", v=np.array([2, -2, 3, -3, 5, 7])),
    "fmod": case("Mod<fmod=1>(x, v)", "float[4] x", v=np.float32([0.3, -0.3, 0.7, -0.7])),
    "shift left": case('BitShift<direction="LEFT">(x, v)', "uint8[4] x", v=np.uint8([0, 1, 2, 3])),
    "shift right": case('BitShift<direction="RIGHT">(x, v)', "uint8[4] x", v=np.uint8([0, 1, 2, 3])),
    "where": case("c = Greater(x, v) y = Where(c, x, v)", v=np.float32(0)),
    "less or equal": case("LessOrEqual(x, x)"),
    "greater or equal": case("GreaterOrEqual(x, v)", v=np.float32(0)),
    **{
        f"infinity {negative}{positive}": case(
            f"IsInf<detect_negative={negative}, detect_positive={positive}>(v)",
            v=np.float32([np.inf, -np.inf, 0]),
        )
        for negative, positive in ((0, 0), (0, 1), (1, 0), (1, 1))
    },
}
GATHERS = {
    "gather": case("Gather<axis=-1>(x, i)", i=[[3, 0], [-1, 1]]),
    "gather elements": case("GatherElements<axis=-2>(x, i)", i=np.arange(24).reshape(2, 3, 4) % 3),
    "gather nd": case("GatherND<batch_dims=1>(x, i)", i=[[[2], [0]], [[1], [1]]]),
    "gather nd of 11": case("GatherND(x, i)", opset=11, i=[[1, 2], [0, 0]]),
    "scatter of 9": case("Scatter<axis=1>(x, i, u)", opset=9, i=np.zeros((2, 1, 4), int), u=normal(2, 1, 4)),
    "scatter elements": case(
        "ScatterElements<axis=-1>(x, i, u)", i=np.ones((2, 3, 1), int), u=normal(2, 3, 1)
    ),
    "scatter elements adding": case(
        'ScatterElements<axis=2, reduction="add">(x, i, u)', i=np.ones((2, 3, 2), int), u=normal(2, 3, 2)
    ),
    "scatter nd": case("ScatterND(x, i, u)", i=[[1, 2], [0, 0]], u=normal(2, 4)),
    "scatter nd adding": case('ScatterND<reduction="add">(x, i, u)', i=[[1, 2], [1, 2]], u=normal(2, 4)),
    "one hot": case("OneHot<axis=0>(x, d, v)", INTS, d=[4], v=np.float32([-1, 5])),
    "compress": case("Compress<axis=1>(x, c)", c=np.array([False, True])),
    "compress flat": case("Compress(x, c)", c=np.array([False, True, False, True])),
}
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
REDUCES = {
    **{
        f"{name} of 12": case(f"a = Abs(x) y = Reduce{name}<axes=[-1,0]>(a)", opset=12) for name in REDUCTIONS
    },
    **{
        f"{name} of 18": case(f"a = Abs(x) y = Reduce{name}<keepdims=0>(a, i)", opset=18, i=[1])
        for name in REDUCTIONS
    },
    "all": case("ReduceSum(x)"),
    "none": case("ReduceSum<noop_with_empty_axes=1>(x)"),
    "all without keeping": case("ReduceMax<keepdims=0>(x)"),
    "booleans": case("c = Greater(x, v) y = ReduceMax(c, i)", opset=20, v=np.float32(0.8), i=[2]),
    "all booleans": case("c = Greater(x, v) y = ReduceMin(c, i)", opset=20, v=np.float32(-0.5), i=[1]),
    "first of the highest": case("ArgMax<axis=-1, keepdims=0>(x)", INTS, 12),
    "last of the highest": case("ArgMax<axis=1, select_last_index=1>(x)", INTS, 12),
    "lowest of 11": case("ArgMin<axis=0>(x)", opset=11),
    "running sum": case("CumSum(x, a)", a=np.array(1)),
    "running sum before": case("CumSum<exclusive=1>(x, a)", a=np.array(-1)),
    "running sum back": case("CumSum<reverse=1>(x, a)", a=np.array(0)),
    "top of 9": RuntimeCase("y, i = TopK<k=2, axis=1>(x)", X, {}, 9, outputs="y i"),
    "top of 10": RuntimeCase("y, i = TopK<axis=-1>(x, k)", X, {"k": [3]}, 10, outputs="y i"),
    "lowest": RuntimeCase("y, i = TopK<axis=1, largest=0>(x, k)", X, {"k": [2]}, outputs="y i"),
}
W, C = normal(4, 3), normal(3, seed=2)
PRODUCTS = {
    "gemm": case("Gemm(x, w, c)", "float[2,4] x", w=W, c=C),
    "gemm of row": case("Gemm(x, w, c)", "float[2,4] x", w=W, c=C.reshape(1, 3)),
    "gemm of one": case("Gemm(x, w, c)", "float[2,4] x", w=W, c=np.float32([2.5])),
    "gemm of column": case("Gemm(x, w, c)", "float[3,4] x", w=W, c=C.reshape(3, 1)),
    "gemm of matrix": case("Gemm(x, w, c)", "float[2,4] x", w=W, c=normal(2, 3)),
    "scaled": case("Gemm<alpha=0.5, beta=2.0>(x, w, c)", "float[2,4] x", w=W, c=C),
    "scaled bias": case("Gemm<beta=2.0>(x, w, c)", "float[2,4] x", w=W, c=C),
    "scaled row": case("Gemm<beta=2.0>(x, w, c)", "float[2,4] x", w=W, c=C.reshape(1, 3)),
    "scaled without bias": case("Gemm<alpha=0.5>(x, w)", "float[2,4] x", w=W),
    "bias times 0": case("Gemm<beta=0.0>(x, w, c)", "float[2,4] x", w=W, c=C),
    "computed bias": case("Gemm(x, w, c)", "float[2,4] x, float[2,3] c", w=W),
    "scaled computed bias": case("Gemm<alpha=0.5, beta=2.0>(x, w, c)", "float[2,4] x, float[3] c", w=W),
    "transposed a": case("Gemm<transA=1>(x, w, c)", "float[4,2] x", w=W, c=C),
    "transposed b": case("Gemm<transB=1>(x, w, c)", "float[2,4] x", w=W.T, c=C),
    "transposed both": case("Gemm<transA=1, transB=1>(x, v)", "float[4,2] x, float[3,4] v"),
    "matmul": case("MatMul(x, v)", "float[2,3,4] x, float[4,2] v"),
    "determinant": case("Det(x)", "float[2,3,3] x"),
}


@pytest.mark.parametrize("name", [*ELEMENTWISE, *GATHERS, *REDUCES, *PRODUCTS])
def test_operator_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    (ELEMENTWISE | GATHERS | REDUCES | PRODUCTS)[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("gemm", ["MatMul"]),
        ("gemm of row", ["MatMul"]),
        ("scaled bias", ["MatMul"]),
        ("scaled row", ["MatMul"]),
        ("bias times 0", ["MatMul"]),
        ("gemm of matrix", ["MatMul", "Add"]),
        ("scaled", ["MatMul", "Mul", "Add"]),
        ("scaled without bias", ["MatMul", "Mul"]),
        ("cast to the same", []),
        ("one max", []),
        ("clip of nothing", ["Clip"]),
        ("clip by one tensor", ["Maximum"]),
        ("clip of integers", ["Maximum", "Minimum"]),
    ],
)
def test_which_ops_an_operator_becomes(name: str, ops: list[str], tmp_path: Path) -> None:
    graph = (ELEMENTWISE | PRODUCTS)[name].load(tmp_path / "m.onnx")
    assert [node.op.name for node in graph.nodes if node.op.name != "Identity"] == ops


CACHE = normal(2, 5, 3, seed=8)
UPDATE = normal(2, 2, 3, seed=9)


@pytest.mark.parametrize(
    ("attributes", "starts", "places"),
    [
        ("axis=1", None, ((0, 1), (0, 1))),
        ("axis=-2", [3, 1], ((3, 4), (1, 2))),
        ('axis=1, mode="circular"', [4, 1], ((4, 0), (1, 2))),
    ],
)
def test_cache_gets_its_update(
    attributes: str, starts: list[int] | None, places: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    inputs = "x, u" if starts is None else "x, u, i"
    constants = {"u": UPDATE} | ({} if starts is None else {"i": starts})
    body = f"y = TensorScatter<{attributes}>({inputs})"
    y = RuntimeCase(body, "float[2,5,3] x", constants, 24, values={"x": CACHE}).compute(tmp_path / "m.onnx")[
        "y"
    ]
    expected = CACHE.copy()
    for batch, rows in enumerate(places):
        expected[batch, list(rows)] = UPDATE[batch]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("axis", "fits"), [(1, True), (-2, True), (0, False), (-3, False)])
def test_cache_has_another_axis_than_that_of_the_batch(axis: int, fits: bool, tmp_path: Path) -> None:
    made = RuntimeCase(f"y = TensorScatter<axis={axis}>(x, u)", "float[2,5,3] x", {"u": UPDATE}, 24)
    if fits:
        made.load(tmp_path / "m.onnx")
        return
    with pytest.raises(MaceError, match="its axis is that of the batch"):
        made.load(tmp_path / "m.onnx")


def test_bits_of_a_constant(tmp_path: Path) -> None:
    made = RuntimeCase("a = BitCast<to=6>(v) y = Add(x, a)", "int32[3] x", {"v": normal(3)}, 26)
    made = RuntimeCase(made.body, made.ports, made.constants, 26, values={"x": np.zeros(3)})
    np.testing.assert_array_equal(made.compute(tmp_path / "m.onnx")["y"], normal(3).view(np.int32))
