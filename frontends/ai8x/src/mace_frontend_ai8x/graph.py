"""Turns a network into a graph of core's ops that computes the same integers, for all other targets.

The hardware rounds halves up, a stored tensor of the graph rounds them to even.  An accumulator is a multiple
of the last bit of its sums; with half of that bit added it never lies on a half, and both round to the same
integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mace_core.attributes import Attributes
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Quant, Storage, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.ops.op import Op, Spec
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Eltwise,
    Layer,
    LayerActivation,
    Network,
    Operation,
    Pool,
)
from mace_frontend_ai8x.options import NetworkOptions

UNIT = 1.0 / 128
"""What the last bit of data stands for."""
DATA = Storage(DType.I8, Quant.of(UNIT))


def as_graph(network: Network) -> Graph:
    """Return the graph of a network; MaceError with all layers that core's ops cannot express.

    Inputs and outputs are i8 (of wide layers i32) with a scale: [N, channels, rows, columns] or [N, channels,
    length].
    """
    if reasons := _list_inexpressible(network):
        raise MaceError.of(f"{network.name}: {reason}" for reason in reasons)
    builder = Builder(network.name)
    first = network.layers[0]
    port = input_tensor(network)
    sample = builder.input(port.name, port.dtype, port.shape, port.quant)
    # Ops of the graph have channels last; the vendor's samples have them first.
    rows = builder.one("Reshape", [sample], {"shape": (1, network.sample.shape[0], *first.dim)})
    tensors = {INPUT: builder.one("Transpose", [rows], {"perm": (0, 2, 3, 1)})}
    for index, layer in enumerate(network.layers):
        tensors[index] = _Writer(builder, layer).write([tensors[i] for i in layer.inputs])
    results = {
        layer.name: _transpose(builder, layer, tensors[i])
        for i, layer in enumerate(network.layers)
        if layer.output
    }
    return builder.finish([*results.values()], [*results])


def as_any_graph(network: Network) -> Graph:
    """Return the graph of a network, whatever its layers are.

    Where core's ops cannot express every layer, it is one node that computes the whole network.  Targets for
    the accelerator follow the origin of the graph; others refuse the node, with the layers that only the
    accelerator computes.
    """
    reasons = _list_inexpressible(network)
    if not reasons:
        return as_graph(network)
    builder = Builder(network.name)
    port, results = input_tensor(network), output_tensors(network)
    x = builder.input(port.name, port.dtype, port.shape, port.quant)
    names = [builder.reserve_output(tensor.name, tensor.storage) for tensor in results if tensor.storage]
    return builder.finish(builder.add(_whole_op(network, reasons), [x], outputs=names))


def _whole_op(network: Network, reasons: Sequence[str]) -> Op:
    """Return the op that computes a network by the accelerator's arithmetic."""
    results = output_tensors(network)

    def refuse(node: Node, lowering: Lowering) -> None:
        raise Refused("; ".join(reasons))

    def compute(x: Array) -> tuple[Array, ...]:
        sample = np.rint(x / UNIT).astype(np.int64).reshape(network.sample.shape)
        computed = outputs(replace(network, sample=sample), NetworkOptions())
        blocks = [block for layer, block in zip(network.layers, computed, strict=True) if layer.output]
        scales = [tensor.quant.scale[0] if tensor.quant else 1.0 for tensor in results]
        return tuple(b.reshape(t.shape) * scale for b, t, scale in zip(blocks, results, scales, strict=True))

    def infer(_: Sequence[Tensor | None], __: Attributes) -> Sequence[Spec]:
        return [(DType.F32, tensor.shape) for tensor in results]

    return Op("ai8x::Network", ("input",), ("results*",), infer, compute, lower=refuse)


def input_tensor(network: Network) -> Tensor:
    """Return the network's input as the graph has it: [N, channels, ...]."""
    return Tensor("input", DATA.dtype, (1, *network.sample.shape), DATA.quant)


def output_tensors(network: Network) -> tuple[Tensor, ...]:
    """Return the network's results as the graph has them: [N, channels], with length or rows and columns."""
    return tuple(_result(layer) for layer in network.layers if layer.output)


def _result(layer: Layer) -> Tensor:
    rows, columns = layer.out_dim
    spatial: tuple[int, ...] = ()
    # A column of data is a line for PyTorch, and a single position a row of channels.
    if columns > 1:
        spatial = (rows, columns)
    elif rows > 1:
        spatial = (rows,)
    storage = _stored_as(layer)
    return Tensor(layer.name, storage.dtype, (1, layer.out_channels, *spatial), storage.quant)


