"""Small models against ONNX Runtime, computed with the ops' numpy references."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from mace_core.deployment import Model, Port
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx


@dataclass(frozen=True)
class Case:
    """A model in ONNX's text form; its float constants without values are random, weights: name -> shape."""

    name: str
    body: str
    inputs: str = "float[1,3,8,9] x"
    weights: tuple[tuple[str, tuple[int, ...]], ...] = ()
    opset: int = 13
    output: str = "float[N] y"
    rank: int = 4

    def text(self) -> str:
        out = f"float[{','.join('abcdef'[: self.rank])}] y" if self.output == "float[N] y" else self.output
        return f'<ir_version: 8, opset_import: ["" : {self.opset}]> g ({self.inputs}) => ({out}) {{ {self.body} }}'


W = (("w", (6, 3, 3, 3)), ("b", (6,)))
CONV = (
    Case("plain", "y = Conv<pads=[1,0,2,1], strides=[2,1]>(x, w, b)", weights=W),
    Case("no bias", "y = Conv<dilations=[2,2]>(x, w)", weights=W),
    Case("same upper", 'y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)', weights=W),
    Case("same lower", 'y = Conv<auto_pad="SAME_LOWER", strides=[2,2]>(x, w)', weights=W),
    Case("valid", 'y = Conv<auto_pad="VALID">(x, w)', weights=W),
    Case("depthwise", "y = Conv<group=3>(x, w)", weights=(("w", (6, 1, 3, 2)),)),
    Case("runtime weights", "y = Conv(x, w)", inputs="float[1,3,8,9] x, float[4,3,2,2] w"),
    Case("1 d", "y = Conv<pads=[1,1]>(x, w)", inputs="float[2,3,8] x", weights=(("w", (4, 3, 3)),), rank=3),
    Case("3 d", "y = Conv(x, w)", inputs="float[1,2,4,5,6] x", weights=(("w", (4, 2, 2, 3, 2)),), rank=5),
    Case(
        "transposed",
        "y = ConvTranspose<strides=[2,3], pads=[1,0,1,2]>(x, w, b)",
        weights=(("w", (3, 6, 3, 3)), ("b", (6,))),
    ),
    Case(
        "transposed groups", "y = ConvTranspose<group=3, strides=[2,2]>(x, w)", weights=(("w", (3, 2, 3, 2)),)
    ),
    Case(
        "transposed runtime groups",
        "y = ConvTranspose<group=2>(x, w)",
        inputs="float[1,4,5,5] x, float[4,3,2,2] w",
    ),
    Case(
        "transposed shape",
        "y = ConvTranspose<strides=[2,2], output_shape=[18,19]>(x, w)",
        weights=(("w", (3, 2, 3, 3)),),
    ),
    Case(
        "transposed extra",
        "y = ConvTranspose<strides=[2,2], output_padding=[1,1]>(x, w)",
        weights=(("w", (3, 2, 3, 3)),),
    ),
    Case(
        "transposed same",
        'y = ConvTranspose<strides=[2,2], auto_pad="SAME_UPPER">(x, w)',
        weights=(("w", (3, 2, 3, 3)),),
    ),
)
POOL = (
    Case("max", "y = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>(x)"),
    Case("max ceil", "y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)"),
    Case("max dilated", "y = MaxPool<kernel_shape=[2,2], dilations=[2,3]>(x)"),
    Case("average", "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)"),
    Case(
        "average count",
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1, strides=[2,2]>(x)",
    ),
    Case("average same", 'y = AveragePool<kernel_shape=[3,3], auto_pad="SAME_LOWER", strides=[2,2]>(x)'),
    Case("lp", "y = LpPool<kernel_shape=[2,2], p=3>(x)"),
    Case(
        "global",
        "a = GlobalAveragePool(x) b = GlobalMaxPool(x) c = GlobalLpPool<p=3>(x) d = Add(a, b) y = Add(c, d)",
    ),
)
NORM = (
    Case(
        "batch",
        "y = BatchNormalization<epsilon=0.01>(x, s, t, s, v)",
        weights=(("s", (3,)), ("t", (3,)), ("v", (3,))),
    ),
    Case(
        "batch of vectors",
        "y = BatchNormalization(x, s, t, s, v)",
        inputs="float[4,3] x",
        weights=(("s", (3,)), ("t", (3,)), ("v", (3,))),
        rank=2,
    ),
    Case("instance", "y = InstanceNormalization(x, s, t)", weights=(("s", (3,)), ("t", (3,)))),
    Case(
        "layer", "y = LayerNormalization<axis=2>(x, s, t)", weights=(("s", (8, 9)), ("t", (8, 9))), opset=17
    ),
    Case("layer by row", "y = LayerNormalization(x, s)", weights=(("s", (9,)),), opset=17),
    Case("local response", "y = LRN<size=3, alpha=0.1>(x)"),
    Case("softmax of old", "y = Softmax<axis=1>(x)", opset=11),
    Case("log softmax of old", "y = LogSoftmax<axis=3>(x)", opset=11),
    Case("hardmax of old", "y = Hardmax<axis=2>(x)", opset=11),
    Case("softmax", "y = Softmax<axis=1>(x)"),
    Case("mean and variance", "y = MeanVarianceNormalization<axes=[0,2,3]>(x)"),
    Case("lp", "y = LpNormalization<p=1, axis=2>(x)"),
)
MOVE = (
    Case(
        "shape chain",
        """s = Shape(x) i = Constant<value=int64 {1}>() n = Gather(s, i) z = Constant<value=int64[1] {0}>()
        u = Unsqueeze(n, z) m = Constant<value=int64[1] {-1}>() t = Concat<axis=0>(u, m) y = Reshape(x, t)""",
        rank=2,
    ),
    Case("split", "a, b, c = Split<axis=3>(x) y = Add(a, c)"),
    Case("split of old", "a, y = Split<axis=3, split=[4,5]>(x)", opset=11),
    Case("split uneven", "y, b = Split<axis=3, num_outputs=2>(x)", opset=18),
    Case("slice of old", "y = Slice<starts=[1,-3], ends=[100,-1], axes=[2,3]>(x)", opset=9),
    Case(
        "slice back",
        """s = Constant<value=int64[2] {-1,7}>() e = Constant<value=int64[2] {-100,1}>() a = Constant<value=int64[2] {3,2}>()
        t = Constant<value=int64[2] {-2,-3}>() y = Slice(x, s, e, a, t)""",
    ),
    Case(
        "pad",
        "p = Constant<value=int64[8] {0,0,1,2,0,0,3,0}>() v = Constant<value=float {7.5}>() y = Pad(x, p, v)",
    ),
    Case("pad and cut", "p = Constant<value=int64[8] {0,0,-1,2,0,0,3,-2}>() y = Pad(x, p)"),
    Case("reflect", 'p = Constant<value=int64[8] {0,0,1,2,0,0,3,0}>() y = Pad<mode="reflect">(x, p)'),
    Case("pad of old", 'y = Pad<mode="edge", pads=[0,0,1,2,0,0,3,0]>(x)', opset=9),
    Case("squeeze", "a = Squeeze<axes=[0]>(x) y = Unsqueeze<axes=[0,-1]>(a)", opset=11, rank=5),
    Case("depth to space", 'y = DepthToSpace<blocksize=2, mode="CRD">(x)', inputs="float[1,8,3,2] x"),
    Case("space to depth", "y = SpaceToDepth<blocksize=2>(x)", inputs="float[1,2,6,4] x"),
    Case("expand", "s = Constant<value=int64[4] {2,1,8,1}>() y = Expand(x, s)"),
    Case("tile", "s = Constant<value=int64[4] {1,2,1,3}>() y = Tile(x, s)"),
    Case("flatten", "y = Flatten<axis=-2>(x)", rank=2),
    Case("scale up", "s = Constant<value=float[4] {1,1,2,2}>() y = Upsample(x, s)", opset=9),
    Case(
        "scale of 10",
        's = Constant<value=float[4] {1,1,1.5,0.7}>() y = Resize<mode="linear">(x, s)',
        opset=10,
    ),
    Case("scale up of old", 'y = Upsample<scales=[1.0,1.0,2.0,3.0], mode="nearest">(x)', opset=7),
    Case("resize", 's = Constant<value=int64[4] {1,3,5,20}>() y = Resize<mode="cubic">(x, , , s)'),
    Case(
        "resize corners",
        's = Constant<value=int64[4] {1,3,5,20}>() y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s)',
    ),
    Case("gather", "i = Constant<value=int64[2,2] {0,-1,2,1}>() y = Gather<axis=1>(x, i)", rank=5),
    Case("cumulative sum", "a = Constant<value=int64 {-1}>() y = CumSum<exclusive=1, reverse=1>(x, a)"),
    Case("top", "k = Constant<value=int64[1] {3}>() y, i = TopK<axis=1, largest=0>(x, k)"),
)
MATH = (
    Case(
        "gemm",
        "y = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b)",
        "float[2,5] x",
        (("w", (4, 5)), ("b", (4,))),
        rank=2,
    ),
    Case(
        "gemm turned", "y = Gemm<transA=1>(x, w, b)", "float[5,2] x", (("w", (5, 4)), ("b", (1, 4))), rank=2
    ),
    Case("gemm rows", "y = Gemm(x, w, b)", "float[2,5] x", (("w", (5, 4)), ("b", (2, 1))), rank=2),
    Case("gemm alone", "y = Gemm(x, w)", "float[2,5] x", (("w", (5, 4)),), rank=2, opset=11),
    Case(
        "einsum", 'y = Einsum<equation="bij,bjk->bik">(x, w)', "float[2,3,4] x", (("w", (2, 4, 5)),), rank=3
    ),
    Case(
        "einsum heads",
        'y = Einsum<equation="bthd,bshd->bhts">(x, w)',
        "float[2,3,4,5] x",
        (("w", (2, 6, 4, 5)),),
    ),
    Case("einsum outer", 'y = Einsum<equation="i,j->ij">(x, w)', "float[3] x", (("w", (4,)),), rank=2),
    Case(
        "einsum dots",
        'y = Einsum<equation="...ij,jk->...ik">(x, w)',
        "float[2,3,4] x",
        (("w", (4, 5)),),
        rank=3,
    ),
    Case("einsum sum", 'y = Einsum<equation="ijk->ki">(x)', "float[2,3,4] x", rank=2),
    Case("clip of old", "y = Clip<min=-0.3, max=0.5>(x)", opset=9),
    Case("clip", "l = Constant<value=float {-0.2}>() y = Clip(x, l)"),
    Case("clip by tensor", "h = ReduceMean<keepdims=0>(x) y = Clip(x, , h)"),
    Case("variadic", "a = Sum(x, x, x) b = Max(x, a) c = Mean(a, b, x) y = Min(a, b, c)"),
    Case("reduce of old", "y = ReduceMean<axes=[-1,1], keepdims=0>(x)", opset=11, rank=2),
    Case("reduce", "a = Constant<value=int64[2] {-1,1}>() y = ReduceL2(x, a)", opset=18),
    Case("reduce all", "y = ReduceLogSumExp<keepdims=0>(x)", rank=0),
    Case("reduce nothing", "y = ReduceSum<noop_with_empty_axes=1>(x)"),
    Case("position", "i = ArgMax<axis=2>(x) y = Cast<to=1>(i)"),
    Case("power of integers", "t = Constant<value=int64 {2}>() y = Pow(x, t)"),
    Case("where", "z = Constant<value=float {0}>() c = Greater(x, z) y = Where(c, x, z)"),
    Case("dropout", "y, m = Dropout(x)"),
    Case(
        "functions", "a = HardSwish(x) b = Gelu(x) c = Mish(a) d = Add(b, c) y = Elu<alpha=0.4>(d)", opset=20
    ),
    Case(
        "function body",
        "z = Constant<value=int64[1] {6}>() c = CenterCropPad<axes=[2]>(x, z) y = Softsign(c)",
        opset=18,
    ),
)
LSTM_W = (("w", (2, 20, 4)), ("r", (2, 20, 5)), ("b", (2, 40)))
FLOW = (
    Case(
        "lstm",
        'h, y = LSTM<hidden_size=5, direction="bidirectional">(x, w, r, b)',
        "float[6,2,4] x",
        LSTM_W,
        rank=3,
    ),
    Case(
        "gru",
        "y = GRU<hidden_size=5, linear_before_reset=1>(x, w, r)",
        "float[6,2,4] x",
        (("w", (1, 15, 4)), ("r", (1, 15, 5))),
    ),
    Case(
        "known branch",
        """c = Constant<value=bool {1}>() y = If (c) <
        then_branch = t () => (float[1,3,8,9] a) { a = Relu(x) },
        else_branch = e () => (float[1] b) { b = ReduceSum<axes=[0]>(x) }>""",
        opset=11,
    ),
    Case(
        "unknown branch",
        """s = ReduceSum<keepdims=0>(x) z = Constant<value=float {0}>() c = Greater(s, z) y = If (c) <
        then_branch = t () => (float[1,3,8,9] a) { a = Relu(x) }, else_branch = e () => (float[1,3,8,9] b) { b = Neg(x) }>""",
        opset=11,
    ),
    Case(
        "loop",
        """n = Constant<value=int64 {3}>() t = Constant<value=bool {1}>() l, y = Loop (n, t, x) <
        body = g (int64 i, bool c, float[1,3,8,9] v) => (bool d, float[1,3,8,9] u, float[1,3,8,9] k)
        { d = Identity(c) f = Cast<to=1>(i) u = Add(v, f) k = Mul(u, x) }>""",
        opset=11,
        rank=5,
    ),
    Case(
        "scan",
        """a = Constant<value=int64[1] {2}>() o = ReduceMax<axes=[2], keepdims=0>(x)
        l, y = Scan (o, x) <num_scan_inputs=1, scan_input_axes=[2], scan_output_axes=[1], scan_input_directions=[1],
        body = g (float[1,3,9] v, float[1,3,9] e) => (float[1,3,9] u, float[1,3,9] k) { u = Add(v, e) k = Mul(u, e) }>""",
        opset=11,
    ),
)
GROUPS = {"conv": CONV, "pool": POOL, "norm": NORM, "move": MOVE, "math": MATH, "flow": FLOW}
CASES = [pytest.param(case, id=f"{group}: {case.name}") for group, cases in GROUPS.items() for case in cases]


