"""Operators with attributes and types that exporters rarely write, against ONNX Runtime; how few nodes stand for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

MEL = {
    "n": np.array(30),
    "l": np.array(1024),
    "r": np.array(16000),
    "e": np.float32(20),
    "f": np.float32(7900),
}
NAMES = '"a", "b", "c"'
ROWS = np.array([[3, 1, 3], [2, 9, 2]], np.int64)
FILTERS = normal(4, 3, 2, 5)

CASES = {
    "one hot of floats with an integer depth": RuntimeCase(
        "y = OneHot(x, d, v)", "float[2,3] x", {"d": [4], "v": [-1, 5]}, values={"x": ROWS % 4}
    ),
    "one hot of integers with a broken depth": RuntimeCase(
        "y = OneHot(x, d, v)", "int64[2,3] x", {"d": np.float32([4]), "v": normal(2)}, values={"x": ROWS % 4}
    ),
    "clip of 10": RuntimeCase("y = Clip<min=-0.5, max=0.25>(x)", opset=10),
    "clip of 11 by a computed limit": RuntimeCase("y = Clip(x, l)", "float[2,3] x, float l", opset=11),
    "clip of 12 by computed limits": RuntimeCase(
        "y = Clip(x, l, h)", "float[2,3] x, float l, float h", opset=12
    ),
    "unpool without strides": RuntimeCase(
        "v, i = MaxPool<kernel_shape=[2,2]>(x) y = MaxUnpool<kernel_shape=[2,2]>(v, i)", "float[1,1,4,5] x"
    ),
    "transposed convolution in groups": RuntimeCase(
        "y = ConvTranspose<group=2>(x, w)", "float[1,4,3,3] x", {"w": FILTERS}
    ),
    "transposed convolution in groups of computed weights": RuntimeCase(
        "y = ConvTranspose<group=2>(x, w)", "float[1,4,3,3] x, float[4,3,2,5] w"
    ),
    "mel weights": RuntimeCase("a = MelWeightMatrix(n, l, r, e, f) y = MatMul(x, a)", "float[2,513] x", MEL),
    **{
        f"unique along axis {axis}, sorted={is_sorted}": RuntimeCase(
            f"v, i, n, c = Unique<axis={axis}, sorted={is_sorted}>(d) u = Cast<to=1>(v) y = Mul(u, x)",
            "float[1,1] x",
            {"d": np.float32([[3, 1, 3, 2], [3, 1, 3, 2], [2, 9, 2, 0]])},
            outputs="y i n c",
        )
        for axis in (0, 1, -1)
        for is_sorted in (0, 1)
    },
    "features of text": RuntimeCase(
        "c = Cast<to=7>(x) i = Reshape(c, s) f = ai.onnx.ml.ArrayFeatureExtractor(names, i) "
        f"y = ai.onnx.ml.LabelEncoder<keys_strings=[{NAMES}], values_floats=[1.5, 2.5, 4.5]>(f)",
        "float[1,3] x",
        {"names": np.array(["c", "a", "b"], object), "s": [3]},
        values={"x": np.array([[2, 0, 1]])},
    ),
    "packed attention with a bias of its scores": RuntimeCase(
        "y = com.microsoft.Attention<num_heads=2>(x, w, b, , , e)",
        "float[2,5,12] x, float[2,2,5,5] e",
        {"w": normal(12, 36), "b": normal(36)},
    ),
    **{
        f"power of {base} and {power}": RuntimeCase(
            "y = Pow(x, p)", f"{base}[2,3] x", {"p": np.array([2, 1, 3], power)}
        )
        for base in ("float", "int32")
        for power in ("f4", "i4", "i8")
    },
    "pad that cuts all": RuntimeCase("y = Pad(x, p)", "float[2,3] x", {"p": [0, -1, 0, -2]}),
    **{
        f"expand {ports} to {shape}": RuntimeCase("y = Expand(x, s)", f"float[{ports}] x", {"s": shape})
        for ports, shape in (("3", [4, 3]), ("1,2,1", [2, 5]), ("1,2,1", [5]), ("1", [2, 1, 3]))
    },
    "constant without elements": RuntimeCase(
        "c = ConstantOfShape(s) y = Concat<axis=0>(c, x)", "float[2,3] x", {"s": [0, 3]}
    ),
    "unit matrix beside the diagonal": RuntimeCase(
        "e = EyeLike<k=-1, dtype=1>(x) y = Add(e, x)", "float[3,4] x"
    ),
    "rotation of wide heads": RuntimeCase(
        "y = com.microsoft.RotaryEmbedding(x, p, c, s)",
        "float[2,5,24] x",
        {"p": np.array([1]), "c": normal(9, 4), "s": normal(9, 4, seed=2)},
    ),
    "rotation of a part of one head": RuntimeCase(
        "y = com.microsoft.RotaryEmbedding<num_heads=1, rotary_embedding_dim=4>(x, p, c, s)",
        "float[2,5,8] x",
        {"p": np.array([1]), "c": normal(9, 2), "s": normal(9, 2, seed=2)},
    ),
    "linear classifier of one score about 0": RuntimeCase(
        "l, y = ai.onnx.ml.LinearClassifier<coefficients=[1.0,0.0], intercepts=[0.0], "
        "classlabels_ints=[3,7]>(x)",
        "float[5,2] x",
        outputs="l y",
        values={"x": np.array([[-0.5, 1], [0.5, 1], [0.9, 0], [1.5, 2], [0, 3]])},
    ),
    "concat of one": RuntimeCase("y = Concat<axis=-1>(x)", "float[2,3] x"),
    "split of 18 into a smaller last part": RuntimeCase(
        "y, z, u = Split<num_outputs=3, axis=-1>(x)", "float[2,7] x", opset=18, outputs="y z u"
    ),
    "gather elements from the end": RuntimeCase(
        "y = GatherElements<axis=-1>(x, i)", "float[2,3] x", {"i": np.array([[-1, 0], [1, -3]])}
    ),
    "top k of the least along the first axis": RuntimeCase(
        "y, i = TopK<axis=0, largest=0>(x, k)", "float[5,3] x", {"k": [2]}, outputs="y i"
    ),
    "cumulated sum in reverse without its element": RuntimeCase(
        "y = CumSum<exclusive=1, reverse=1>(x, a)", "float[2,5] x", {"a": np.array(-1)}
    ),
    "transposed by default": RuntimeCase("y = Transpose(x)", "float[2,3,4] x"),
    "flatten from the end": RuntimeCase("y = Flatten<axis=-1>(x)", "float[2,3,4] x"),
    "flatten before all axes": RuntimeCase("y = Flatten<axis=0>(x)", "float[2,3,4] x"),
    "flatten behind all axes": RuntimeCase("y = Flatten<axis=3>(x)", "float[2,3,4] x"),
    "lower triangle above the diagonal": RuntimeCase(
        "y = Trilu<upper=0>(x, k)", "float[3,4] x", {"k": np.array(1)}
    ),
    "global norm of order 3": RuntimeCase("y = GlobalLpPool<p=3>(x)"),
    "norm of order 1 along the first axis": RuntimeCase(
        "y = LpNormalization<axis=0, p=1>(x)", "float[3,4] x"
    ),
    "least of one": RuntimeCase("y = Min(x)", "float[3,4] x"),
    "mean of three that broadcast": RuntimeCase(
        "y = Mean(x, b, c)", "float[3,4] x, float[4] b, float[3,1] c"
    ),
    "shrink beside its threshold": RuntimeCase("y = Shrink<lambd=0.4, bias=0.3>(x)", "float[3,4] x"),
    "shift to the right": RuntimeCase(
        'y = BitShift<direction="RIGHT">(x, s)', "uint8[2,3] x", {"s": np.array([1, 0, 3], np.uint8)}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_form_is_that_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


def test_quantized_integers(tmp_path: Path) -> None:
    """ONNX Runtime has no kernel for them."""
    x = np.array([[-5, 0, 7], [90, 300, 2]], np.int32)
    constants = {"s": np.float32(0.7), "z": np.array(3, np.uint8)}
    case = RuntimeCase("y = QuantizeLinear(x, s, z)", "int32[2,3] x", constants, values={"x": x})
    expected = np.clip(np.round(x / np.float32(0.7)) + 3, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(case.compute(tmp_path / "m.onnx")["y"], expected)


@pytest.mark.parametrize(
    ("case", "operators"),
    [
        (CASES["power of float and f4"], ["Pow"]),
        (CASES["power of int32 and i4"], ["Pow"]),
        (RuntimeCase("y = Pow(x, p)", "float[2,3] x, int64[3] p"), ["Cast", "Pow"]),
        (RuntimeCase("y = Pow(x, p)", "int32[2,3] x, float[3] p"), ["Cast", "Pow", "Cast"]),
        (RuntimeCase("y = Softmax<axis=1>(x)", "float[3,5] x", opset=11), ["Softmax"]),
        (RuntimeCase("y = Softmax<axis=2>(x)", "float[3,5] x", opset=11), ["Reshape", "Softmax", "Reshape"]),
        (
            RuntimeCase(
                "y = ConvTranspose<group=2>(x, w, b)", "float[1,4,3,3] x, float[6] b", {"w": FILTERS}
            ),
            ["Transpose", "ConvTranspose", "Transpose"],
        ),
        (
            RuntimeCase("y = MatMulInteger(x, w)", "uint8[2,4] x", {"w": np.ones((4, 3), np.int8)}),
            ["MatMulInteger"],
        ),
        (RuntimeCase("y = Cast<to=1>(x)", "float[3,5] x"), []),
        (RuntimeCase("y = Transpose<perm=[0,1]>(x)", "float[3,5] x"), []),
    ],
)
def test_no_more_nodes_stand_for_it_than_needed(
    case: RuntimeCase, operators: list[str], tmp_path: Path
) -> None:
    graph = case.load(tmp_path / "m.onnx")
    assert [node.op.name for node in graph.nodes if node.op.name != "Identity"] == operators
