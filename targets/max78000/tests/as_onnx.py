"""A network as an ONNX file, as a trainer would export it: channels first, quantized by QuantizeLinear and DequantizeLinear.

Data counts 128ths.  Half a step of the accumulator in each bias keeps sums off the halves, which ONNX rounds
to even and the hardware up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mace_core.ir import Array
from mace_frontend_ai8x.network import INPUT, Eltwise, Layer, LayerActivation, Network, Operation

OnnxAttribute: TypeAlias = int | float | str | Sequence[int]
"""A value from which `helper.make_node` makes an attribute."""

DATA = 2.0**-7
ELTWISE = {Eltwise.ADD: "Add", Eltwise.SUB: "Sub"}


def write_onnx(network: Network, path: Path) -> None:
    """Write a network; NotImplementedError for operations on bits, which real numbers do not have."""
    writer = Writer()
    first = network.layers[0]
    shape = (1, *network.sample.shape)
    last = (shape[0], *shape[2:], shape[1])
    splits = any(layer.operands > 1 and len(layer.inputs) == 1 for layer in network.layers)
    if splits:  # of the channels: as converters from channels-last frameworks write it
        made = {
            INPUT: writer.node(
                "Transpose", [writer.stored("input")], perm=[0, len(shape) - 1, *range(1, len(shape) - 1)]
            )
        }
    else:
        made = {INPUT: writer.stored("input")}
    if first.operation is not Operation.CONV1D and len(shape) == 3:
        made[INPUT] = writer.node(
            "Reshape", [made[INPUT], writer.constant(np.asarray([1, *network.sample.shape[:1], *first.dim]))]
        )
    shapes = {INPUT: (network.sample.shape[0], *first.dim)}
    for index, layer in enumerate(network.layers):
        made[index] = writer.layer(layer, [(made[i], shapes[i]) for i in layer.inputs])
        shapes[index] = (layer.out_channels, *layer.out_dim)
    results = []
    for index, layer in enumerate(network.layers):
        if layer.output:
            writer.nodes.append(helper.make_node("Identity", [made[index]], [layer.name]))
            results.append(helper.make_tensor_value_info(layer.name, TensorProto.FLOAT, None))
    entry = helper.make_tensor_value_info("input", TensorProto.FLOAT, last if splits else shape)
    graph = helper.make_graph(writer.nodes, network.name, [entry], results, writer.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


class Writer:
    """Nodes and constants; every value between layers is float, dequantized from bytes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"t{self.number}"

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attrs: OnnxAttribute) -> str:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attrs))
        return names[0]

    def constant(self, array: Array | np.generic) -> str:
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def steps(self, scale: float, dtype: type[np.integer] = np.int8) -> tuple[str, str]:
        return self.constant(np.float32(scale)), self.constant(dtype(0))

    def dequantized(self, x: str, scale: float = DATA, dtype: type[np.integer] = np.int8) -> str:
        return self.node("DequantizeLinear", [x, *self.steps(scale, dtype)])

    def stored(self, x: str) -> str:
        return self.dequantized(self.node("QuantizeLinear", [x, *self.steps(DATA)]))

    def layer(self, layer: Layer, inputs: Sequence[tuple[str, tuple[int, ...]]]) -> str:
        operands = self.operands(layer, inputs)
        if layer.pool_first:
            operands = [self.pooled(layer, x) for x in operands]
        x = operands[0]
        for other in operands[1:]:
            assert layer.eltwise
            if layer.eltwise not in ELTWISE:
                raise NotImplementedError(layer.eltwise.name)
            x = self.node(ELTWISE[layer.eltwise], [x, other])
        if len(operands) > 1:
            x = self.stored(x)
        if not layer.pool_first:
            x = self.pooled(layer, x)
        return x if layer.operation is Operation.PASSTHROUGH else self.main(layer, x)

    def operands(self, layer: Layer, inputs: Sequence[tuple[str, tuple[int, ...]]]) -> list[str]:
        names = [self.in_axes(layer, *i) for i in inputs]
        if layer.operands == 1:
            x = names[0] if len(names) == 1 else self.node("Concat", names, axis=1)
            return [x]
        if len(names) > 1:
            return names
        first = self.node(
            "Split",
            [names[0], self.constant(np.asarray([layer.channels] * layer.operands))],
            layer.operands,
            axis=1,
        )
        return [f"t{int(first[1:]) + i}" for i in range(layer.operands)]

    def in_axes(self, layer: Layer, x: str, shape: tuple[int, ...]) -> str:
        """A value with as many axes as the layer's, and its rows and columns."""
        channels, rows, columns = shape
        expected: tuple[int, ...] = layer.dim
        if layer.one_dimensional or (layer.dim[1] == 1 and columns == 1 and self._flat(layer)):
            expected = layer.dim[:1]
        if expected == (rows, columns) and not getattr(self, "lines", {}).get(x):
            return x
        del channels
        actual = self.node("Reshape", [x, self.constant(np.asarray([1, -1, *expected]))])
        self._note(actual, len(expected) == 1)
        return actual

    def _flat(self, layer: Layer) -> bool:
        return layer.one_dimensional

    def _note(self, x: str, line: bool) -> None:
        self.lines: dict[str, bool] = {**getattr(self, "lines", {}), x: line}

    def pooled(self, layer: Layer, x: str) -> str:
        axes = 1 if layer.one_dimensional else 2
        if layer.pool is None and layer.stride == 1:
            return x
        size, dilation, stride = layer.window
        attrs: dict[str, OnnxAttribute] = {"kernel_shape": size[:axes], "strides": [stride] * axes}
        if layer.pool and layer.pool.average:
            return self.stored(self.node("AveragePool", [x], **attrs))
        return self.stored(self.node("MaxPool", [x], dilations=dilation[:axes], **attrs))

    def main(self, layer: Layer, x: str) -> str:
        assert layer.weights is not None
        scale, values = 2.0 ** (layer.shift - 7), layer.weights.values
        bias = np.zeros(layer.out_channels, np.int64) if layer.bias is None else layer.bias
        half = 0 if layer.wide or layer.shift >= 7 else 1
        b = self.dequantized(self.constant((256 * bias + half).astype(np.int32)), DATA * scale / 2, np.int32)
        if layer.operation is Operation.LINEAR:
            w = self.dequantized(self.constant(values.astype(np.int8).T), scale)
            y = self.node("Add", [self.node("MatMul", [self.node("Flatten", [x]), w]), b])
            return self.finished(layer, y)
        axes = 1 if layer.one_dimensional else 2
        w = self.dequantized(
            self.constant(values.reshape(*values.shape[:2], *layer.kernel[:axes]).astype(np.int8)), scale
        )
        attrs: dict[str, OnnxAttribute] = {
            "pads": [*layer.pad[:axes]] * 2,
            "dilations": layer.dilation[:axes],
        }
        if layer.operation is Operation.CONV_TRANSPOSE2D:
            return self.finished(
                layer, self.node("ConvTranspose", [x, w, b], strides=[2, 2], output_padding=[1, 1], **attrs)
            )
        y = self.node("Conv", [x, w, b], group=layer.groups, **attrs)
        self._note(y, axes == 1)
        return self.finished(layer, y, axes == 1)

    def finished(self, layer: Layer, y: str, line: bool = False) -> str:
        if layer.wide:
            return y
        op = {LayerActivation.RELU: "Relu", LayerActivation.ABS: "Abs"}.get(layer.activation)
        result = self.stored(self.node(op, [y]) if op else y)
        self._note(result, line)
        if layer.operation is Operation.LINEAR and layer.out_dim == (1, 1):
            self._note(result, True)
        return result
