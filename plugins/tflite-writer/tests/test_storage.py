"""What quantized operators demand: biases, zero points, sums, activations."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import tflite
from writer_grower import Grower

from mace_core.ir import DType, Graph, Quant, Tensor
from mace_core.lowering import Refused
from mace_tflite_writer import refuses
from mace_tflite_writer.operator import NodeView
from mace_tflite_writer.storage import fused_activation, largest_sums

Type = tflite.ActivationFunctionType


def conv(seed: int, dtype: DType = DType.I8) -> Graph:
    grower = Grower(seed, dtype, True)
    x = grower.input((1, 3, 3, 2))
    w = grower.weights((3, 2, 2, 2), 0)
    attrs = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    y = grower.add("Conv", [x, w, grower.bias(x, w, 3)], attrs)
    assert y is not None
    return grower.finish()


def changed(graph: Graph, index: int, **fields: object) -> Graph:
    """The graph with another description of its node's input, or of its output for index -1."""
    node = graph.nodes[0]
    name = node.outputs[0] if index < 0 else node.inputs[index]
    tensor = replace(graph.tensors[name], **fields)  # type: ignore[arg-type]
    return replace(graph, tensors={**graph.tensors, name: tensor})


def code(graph: Graph) -> str | None:
    refusal = refuses(graph.nodes[0], graph)
    return refusal and refusal.code


def moved(quant: Quant | None, factor: float = 1.0, zero: int = 0) -> Quant:
    assert quant is not None
    return Quant(
        tuple(s * factor for s in quant.scale), tuple(z + zero for z in quant.zero_point), quant.axis
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8])
def test_the_largest_sum_is_that_of_all_activations(seed: int, dtype: DType) -> None:
    graph = conv(seed, dtype)
    view = NodeView(graph.nodes[0], graph)
    x, w, bias = (graph.tensors[name] for name in graph.nodes[0].inputs)
    assert x.quant is not None
    assert w.quant is not None
    limits = np.iinfo(dtype.numpy)
    ends = (limits.min - x.quant.zero_point[0], limits.max - x.quant.zero_point[0])
    weights = graph.weights[w.name].astype(np.int64) - w.quant.zero_point[0]
    for channel, sums in enumerate(largest_sums(view, 0)):
        taps = weights[channel].ravel()
        reached = [int(np.dot(values, taps)) for values in product(ends, repeat=len(taps))]
        offset = int(graph.weights[bias.name][channel])
        assert sums == max(abs(value + b) for value in reached for b in (0, offset))


def test_a_bias_of_another_scale_is_refused() -> None:
    graph = conv(0)
    quant = graph.tensors[graph.nodes[0].inputs[2]].quant
    assert code(graph) is None
    assert code(changed(graph, 2, quant=moved(quant, 1 + 1e-7))) is None
    assert code(changed(graph, 2, quant=moved(quant, 1 + 1e-5))) == "quantization"
    assert code(changed(graph, 2, quant=moved(quant, zero=1))) == "quantization"


def test_int8_weights_have_no_zero_point() -> None:
    graph = conv(0)
    quant = graph.tensors[graph.nodes[0].inputs[1]].quant
    assert code(changed(graph, 1, quant=moved(quant, zero=1))) == "quantization"


def test_uint8_weights_have_one_scale() -> None:
    graph = conv(0, DType.U8)
    assert code(graph) is None
    assert code(changed(graph, 1, quant=Quant((0.1,) * 3, (7,) * 3, 0))) == "quantization"


def test_16_bit_activations_have_no_zero_point() -> None:
    graph = conv(0, DType.I16)
    assert code(graph) is None
    assert (
        code(changed(graph, 0, quant=moved(graph.tensors[graph.inputs[0]].quant, zero=1))) == "quantization"
    )
    assert (
        code(changed(graph, -1, quant=moved(graph.tensors[graph.outputs[0]].quant, zero=1))) == "quantization"
    )


@pytest.mark.parametrize("index", [0, 1, -1])
def test_half_quantized_products_are_refused(index: int) -> None:
    assert code(changed(conv(0), index, quant=None, dtype=DType.F32)) == "quantization"


def stored(scale: float, zero_point: int) -> Tensor:
    return Tensor("y", DType.I8, (1,), Quant.of(scale, zero_point))


@pytest.mark.parametrize(
    ("bounds", "tensor", "function"),
    [
        ((-math.inf, math.inf), Tensor("y", DType.F32, (1,)), Type.NONE),
        ((0.0, 6.0), Tensor("y", DType.F32, (1,)), Type.RELU6),
        ((0.0, 6.0), stored(6 / 255, -128), Type.NONE),  # what the type holds already
        ((0.0, 6.0), stored(0.1, -128), Type.RELU6),
        ((0.0, 100.0), stored(0.1, 0), Type.RELU),  # 12.7 is the largest number
        ((-math.inf, 6.0), stored(0.1, -128), Type.RELU6),  # 0 is the smallest
        ((-1.0, 1.0), stored(0.1, 3), Type.RELU_N1_TO_1),
    ],
)
def test_an_activation_clamps_as_the_bounds_do(
    bounds: tuple[float, float], tensor: Tensor, function: int
) -> None:
    assert fused_activation(*bounds, tensor) == function


@pytest.mark.parametrize("bounds", [(0.0, 5.0), (-0.5, 6.0), (-math.inf, 6.0), (-1.0, 2.0)])
def test_other_bounds_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(Refused, match="fuses no activation") as error:
        fused_activation(*bounds, Tensor("y", DType.F32, (1,)))
    assert "separate_clamps" in error.value.refusal.remedy