def build_model(case: Case, path: Path) -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    model = onnx.parser.parse_model(case.text())
    for name, shape in case.weights:
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.random(shape, np.float32) + np.float32(0.1), name)
        )
    path.write_bytes(model.SerializeToString())
    return model


def load(path: Path, *ports: Port) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,), inputs=ports), core_ops()))


@pytest.mark.parametrize("case", CASES)
def test_parity(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    build_model(case, path)
    graph = load(path)
    rng = np.random.default_rng(3)
    arrays = {n: (rng.random(graph.tensors[n].shape) * 2 - 1).astype(np.float32) for n in graph.inputs}
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    expected, values = run(arrays), execute(graph, arrays)
    assert list(graph.outputs) == ["y"]
    assert values["y"].shape == expected["y"].shape
    np.testing.assert_allclose(values["y"], expected["y"], rtol=2e-5, atol=2e-6)


def test_shape_chain_becomes_one_reshape(tmp_path: Path) -> None:
    build_model(MOVE[0], tmp_path / "m.onnx")
    assert [n.op.name for n in load(tmp_path / "m.onnx").nodes] == ["Reshape"]


def test_convolution_is_channels_last(tmp_path: Path) -> None:
    build_model(CONV[0], tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    assert [n.op.name for n in graph.nodes] == ["Transpose", "Conv", "Transpose"]
    assert graph.weights["w"].shape == (6, 3, 3, 3)
    assert [n.name for n in graph.nodes] == ["Conv_0/channels-last", "Conv_0", "Conv_0/channels-first"]
    assert {n.sources for n in graph.nodes} == {("Conv_0",)}
