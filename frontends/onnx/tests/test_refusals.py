"""What the handlers of operators refuse, each with its message: a table that a new refusal is added to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusal_cases import Refusal, weights

SHAPES = (
    Refusal("y = Reshape(x, s)", "shape [-1, -1]", constants={"s": [-1, -1]}),
    Refusal("y = Reshape(x, s)", "shape [-2, 72]", constants={"s": [-2, 72]}),
    Refusal("y = Reshape(x, s)", "copies axes that [1, 4, 6, 6] has not", constants={"s": [0, 0, 0, 0, 0]}),
    Refusal("y = Reshape(x, s)", "[1, 4, 6, 6] does not fill shape [7, -1]", constants={"s": [7, -1]}),
    Refusal("y = Flatten<axis=5>(x)", "axis 5 of a tensor of rank 4"),
    Refusal("y = Flatten<axis=-5>(x)", "axis -5 of a tensor of rank 4"),
    Refusal("y = Squeeze(x, a)", "axes [1] of [1, 4, 6, 6] are not all 1 long", constants={"a": [1]}),
    Refusal("y = Squeeze(x, a)", "axis 4 of a tensor of rank 4", constants={"a": [4]}),
    Refusal("y = Unsqueeze(x, a)", "axis 6 of a tensor of rank 5", constants={"a": [6]}),
    Refusal("y = Transpose<perm=[0,1,1,2]>(x)", "perm [0, 1, 1, 2] of a tensor of rank 4"),
    Refusal(
        "y = Slice(x, s, e, a, t)",
        "one of its steps is 0",
        constants={"s": [0], "e": [1], "a": [1], "t": [0]},
    ),
    Refusal("y = Pad(x, p)", "2 pads for 4 axes", constants={"p": [1, 1]}),
    Refusal('y = Pad<mode="odd">(x, p)', "mode 'odd'", constants={"p": [0] * 8}),
    Refusal("y = Pad(x, p)", "pads cut more than there is", constants={"p": [-1, 0, 0, 0, -1, 0, 0, 0]}),
    Refusal("y = SpaceToDepth<blocksize=4>(x)", "4", ports="float[1,4,6,6] x"),
    Refusal(
        'y = SpaceToDepth<blocksize=4, mode="CRD">(x)', "blocks of 4 do not divide [1, 4, 6, 6]", opset=28
    ),
    Refusal(
        "y = Tile(x, r)", "its repeats (input 1) is computed at run time", ports="float[2] x, int64[1] r"
    ),
    Refusal(
        "y = TensorScatter<axis=0>(x, u)",
        "its axis is that of the batch",
        "float[1,4] x, float[1,2] u",
        opset=24,
    ),
)
CONSTANTS = (
    Refusal("a = ConstantOfShape(s) y = Add(x, a)", "shape [-1]", constants={"s": [-1]}),
    Refusal(
        'a = Constant<value_string="t">() b = Cast<to=1>(a) y = Add(x, b)', "its value is text or sparse"
    ),
    Refusal(
        "a = Range(o, n, d) b = Cast<to=1>(a) y = Add(x, b)",
        "its delta is 0",
        constants={"o": np.array(0), "n": np.array(9), "d": np.array(0)},
    ),
    Refusal(
        "a = Range(o, n, d) b = Cast<to=1>(a) y = ReduceMax(b)",
        "it makes 100000000 numbers; give them as a constant",
        constants={"o": np.array(0), "n": np.array(100_000_000), "d": np.array(1)},
    ),
    Refusal(
        "a = EyeLike(x) y = Relu(a)",
        "a matrix of 30000 x 30000; give it as a constant",
        ports="float[30000,30000] x",
    ),
    Refusal("a = NonZero(x) y = Cast<to=1>(a)", "its input (input 0) is computed at run time"),
)
IMAGES = (
    Refusal("y = Conv(x, w)", "its input has rank 2; it needs a batch", "float[1,4] x", {"w": weights(2, 4)}),
    Refusal("y = Conv<pads=[1,1]>(x, w)", "pads [1, 1]", constants={"w": weights(2, 4, 3, 3)}),
    Refusal("y = Conv<pads=[-1,0,0,0]>(x, w)", "pads [-1, 0, 0, 0]", constants={"w": weights(2, 4, 3, 3)}),
    Refusal("y = Conv<strides=[0,1]>(x, w)", "a window of", constants={"w": weights(2, 4, 3, 3)}),
    Refusal("y = MaxPool<kernel_shape=[2]>(x)", "a window of"),
    Refusal(
        "y = ConvTranspose<group=3>(x, w)",
        "4 input channels in 3 groups",
        constants={"w": weights(4, 2, 3, 3)},
    ),
    Refusal(
        "y = DeformConv(x, w, o)",
        "a kernel of [3]",
        "float[1,4,6] x, float[1,3,4] o",
        {"w": weights(2, 4, 3)},
        19,
    ),
    Refusal(
        "a, i = MaxPool<kernel_shape=[2,2,2], storage_order=1>(x) b = Cast<to=1>(i) y = Add(a, b)",
        "storage_order=1 of a volume; export the model with the default",
        "float[1,1,4,4,4] x",
    ),
    Refusal(
        "y = MaxUnpool<kernel_shape=[2,2]>(x, i, s)",
        "output shape [1, 4, 2, 2] is smaller than",
        "float[1,4,3,3] x, int64[1,4,3,3] i",
        {"s": [1, 4, 2, 2]},
    ),
    Refusal(
        "y = Resize<antialias=1>(x, , , s)",
        "antialias; export the model",
        constants={"s": [1, 4, 3, 3]},
        opset=18,
    ),
    Refusal("y = Resize(x, , , s)", "2 sizes for 4 axes", constants={"s": [3, 3]}),
    Refusal("y = Resize(x, , s)", "2 scales for 4 axes", constants={"s": np.float32([2, 2])}),
    Refusal(
        "y = Resize(x, , s)", "scales [1.0, 1.0, -1.0, 1.0] for", constants={"s": np.float32([1, 1, -1, 1])}
    ),
    Refusal(
        'y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, , s)',
        "4 values of roi for 4 axes",
        constants={"r": np.float32([0, 0, 1, 1]), "s": [1, 4, 3, 3]},
    ),
    Refusal(
        "y = GroupNormalization<num_groups=2>(x, s, s)",
        "3 factors for 4 channels",
        constants={"s": weights(3)},
        opset=21,
    ),
    Refusal("y = Softmax<axis=5>(x)", "axis 5 of a tensor of rank 4", opset=11),
    Refusal(
        "a = NonMaxSuppression(b, s) y = Cast<to=1>(a)",
        "it asks for no boxes at all; set max_output_boxes_per_class",
        "float[1,6,4] b, float[1,2,6] s",
    ),
)
SIGNALS = (
    Refusal(
        "y = STFT(x, s)", "it has neither a window nor a frame length", "float[1,32,1] x", {"s": np.array(4)}
    ),
    Refusal(
        "y = STFT(x, s, w, n)",
        "a window of 7 for frames of 8",
        "float[1,32,1] x",
        {"s": np.array(4), "w": weights(7), "n": np.array(8)},
    ),
    Refusal(
        "y = MelWeightMatrix(n, l, r, a, b)",
        "lie outside the spectrum of 8000 Hz",
        constants={
            "n": np.array(4),
            "l": np.array(16),
            "r": np.array(8000),
            "a": np.float32(0),
            "b": np.float32(9000),
        },
    ),
    Refusal("y = RandomNormalLike(x)", "pass the numbers as an input"),
)
PRODUCTS = (
    Refusal('y = Einsum<equation="ij,jk->ik">(x)', "has 2 operands, the node 1", "float[2,3] x"),
    Refusal('y = Einsum<equation="ijk->i">(x)', "operand 0 has rank 2", "float[2,3] x"),
    Refusal('y = Einsum<equation="ii->i">(x)', "a diagonal of axes 2 and 3 long", "float[2,3] x"),
    Refusal(
        'y = Einsum<equation="ij,jk->ik">(x, w)', "axis 'j' is 4 and 3 long", "float[2,3] x, float[4,5] w"
    ),
    Refusal(
        "y = BitCast<to=6>(x)",
        "its input is computed at run time; export the model with a constant",
        opset=26,
    ),
    Refusal(
        "a = QLinearConv(x, s, z, w, s, z, s, z) y = Cast<to=1>(a)",
        "its weights are computed at run time; export the model with constants",
        "uint8[1,4,6,6] x, uint8[2,4,3,3] w",
        {"s": weights(), "z": np.array(3, np.uint8)},
    ),
    Refusal(
        "a = ConvInteger(x, w) y = Cast<to=1>(a)",
        "its weights are computed at run time; export the model with constants",
        "uint8[1,4,6,6] x, uint8[2,4,3,3] w",
    ),
)
FLOW = (
    Refusal(
        "y = Loop(, , x)<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) "
        "{ on = Identity(go) u = Sin(v) }>",
        "it never ends",
        "float[2] x",
    ),
    Refusal(
        "y = Loop(n, , x)<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) "
        "{ on = Identity(go) u = Sin(v) }>",
        "it has 4097 iterations; more than 4096 are not unrolled",
        "float[2] x",
        {"n": np.array(4097)},
    ),
    Refusal(
        "y = Loop(n, , x)<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) "
        "{ on = Less(a, c) u = Sin(v) }>",
        "whether it goes on is computed at run time; export the model with a fixed number of iterations",
        "float[2] x, float a, float c",
        {"n": np.array(3)},
    ),
    Refusal(
        "v, y = Loop(n, , x)<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u, float[2] t) "
        "{ on = Identity(go) u = Sin(v) t = Cos(v) }>",
        "it has no iteration, so that the shape of its results is unknown",
        "float[2] x",
        {"n": np.array(0)},
    ),
    Refusal(
        "l, y = Scan<num_scan_inputs=2, body = n (float p, float q, float r) => (float t, float m) "
        "{ t = Add(p, q) m = Add(t, r) }>(o, x, z)",
        "it scans axes of lengths [3, 4]",
        "float o, float[3] x, float[4] z",
    ),
    Refusal(
        "y = If(c)<then_branch = t () => (float[2] o) { o = Relu(x) }, "
        "else_branch = e () => (float[1] p) { p = ReduceSum(x) }>",
        "its branches give shapes (2,) and (1,); they must be the same",
        "float[2] x, bool c",
    ),
)
QUANTIZED = (
    Refusal(
        "y = DequantizeLinear(x, s, z)",
        "its zero point is not of its scale's shape",
        "uint8[4] x",
        {"s": weights(4), "z": np.zeros(3, np.uint8)},
    ),
    Refusal(
        "y = DequantizeLinear<axis=0>(x, s)",
        "its scale has shape [3]; one for each index of axis 0",
        "uint8[4] x",
        {"s": weights(3)},
    ),
    Refusal(
        "y = DequantizeLinear<axis=0, block_size=-2>(x, s)",
        "its block size is -2",
        "uint8[4] x",
        {"s": weights(2)},
        21,
    ),
    Refusal(
        "y = DequantizeLinear<axis=0, block_size=2>(x, s)",
        "blocks of 2 along axis 0 of [4] need [2]",
        "uint8[4] x",
        {"s": weights(3)},
        21,
    ),
    Refusal(
        "a = QuantizeLinear(x, s, z) y = DequantizeLinear(a, s, z)",
        "only integers are supported",
        "float[4] x",
        {"s": weights(), "z": weights()},
    ),
    Refusal(
        "a = Cast<to=17>(x) y = Cast<to=1>(a)",
        "of type FLOAT8E4M3FN, which is not supported; convert the model to float32",
        opset=19,
    ),
    *(
        Refusal(
            f"a = com.microsoft.{op}({inputs}) y = Cast<to=1>(a)",
            "is computed at run time; export the model with constants",
            "uint8[2,4] x, float s",
            {"z": np.array(3, np.uint8)},
        )
        for op, inputs in (
            ("QLinearMul", "x, s, z, x, s, z, s, z"),
            ("QLinearSigmoid", "x, s, z, s, z"),
            ("QLinearConcat", "s, z, x, s, z, x, s, z"),
        )
    ),
)
RUNTIME = (
    Refusal(
        "y = com.microsoft.FusedMatMul<transBatchA=1>(x, x)", "transBatchA or transBatchB; export the model"
    ),
    Refusal(
        'y = com.microsoft.FusedConv<activation="Odd">(x, w)',
        "activation 'Odd'",
        constants={"w": weights(2, 4, 3, 3)},
    ),
    Refusal(
        "a, m = com.microsoft.SkipLayerNormalization(x, x, s) y = Add(a, m)",
        "its mean or deviation is read; export the model for inference",
        constants={"s": weights(6)},
    ),
    Refusal(
        "y = com.microsoft.MatMulNBits<K=4, N=2, bits=3, block_size=16>(x, w, s)",
        "weights of 3 bits",
        "float[1,4] x",
        {"w": np.zeros((2, 1, 8), np.uint8), "s": weights(2)},
    ),
    Refusal(
        "y = com.microsoft.MatMulNBits<K=4, N=2, bits=4, block_size=16>(x, w, s, , g)",
        "an order of groups (g_idx)",
        "float[1,4] x",
        {"w": np.zeros((2, 1, 8), np.uint8), "s": weights(2), "g": np.zeros(4, np.int32)},
    ),
    Refusal(
        "y = com.microsoft.RotaryEmbedding<scale=2.0>(x, p, c, c)",
        "its scale is not 1",
        "float[1,2,4,8] x, int64[1,4] p",
        {"c": weights(9, 4)},
    ),
    Refusal(
        "y = com.microsoft.RotaryEmbedding<rotary_embedding_dim=4>(x, p, c, c)",
        "a part of each head without num_heads",
        "float[1,4,8] x, int64[1,4] p",
        {"c": weights(9, 2)},
    ),
    Refusal(
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(x)",
        "packed query, key and value",
        "float[1,4,8] x",
    ),
    Refusal(
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(x, x, x, , m)",
        "key_padding_mask; export the model without",
        "float[1,4,8] x, int32[1,4] m",
    ),
    Refusal(
        "y = com.microsoft.Attention<num_heads=2>(x, w, b, m)",
        "mask_index; export the model without a mask",
        "float[1,4,8] x, int32[1,4] m",
        {"w": weights(8, 24), "b": weights(24)},
    ),
)
GROUPS = {
    "shapes": SHAPES,
    "constants": CONSTANTS,
    "images": IMAGES,
    "signals": SIGNALS,
    "products": PRODUCTS,
    "flow": FLOW,
    "quantized": QUANTIZED,
    "runtime": RUNTIME,
}
REFUSALS = [
    pytest.param(refusal, id=f"{group}-{number}")
    for group, refusals in GROUPS.items()
    for number, refusal in enumerate(refusals)
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_handler_refuses_with_its_message(refusal: Refusal, tmp_path: Path) -> None:
    refusal.check(tmp_path / "m.onnx")