def _stored_as(layer: Layer) -> Storage:
    """Return type and scale of a layer's results."""
    return Storage(DType.I32, Quant.of(UNIT * weight_unit(layer))) if layer.wide else DATA


def weight_unit(layer: Layer) -> float:
    """Return the scale of a layer's weights with which its results have the scale of its data."""
    # The hardware divides by 2 ** 7 and multiplies by 2 ** shift; both are put into the scale of the weights.
    return float(2.0 ** (layer.shift - 7))


def _transpose(builder: Builder, layer: Layer, x: str) -> str:
    first = builder.one("Transpose", [x], {"perm": (0, 3, 1, 2)})
    return builder.one("Reshape", [first], {"shape": _result(layer).shape})


def _list_inexpressible(network: Network) -> list[str]:
    """Return why core's ops cannot express some layers, one sentence each."""
    reasons = []
    for layer in network.layers:
        if layer.eltwise in (Eltwise.OR, Eltwise.XOR):
            problem = (
                "bits of stored numbers have no meaning as real numbers; only the accelerator computes this"
            )
            reasons.append(f"layer {layer.name!r}: {problem}")
        if any(source <= BUFFER for source in layer.inputs):
            problem = "reads a buffer that outlives the inference; only the accelerator has these"
            reasons.append(f"layer {layer.name!r}: {problem}")
    return reasons


