"""Reads what one layer of a description computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from mace_core.deployment.faults import Faults
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import LayerParameters
from mace_frontend_ai8x.description.keys import BINARY, LayerDescription
from mace_frontend_ai8x.description.values import Pair
from mace_frontend_ai8x.network import INPUT, Eltwise, Layer, Operation, Pool, Weights

PADS: Mapping[Operation, int] = {Operation.CONV1D: 3, Operation.CONV2D: 1, Operation.CONV_TRANSPOSE2D: 1}
"""Operation -> the default of `pad`, which is the vendor's; other operations have no padding."""

BYPASS_SHIFT = 7
"""The shift of a layer whose weights are all 1: it undoes the division of the sum by 128."""

Dim = tuple[int, int]


class Shape(NamedTuple):
    """The shape of data; `dim` is rows and columns, of one-dimensional data (length, 1)."""

    channels: int
    dim: Dim

    @classmethod
    def of(cls, sample: Array) -> Shape:
        """Return the shape of a sample."""
        return cls(sample.shape[0], (sample.shape[1], sample.shape[2] if sample.ndim == 3 else 1))


@dataclass(frozen=True)
class LayerReader:
    """Reads one layer; contradictions are added to `faults`.

    parameters: None if the layer has no weights.
    """

    described: LayerDescription
    inputs: tuple[int, ...]
    parameters: LayerParameters | None
    faults: Faults
    notes: list[str]

    def layer(self, shapes: Sequence[Shape]) -> Layer:
        """Return the layer; `shapes` are those of its inputs."""
        d, operation = self.described, self.described.operation
        eltwise, operands = self._eltwise()
        channels = d.in_channels or self._channels(shapes, operands)
        dim = self._dim(shapes[0].dim)
        kernel = self._kernel()
        weights = self._weights(channels, kernel)
        pad = axes((PADS.get(operation, 0),) if d.pad is None else d.pad)
        # Keys of a line may state one number or two; the second has no meaning for it.
        line = operation is Operation.CONV1D
        pool = self._pool(dim[1] == 1)
        self._match_output_pad()
        return Layer(
            name=d.label,
            operation=operation,
            inputs=self.inputs,
            channels=channels,
            dim=dim,
            out_channels=self._out_channels(channels, weights),
            weights=weights,
            bias=self._bias(weights),
            kernel=kernel,
            pad=(pad[0], 0) if line else pad,
            dilation=(d.dilation[0], 1) if line else axes(d.dilation),
            groups=d.groups,
            # pool_stride without a pool subsamples; with one it is the pool's own.
            stride=1 if pool else self._stride(),
            pool=pool,
            eltwise=eltwise,
            operands=operands,
            pool_first=d.pool_first,
            flatten=d.flatten,
            shift=self._shift(weights),
            activation=d.activation,
            wide=d.wide,
            output=d.output,
        )

    def _fault(self, key: str, problem: str, remedy: str) -> None:
        self.faults.add(
            self.described.lines.get(key, self.described.line),
            f"{self.described.title}: {key}: {problem}",
            remedy,
        )

    def _eltwise(self) -> tuple[Eltwise | None, int]:
        """Return the element-wise operation and its number of operands; None and 1 if there is none."""
        d = self.described
        named = d.named_operation.eltwise if d.named_operation else None
        if named is not None and d.eltwise is not None and named is not d.eltwise:
            self._fault(
                "eltwise",
                f"is {d.eltwise.name.lower()}, the operation is {named.name.lower()}",
                "name the operation once",
            )
        eltwise = named if named is not None else d.eltwise
        if eltwise is None:
            if d.operands is not None:
                self._fault(
                    "operands",
                    "is given without an element-wise operation",
                    "write eltwise: add, or remove operands",
                )
            return None, 1
        operands = d.operands or (len(self.inputs) if len(self.inputs) > 1 else 2)
        if len(self.inputs) not in (1, operands):
            problem = f"names {len(self.inputs)} layers, the element-wise operation has {operands} operands"
            self._fault(
                "in_sequences", problem, f"name {operands} layers, or write operands: {len(self.inputs)}"
            )
        return eltwise, operands

    def _channels(self, shapes: Sequence[Shape], operands: int) -> int:
        """Return the channels of one operand; without an element-wise operation, inputs are concatenated."""
        if operands == 1:
            return sum(shape.channels for shape in shapes)
        if self.inputs != (INPUT,):
            return shapes[0].channels
        if shapes[0].channels % operands:
            channels = shapes[0].channels
            problem = f"the input has {channels} channels, which are not {operands} operands of equal size"
            self.faults.add(
                self.described.line,
                f"{self.described.title}: {problem}",
                "join the operands along the channels of the sample",
            )
        return max(1, shapes[0].channels // operands)

    def _dim(self, source: Dim) -> Dim:
        d = self.described
        if d.in_dim is not None:
            return _line(d.in_dim) if d.operation is Operation.CONV1D else line_or_plane(d.in_dim)
        before, after = axes(d.in_crop)
        dim = source[0] - before - after, source[1]
        if d.operation is not Operation.CONV1D or dim[1] == 1:
            return dim
        size = f"{dim[0]} rows and {dim[1]} columns"
        self.notes.append(f"{d.label}: data of {size} are read as a line of {prod(dim)}; in_dim would say so")
        return prod(dim), 1

    def _kernel(self) -> Dim:
        d, operation = self.described, self.described.operation
        if operation in (Operation.PASSTHROUGH, Operation.LINEAR):
            return 1, 1
        if operation is not Operation.CONV1D:
            return axes(d.kernel_size or (3,))
        # The vendor's default is a length of 9, which the weights of the model correct.
        if d.kernel_size is None and self.parameters is not None:
            return self.parameters.weights.shape[-1], 1
        return _line(d.kernel_size or (9,))

    def _pool(self, line: bool) -> Pool | None:
        d = self.described
        if d.max_pool and d.avg_pool:
            self._fault("avg_pool", "is given beside max_pool", "keep one of them")
        size = d.max_pool or d.avg_pool
        if size is None:
            return None
        flat = (line and len(size) == 1) or d.operation is Operation.CONV1D
        dilation = (d.pool_dilation[0], 1) if flat else axes(d.pool_dilation)
        return Pool(d.max_pool is None, _line(size) if flat else axes(size), self._stride(), dilation)

    def _match_output_pad(self) -> None:
        """Report an output padding other than the hardware's: 1 of transposed convolutions, 0 of others."""
        stated = self.described.output_pad
        fixed = int(self.described.operation is Operation.CONV_TRANSPOSE2D)
        if stated not in (None, fixed):
            self._fault(
                "output_pad",
                f"is {stated}; a {self.described.operation.value} layer has {fixed}",
                f"write {fixed}, or remove it",
            )

    def _stride(self) -> int:
        """Return the stride of pooling; without pooling, the input is subsampled with it."""
        d = self.described
        if any(n != 1 for n in d.stride):
            self._fault(
                "stride",
                f"is {max(d.stride)}; convolutions have stride 1",
                "subsample by pooling: max_pool: 1 and pool_stride",
            )
        if d.operation is not Operation.CONV1D and len(set(d.pool_stride)) > 1:
            self._fault(
                "pool_stride",
                f"is {list(d.pool_stride)}; rows and columns have one stride",
                "write one number",
            )
        return d.pool_stride[0]

    def _bits(self) -> int:
        """Return the bits of a weight: those of the description, else those of the checkpoint, else 8."""
        quantization = self.described.quantization
        if quantization is not None:
            return quantization or 1
        return (self.parameters.weight_bits if self.parameters else None) or 8

    def _weights(self, channels: int, kernel: Dim) -> Weights | None:
        d = self.described
        if d.operation is Operation.PASSTHROUGH:
            return None
        if d.bypass:
            # A view of a single one: such a layer has no weights in memory, and may have many channels.
            return Weights(
                np.broadcast_to(
                    np.int64(1), (d.out_channels or channels, max(1, channels // d.groups), *kernel)
                )
            )
        if self.parameters is None:
            return None
        values = self.parameters.weights
        if d.operation is Operation.LINEAR and values.ndim > 2 and values[0, 0].size == 1:
            values = values.reshape(values.shape[:2])
        elif values.ndim == 2 and d.operation is not Operation.LINEAR:
            # A linear layer of the model may be described as a convolution with a kernel of one position.
            kernel_axes = (1,) if d.operation is Operation.CONV1D else (1, 1)
            values = values.reshape(*values.shape, *kernel_axes)
        return Weights(values, self._bits(), d.quantization == BINARY)

    def _bias(self, weights: Weights | None) -> Array | None:
        """Return the bias in bytes.

        It belongs to the bits that the checkpoint was quantized to, whatever `quantization` says of weights.
        """
        return None if self.parameters is None or weights is None else self.parameters.bias

    def _shift(self, weights: Weights | None) -> int:
        """Return the shift of the description, else that of the checkpoint.

        Weights of fewer than 8 bits add the missing bits to either.
        """
        stated = self.described.output_shift
        if self.described.bypass:
            return BYPASS_SHIFT if stated is None else stated
        if weights is None:
            if stated:
                self._fault("output_shift", "has no effect in a layer without weights", "remove it")
            return 0
        trained = self.parameters.output_shift if self.parameters else 0
        # Narrow weights count at face value; the vendor's tool adds the bits that they lack to the shift.
        return (trained if stated is None else stated) + 8 - weights.bits

    def _out_channels(self, channels: int, weights: Weights | None) -> int:
        if self.described.out_channels:
            return self.described.out_channels
        if weights is None:
            return channels
        transposed = self.described.operation is Operation.CONV_TRANSPOSE2D
        return int(weights.values.shape[1 if transposed else 0])


def axes(pair: Pair) -> Dim:
    """Return rows and columns; one number stands for both."""
    return pair[0], pair[-1]


def line_or_plane(dim: Pair) -> Dim:
    """Return rows and columns; one number is a length, with 1 column."""
    return dim[0], dim[1] if len(dim) > 1 else 1


def _line(pair: Pair) -> Dim:
    return pair[0], 1
