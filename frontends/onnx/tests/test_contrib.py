"""Operators of ONNX Runtime's own, and of ONNX without backend cases, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

RNG = np.random.default_rng


@dataclass(frozen=True)
class Case:
    """A model in ONNX's text form, and its constants: arrays, or shapes of random floats."""

    name: str
    body: str
    inputs: str = "float[2,5,12] x"
    weights: dict[str, Array | tuple[int, ...]] = field(default_factory=dict)
    outputs: str = "float[a,b,c] y"
    opset: int = 16

    def write(self, path: Path) -> None:
        opsets = f'"" : {self.opset}, "com.microsoft" : 1'
        text = f"<ir_version: 8, opset_import: [{opsets}]> g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        model = onnx.parser.parse_model(text)
        rng = RNG(7)
        for name, given in self.weights.items():
            array = rng.random(given, np.float32) if isinstance(given, tuple) else given
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        path.write_bytes(model.SerializeToString())


def packed(count: int, blocks: int, size: int) -> Array:
    return RNG(1).integers(0, 256, (count, blocks, size)).astype(np.uint8)


ROIS = np.array([[0, 0, 0, 6, 7], [1, 3, 2, 11, 9], [0, 5, 5, 4, 4], [1, -3, -2, 30, 30]], np.float32)
GAMMA = {"g": (12,), "b": (12,), "c": (12,)}
HEADS = {"w": (12, 36), "b": (36,)}
CASES = (
    Case("gelu", "y = com.microsoft.Gelu(x)"),
    Case("bias gelu", "y = com.microsoft.BiasGelu(x, b)", weights={"b": (12,)}),
    Case("fast gelu", "y = com.microsoft.FastGelu(x, b)", weights={"b": (12,)}),
    Case("quick gelu", "y = com.microsoft.QuickGelu<alpha=1.5>(x)"),
    Case("fused matmul", "y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, w)", weights={"w": (7, 12)}),
    Case(
        "fused conv",
        'y = com.microsoft.FusedConv<activation="LeakyRelu", activation_params=[0.2], pads=[1,1]>(x, w, b)',
        weights={"w": (4, 5, 3), "b": (4,)},
    ),
    Case(
        "fused gemm",
        'y = com.microsoft.FusedGemm<activation="Relu", transB=1>(x, w, b)',
        inputs="float[3,12] x",
        weights={"w": (7, 12), "b": (7,)},
        outputs="float[a,b] y",
    ),
    Case(
        "simplified norm",
        "y = SimplifiedLayerNormalization<axis=-1, epsilon=0.01>(x, g)",
        weights={"g": (12,)},
    ),
    Case(
        "skip norm",
        "y, , , s = com.microsoft.SkipLayerNormalization<epsilon=0.01>(x, k, g, b, c)",
        inputs="float[2,5,12] x, float[2,5,12] k",
        weights=GAMMA,
        outputs="float[a,b,c] y, float[a,b,c] s",
    ),
    Case(
        "skip simplified norm",
        "y, , , s = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.01>(x, k, g)",
        inputs="float[2,5,12] x, float[2,5,12] k",
        weights={"g": (12,)},
        outputs="float[a,b,c] y, float[a,b,c] s",
    ),
    Case(
        "rotary",
        "y = com.microsoft.RotaryEmbedding(x, p, c, s)",
        weights={"p": np.array([1], np.int64), "c": (9, 2), "s": (9, 2)},
    ),
    Case(
        "rotary of heads",
        "y = com.microsoft.RotaryEmbedding<interleaved=1>(x, p, c, s)",
        inputs="float[2,3,5,8] x",
        weights={"p": np.arange(10, dtype=np.int64).reshape(2, 5), "c": (12, 4), "s": (12, 4)},
        outputs="float[a,b,c,d] y",
    ),
    Case(
        "multi-head attention",
        "y = com.microsoft.MultiHeadAttention<num_heads=3, scale=0.4>(x, k, v, b)",
        inputs="float[2,5,12] x, float[2,7,12] k, float[2,7,12] v",
        weights={"b": (36,)},
    ),
    Case("attention", "y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, b)", weights=HEADS),
    Case(
        "four bits",
        "y = com.microsoft.MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, w, s, z)",
        inputs="float[2,5,40] x",
        weights={"w": packed(3, 3, 8), "s": (9,), "z": packed(3, 1, 2).reshape(-1)},
    ),
    Case(
        "four bits around eight",
        "y = com.microsoft.MatMulNBits<K=32, N=3, bits=4, block_size=16>(x, w, s)",
        inputs="float[2,5,32] x",
        weights={"w": packed(3, 2, 8), "s": (6,)},
    ),
    Case(
        "max roi pool",
        "y = MaxRoiPool<pooled_shape=[3,2], spatial_scale=0.5>(x, r)",
        inputs="float[2,3,9,8] x",
        weights={"r": ROIS},
        outputs="float[a,b,c,d] y",
    ),
    Case(
        "roi align of corners",
        "y = RoiAlign<output_height=2, output_width=3, spatial_scale=0.5>(x, r, i)",
        inputs="float[2,3,9,8] x",
        weights={"r": ROIS[:2, 1:], "i": np.array([0, 1], np.int64)},
        outputs="float[a,b,c,d] y",
        opset=10,
    ),
    Case(
        "grid sample",
        'y = com.microsoft.GridSample<mode="bicubic", padding_mode="reflection", align_corners=1>(x, g)',
        inputs="float[2,3,6,7] x, float[2,4,5,2] g",
        outputs="float[a,b,c,d] y",
    ),
    Case(
        "max pool with indices",
        "y, i = MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,0,1], storage_order=1>(x)",
        inputs="float[2,3,6,7] x",
        outputs="float[a,b,c,d] y, int64[a,b,c,d] i",
    ),
    Case(
        "pool and back",
        "p, i = MaxPool<kernel_shape=[2], strides=[2]>(x) y = MaxUnpool<kernel_shape=[2], strides=[2]>(p, i)",
    ),
    Case("diagonal", 'y = Einsum<equation="bii->bi">(x)', inputs="float[2,5,5] x", outputs="float[a,b] y"),
)