@dataclass(frozen=True)
class _Writer:
    """Adds the nodes of one layer; all tensors between nodes are [1, rows, columns, channels]."""

    builder: Builder
    layer: Layer

    def write(self, inputs: Sequence[str]) -> str:
        """Return the layer's output; `inputs` are the tensors that it reads."""
        layer = self.layer
        operands = self._operands(inputs)
        if layer.pool_first:
            operands = [self._pool(x) for x in operands]
        x = self._join(operands)
        if not layer.pool_first:
            x = self._pool(x)
        # Without weights there is no accumulator, and so neither shift nor activation.
        if layer.operation is Operation.PASSTHROUGH:
            return x
        return self._activate(self._convolve(x))

    def _operands(self, inputs: Sequence[str]) -> list[str]:
        """Return the operands that are combined element by element: several inputs, or parts of one."""
        layer = self.layer
        if layer.operands == 1:
            x = inputs[0] if len(inputs) == 1 else self.builder.one("Concat", inputs, {"axis": 3})
            return [self._reshape(x)]
        if len(inputs) > 1:
            return [self._reshape(x) for x in inputs]
        sizes = (layer.channels,) * layer.operands
        parts = self.builder.add(
            "Split", [inputs[0]], {"axis": 3, "sizes": sizes}, outputs=self._names(layer.operands)
        )
        return [self._reshape(x) for x in parts]

    def _names(self, count: int) -> list[str]:
        return [self.builder.reserve_output(f"{self.layer.name}.{i}", DATA) for i in range(count)]

    def _reshape(self, x: str) -> str:
        """Return data with the layer's rows and columns: the same values in the same order."""
        shape = (1, *self.layer.dim, self.layer.channels)
        return x if self.builder.shape(x) == shape else self.builder.one("Reshape", [x], {"shape": shape})

    def _add_stored(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, storage: Storage = DATA
    ) -> str:
        return self.builder.one(
            op, inputs, attrs or {}, outputs=[self.builder.reserve_output(self.layer.name, storage)]
        )

    def _pool(self, x: str) -> str:
        layer = self.layer
        if layer.pool is None:
            return x if layer.stride == 1 else self._subsample(x)
        attrs = _windows(layer.pool.size, (layer.pool.stride,) * 2, (0, 0), layer.pool.dilation)
        if not layer.pool.average:
            return self._add_stored("MaxPool", [x], attrs)
        return self._average(x, layer.pool, attrs)

    def _subsample(self, x: str) -> str:
        _, rows, columns, channels = self.builder.shape(x)
        step = self.layer.stride
        attrs = {
            "starts": (0, 0, 0, 0),
            "sizes": (1, -(-rows // step), -(-columns // step), channels),
            "steps": (1, step, step, 1),
        }
        return self._add_stored("Slice", [x], attrs)

    def _average(self, x: str, pool: Pool, attrs: Mapping[str, Any]) -> str:
        """Return the mean, cut off towards zero."""
        # The mean is computed in floats and may lie just below an integer that it should be; half of the
        # smallest possible fraction, added before the cut, corrects that and changes no other mean.
        builder = self.builder
        mean = builder.one("AveragePool", [builder.one("Dequantize", [x])], attrs)
        steps = builder.one("Mul", [mean, self._number("steps", 1 / UNIT)])
        size = builder.one(
            "Add", [builder.one("Abs", [steps]), self._number("half", 0.5 / (pool.size[0] * pool.size[1]))]
        )
        cut = builder.one("Mul", [builder.one("Floor", [size]), builder.one("Sign", [steps])])
        return self._add_stored("Mul", [cut, self._number("unit", UNIT)])

    def _number(self, name: str, value: float) -> str:
        return self.builder.weight(f"{self.layer.name}.{name}", np.asarray([value], np.float32))

    def _join(self, operands: Sequence[str]) -> str:
        """Return the sum or difference of the operands, computed exactly and saturated once."""
        if len(operands) == 1:
            return operands[0]
        op = "Sub" if self.layer.eltwise is Eltwise.SUB else "Add"
        *first, last = [self.builder.one("Dequantize", [x]) for x in operands]
        total = first[0]
        for x in first[1:]:
            total = self.builder.one(op, [total, x])
        return self._add_stored(op, [total, last])

    def _convolve(self, x: str) -> str:
        layer = self.layer
        low = {"low": 0.0} if layer.activation is LayerActivation.RELU else {}
        storage = _stored_as(layer)
        if layer.operation is Operation.LINEAR:
            flat = self.builder.one("Reshape", [x], {"shape": (1, int(np.prod(self.builder.shape(x))))})
            y = self._add_stored("MatMul", [flat, *self._parameters(self._matrix())], low, storage)
            return self.builder.one("Reshape", [y], {"shape": (1, 1, 1, layer.out_channels)})
        attrs = _windows(layer.kernel, (1, 1), layer.pad, layer.dilation)
        del attrs["kernel"]
        attrs |= low
        if layer.operation is Operation.CONV_TRANSPOSE2D:
            # The hardware puts a zero behind every row and column, also the last: output padding 1.
            attrs |= {"strides": (2, 2), "output_padding": (1, 1)}
            return self._add_stored("ConvTranspose", [x, *self._parameters(self._filters())], attrs, storage)
        return self._add_stored(
            "Conv", [x, *self._parameters(self._filters())], {**attrs, "group": layer.groups}, storage
        )

    def _filters(self) -> Array:
        """Return weights as [out, rows, columns, in]."""
        layer = self.layer
        assert layer.weights is not None
        values = layer.weights.values.reshape(*layer.weights.values.shape[:2], *layer.kernel)
        return (
            values.transpose(1, 2, 3, 0)
            if layer.operation is Operation.CONV_TRANSPOSE2D
            else values.transpose(0, 2, 3, 1)
        )

    def _matrix(self) -> Array:
        """Return weights as [in, out], inputs in the order rows, columns, channels."""
        layer = self.layer
        assert layer.weights is not None
        # PyTorch flattens channels first, the graph's data have channels last.
        by_channel = layer.weights.values.reshape(layer.out_channels, layer.channels, *layer.pooled)
        return by_channel.transpose(2, 3, 1, 0).reshape(-1, layer.out_channels)

    def _parameters(self, weights: Array) -> tuple[str, str]:
        layer = self.layer
        bias = np.zeros(layer.out_channels, np.int64) if layer.bias is None else layer.bias
        # Half of the last bit of the sums makes ties round up, as the hardware does (see the module's text).
        # Wide sums and those with a shift of 7 and more have no fraction to round.
        halves = 0 if layer.wide or layer.shift >= 7 else 1
        name, unit = layer.name, weight_unit(layer)
        return (
            self.builder.weight(f"{name}.weights", weights.astype(np.int8), Quant.of(unit)),
            self.builder.weight(
                f"{name}.bias", (2 * 128 * bias + halves).astype(np.int32), Quant.of(UNIT * unit / 2)
            ),
        )

    def _activate(self, x: str) -> str:
        return self._add_stored("Abs", [x]) if self.layer.activation is LayerActivation.ABS else x


def _windows(
    kernel: tuple[int, int], strides: tuple[int, int], pad: tuple[int, int], dilations: tuple[int, int]
) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "strides": strides,
        "pads_before": pad,
        "pads_after": pad,
        "dilations": dilations,
    }
