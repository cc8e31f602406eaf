"""Sound models of every kind of operator, which test_malformed damages."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from mace_core.ir import Array

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def parse(text: str, **constants: Array | list[int]) -> onnx.ModelProto:
    """A model of a text and constants; lists are integers of 64 bits."""
    model = onnx.parser.parse_model(HEAD + text)
    for name, value in constants.items():
        array = np.asarray(value, np.int64) if isinstance(value, list) else value
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


CONVOLUTION = parse(
    """(float[1,3,8,8] x) => (float[1,5] y) {
    [conv] a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b)
    [bn] n = BatchNormalization<epsilon=0.001>(a, s, s, s, v)
    [clip] c = Clip(n, low, high)
    [pool] p = AveragePool<kernel_shape=[2,2], ceil_mode=1, auto_pad="SAME_UPPER">(c)
    [up] u = ConvTranspose<group=2, strides=[2,2]>(p, t)
    [sum] r = ReduceMean<axes=[2,3], keepdims=0>(u)
    [fc] y = Gemm<transB=1, alpha=0.5>(r, f, g) }""",
    w=numbers(6, 3, 3, 3),
    b=numbers(6),
    s=numbers(6, seed=1),
    v=np.abs(numbers(6)) + 0.1,
    low=np.float32(0).reshape(()),
    high=np.float32(6).reshape(()),
    t=numbers(6, 2, 2, 2),
    f=numbers(5, 4),
    g=numbers(5),
)
MOVEMENT = parse(
    """(float[2,3,4,5] x, int64[2] i) => (float[k,l,m,n] y, float[q,r] z, int64[u,v] p) {
    [shape] a = Shape(x) [cut] b = Slice(a, one, four) [join] c = Concat<axis=0>(b, minus)
    [reshape] d = Reshape(x, c)
    [turn] e = Transpose<perm=[1,0,2]>(d)
    [pick] f = Gather<axis=1>(e, i)
    [split] h, j = Split<axis=1>(e, parts)
    [pad] k = Pad<mode="reflect">(x, pads)
    [resize] y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(k, , , sizes)
    [tile] l = Tile(h, repeats) [flat] z = Flatten<axis=2>(l)
    [top] m, n = TopK<axis=-1>(z, one) [wide] o = Expand(n, sizes2) [cumulated] p = CumSum(o, zero)
    [one] q = OneHot(n, depth, pair) [sum] r = Einsum<equation="abc,abd->cd">(d, d) }""",
    one=[1],
    four=[4],
    minus=[-1],
    parts=[1, 2],
    pads=[0, 0, 1, 2, 0, 0, 1, 1],
    sizes=[2, 3, 9, 7],
    repeats=[1, 2, 1],
    sizes2=[1, 4],
    zero=np.array(0, np.int64),
    depth=[7],
    pair=np.float32([0, 1]),
)
RECURRENT = parse(
    """(float[4,2,3] x, float[1,2,5] h0) => (float[a,b,c,d] y, float[e,f,g] z) {
    [lstm] y, h, c = LSTM<hidden_size=5, direction="forward">(x, w, r, b, , h0, h0)
    [gru] g, z = GRU<hidden_size=5, linear_before_reset=1>(x, w3, r3)
    [rnn] n = RNN<hidden_size=5, activations=["Relu"]>(x, w1, r1, , lengths) }""",
    w=numbers(1, 20, 3),
    r=numbers(1, 20, 5),
    b=numbers(1, 40),
    w3=numbers(1, 15, 3),
    r3=numbers(1, 15, 5),
    w1=numbers(1, 5, 3),
    r1=numbers(1, 5, 5),
    lengths=np.array([4, 2], np.int32),
)
CONTROL = parse(
    """(float[2,3] x, float[3,2,3] s, bool c) => (float[2,3] y, float[a,b,d] z, float[2,3] w, float[2,3] l) {
    [if] y = If(c)<then_branch = t () => (float[2,3] o) { o = Add(x, x) }, else_branch = e () => (float[2,3] o) { o = Relu(x) }>
    [loop] l, z = Loop(three, yes, x)<body = b (int64 i, bool go, float[2,3] v) => (bool on, float[2,3] u, float[2,3] t)
        { on = Identity(go) f = Cast<to=1>(i) u = Add(v, f) t = Mul(u, x) }>
    [scan] w, k = Scan<num_scan_inputs=1, body = n (float[2,3] p, float[2,3] r) => (float[2,3] q, float[2,3] m)
        { q = Add(p, r) m = Neg(q) }>(x, s) }""",
    three=np.array(3, np.int64),
    yes=np.array(True),
)
QUANTIZED = parse(
    """(float[1,3,6,6] x) => (float[1,4,6,6] y, float[1,4] z) {
    [q] a = QuantizeLinear(x, s, p) [d] b = DequantizeLinear(a, s, p)
    [dw] c = DequantizeLinear<axis=0>(w, ws, wp) [db] e = DequantizeLinear(bias, bs, bp)
    [conv] f = Conv<pads=[1,1,1,1]>(b, c, e)
    [q2] g = QuantizeLinear(f, s, p) [d2] y = DequantizeLinear(g, s, p)
    [pool] h = GlobalAveragePool(y) [flat] i = Flatten(h)
    [dyn] j, js, jp = DynamicQuantizeLinear(i) [mm] k = MatMulInteger(j, m, jp)
    [cast] l = Cast<to=1>(k) [scale] z = Mul(l, js) }""",
    s=np.float32(0.05).reshape(()),
    p=np.array(3, np.int8),
    w=np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3),
    ws=np.float32([0.01, 0.02, 0.03, 0.04]),
    wp=np.zeros(4, np.int8),
    bias=np.arange(4, dtype=np.int32),
    bs=np.float32(0.0005).reshape(()),
    bp=np.array(0, np.int32),
    m=np.arange(16, dtype=np.int8).reshape(4, 4),
)
FUNCTIONS = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2,3] x) => (float[2,3] y)
    { [f] a = local.twice<slope=0.5>(x) y = local.twice(a) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]> twice <slope: float = 0.25> (v) => (w)
    { a = local.once<alpha: float = @slope>(v) w = Add(a, v) }
    <domain: "local", opset_import: ["" : 17]> once <alpha> (v) => (w) { w = LeakyRelu<alpha: float = @alpha>(v) }"""
)
DETECTION = parse(
    """(float[1,3,9,9] x, float[4,4] r, float[1,6,4] b, float[1,2,6] s) =>
    (float[4,3,2,2] y, int64[n,3] z, float[a,c,d,e] g, float[f,h] t) {
    [roi] y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, at)
    [nms] z = NonMaxSuppression(b, s, most, iou)
    [grid] g = GridSample(x, grid)
    [put] p = ScatterND(b, where, new)
    [m] q = MatMul(s, b) [norm] u = LayerNormalization<axis=-1>(q, one) [soft] v = Softmax<axis=1>(u) [row] t = Flatten<axis=1>(v) }""",
    at=[0, 0, 0, 0],
    most=[3],
    iou=np.float32([0.5]),
    grid=numbers(1, 4, 4, 2),
    where=np.array([[0, 1]], np.int64),
    new=numbers(1, 4),
    one=numbers(4),
)
RUNTIME = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g
    (float[1,3,4] x) => (float[1,3,8] y, float[1,3,4] z, float[1,2,4] o) {
    [gelu] a = com.microsoft.BiasGelu(x, b) [skip] c = com.microsoft.SkipLayerNormalization<epsilon=0.001>(a, x, b, b)
    [conv] o = com.microsoft.FusedConv<activation="LeakyRelu", activation_params=[0.2], pads=[1,1]>(c, w)
    [attention] y0 = com.microsoft.Attention<num_heads=2, unidirectional=1>(c, v, h) [join] y = Concat<axis=-1>(y0, c)
    [quantize] q = QuantizeLinear(c, s, p) [add] r = com.microsoft.QLinearAdd(q, s, p, q, s, p, s, p)
    [softmax] t = com.microsoft.QLinearSoftmax<axis=-1, opset=13>(r, s, p, s, p) [real] z0 = DequantizeLinear(t, s, p)
    [product] z = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(z0, k) }"""
)
RUNTIME.graph.initializer.extend(
    numpy_helper.from_array(array, name)
    for name, array in {
        "b": numbers(4),
        "w": numbers(2, 3, 3),
        "v": numbers(4, 12),
        "h": numbers(12),
        "s": np.float32(0.05).reshape(()),
        "p": np.array(9, np.uint8),
        "k": numbers(4, 4),
    }.items()
)
MODELS = (CONVOLUTION, MOVEMENT, RECURRENT, CONTROL, QUANTIZED, FUNCTIONS, DETECTION, RUNTIME)