def load(path: Path) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_parity(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    case.write(path)
    graph = load(path)
    rng = RNG(3)
    arrays = {n: (rng.random(graph.tensors[n].shape) * 2 - 1).astype(np.float32) for n in graph.inputs}
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    expected, values = run(arrays), execute(graph, arrays)
    for name in graph.outputs:
        assert values[name].shape == expected[name].shape
        np.testing.assert_allclose(values[name], expected[name], rtol=2e-5, atol=5e-6)


BOXES = "float[1,6,4] b, float[1,2,6] s"
NMS = "y = NonMaxSuppression(b, s, n, i)"


def test_boxes_found_and_then_none(tmp_path: Path) -> None:
    constants: dict[str, Array | tuple[int, ...]] = {
        "n": np.array([4], np.int64),
        "i": np.array([0.1], np.float32),
    }
    case = Case("nms", NMS, BOXES, constants, "int64[a,3] y")
    case.write(tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    arrays = {"b": RNG(0).random((1, 6, 4), np.float32), "s": RNG(1).random((1, 2, 6), np.float32)}
    run = Onnx().reference((tmp_path / "m.onnx",), Model("m", (tmp_path / "m.onnx",)))
    assert run is not None
    expected, actual = run(arrays)["y"], execute(graph, arrays)["y"]
    assert graph.tensors["y"].shape == (8, 3)
    assert 0 < len(expected) < 8
    np.testing.assert_array_equal(actual[: len(expected)], expected)
    assert (actual[len(expected) :] == -1).all()


def test_random_numbers_are_refused(tmp_path: Path) -> None:
    Case("random", "y = RandomUniformLike(x)").write(tmp_path / "m.onnx")
    with pytest.raises(MaceError, match=r"draws random numbers.*pass the numbers as an input"):
        load(tmp_path / "m.onnx")
