"""Shows the operators of a TensorFlow Lite file as the rules of the NPU see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from mace_core.ir import Array

TYPES: Mapping[int, str] = MappingProxyType(
    {number: name for name, number in vars(tflite.TensorType).items() if isinstance(number, int)}
)
"""Number of an element type in a file -> its name there: "INT8"."""

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "ARG_MAX": (1,),
        "EXPAND_DIMS": (1,),
        "MEAN": (1,),
        "MIRROR_PAD": (1,),
        "PAD": (1,),
        "PADV2": (1,),
        "REDUCE_MAX": (1,),
        "REDUCE_MIN": (1,),
        "RESHAPE": (1,),
        "RESIZE_BILINEAR": (1,),
        "RESIZE_NEAREST_NEIGHBOR": (1,),
        "REVERSE_V2": (1,),
        "SLICE": (1, 2),
        "SPLIT": (0,),
        "SPLIT_V": (1, 2),
        "STRIDED_SLICE": (1, 2, 3),
        "SUM": (1,),
        "TILE": (1,),
        "TRANSPOSE": (1,),
        "TRANSPOSE_CONV": (0,),
        # Its weights are twenty tensors, which no rule for weights is about.
        "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 18), *range(20, 24)),
    }
)
"""OperatorView -> inputs that say what it does: axes, shapes, paddings.

All others are feature maps or weights.
"""

WEIGHTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "CONV_2D": (1, 2),
        "DEPTHWISE_CONV_2D": (1, 2),
        "FULLY_CONNECTED": (1, 2),
        "TRANSPOSE_CONV": (1, 3),
    }
)
"""OperatorView -> which inputs are its weights and its bias."""

OptionReader = Callable[[str], Any]


@dataclass(frozen=True)
class TensorView:
    """A tensor of a file.

    dtype: as the format calls it.  scales, zero_points: () without quantization.  data: the elements of a
    constant; None for what is computed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    data: Array | None = None

    @property
    def bits(self) -> int:
        """Bits of an element; 8 for booleans."""
        digits = "".join(filter(str.isdigit, self.dtype))
        return int(digits or 8)


@dataclass(frozen=True)
class OperatorView:
    """An operator of a file with its tensors.

    code: the format's name of it.  option: returns a field of its options by the name in the schema; None
    where the operator has no options.
    """

    code: str
    inputs: tuple[TensorView | None, ...]
    outputs: tuple[TensorView, ...]
    option: OptionReader = field(compare=False, default=lambda _: None)

    @property
    def feature_inputs(self) -> tuple[TensorView, ...]:
        """The inputs that the NPU computes with, weights left out."""
        others = {*PARAMETERS.get(self.code, ()), *WEIGHTS.get(self.code, ())}
        return tuple(t for i, t in enumerate(self.inputs) if t is not None and i not in others)

    @property
    def feature_maps(self) -> tuple[TensorView, ...]:
        """The inputs that the NPU computes with, and the results."""
        return (*self.feature_inputs, *self.outputs)

    @property
    def ifm(self) -> TensorView:
        """The first feature map that it reads."""
        return self.feature_inputs[0]

    @property
    def ofm(self) -> TensorView:
        """Its first result."""
        return self.outputs[0]

    @property
    def parameters(self) -> tuple[TensorView, ...]:
        """The inputs that say what it does."""
        indices = PARAMETERS.get(self.code, ())
        return tuple(t for i, t in enumerate(self.inputs) if t is not None and i in indices)

    @property
    def weights(self) -> TensorView | None:
        """Its weights; None for an operator without."""
        return self._input(WEIGHTS[self.code][0]) if self.code in WEIGHTS else None

    @property
    def bias(self) -> TensorView | None:
        """Its bias; None for an operator without."""
        return self._input(WEIGHTS[self.code][1]) if self.code in WEIGHTS else None

    def _input(self, index: int) -> TensorView | None:
        return self.inputs[index] if index < len(self.inputs) else None


def read_operators(content: bytes) -> list[OperatorView]:
    """Return the operators of the first subgraph of a file, in order."""
    model = tflite.Model.GetRootAs(content, 0)
    subgraph = model.Subgraphs(0)
    tensors = [_read_tensor(model, subgraph.Tensors(i)) for i in range(subgraph.TensorsLength())]
    return list(_read_all(model, subgraph, tensors))


def _read_all(model: Any, subgraph: Any, tensors: list[TensorView]) -> Iterator[OperatorView]:
    for number in range(subgraph.OperatorsLength()):
        operator = subgraph.Operators(number)
        code = model.OperatorCodes(operator.OpcodeIndex())
        # Newer files have a longer field; the short one of old files ends with a number for "see there".
        opcode = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        inputs = [operator.Inputs(i) for i in range(operator.InputsLength())]
        outputs = [operator.Outputs(i) for i in range(operator.OutputsLength())]
        yield OperatorView(
            tflite.opcode2name(opcode),
            tuple(tensors[i] if i >= 0 else None for i in inputs),
            tuple(tensors[i] for i in outputs),
            _option_reader(operator),
        )


def _option_reader(operator: Any) -> OptionReader:
    """Return a function that reads a field of an operator's options."""
    table = operator.BuiltinOptions()
    if table is None:
        return lambda _: None
    kinds = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}
    options = getattr(tflite, kinds[operator.BuiltinOptionsType()])()
    options.Init(table.Bytes, table.Pos)
    # A field that the table lacks raises AttributeError, by which checks of strides and dilations know it.
    return lambda name: getattr(options, name)()


def _read_tensor(model: Any, tensor: Any) -> TensorView:
    quantization = tensor.Quantization()
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    if quantization is not None and quantization.ScaleLength():
        scales = tuple(map(float, quantization.ScaleAsNumpy()))
        zero_points = (0,)
        if quantization.ZeroPointLength():
            zero_points = tuple(map(int, quantization.ZeroPointAsNumpy()))
    shape = tuple(map(int, tensor.ShapeAsNumpy())) if tensor.ShapeLength() else ()
    dtype = TYPES[tensor.Type()]
    return TensorView(
        tensor.Name().decode("utf-8", "replace"),
        dtype,
        shape,
        scales,
        zero_points,
        _read_data(model.Buffers(tensor.Buffer()), dtype, shape),
    )


def _read_data(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Array | None:
    """Return a constant's elements; None for a tensor without data, or of a type without numbers."""
    if not buffer.DataLength() or not hasattr(np, dtype.lower()):
        return None
    # A FlatBuffer is little-endian on every machine.
    data: Array = np.frombuffer(buffer.DataAsNumpy().tobytes(), np.dtype(dtype.lower()).newbyteorder("<"))
    return data.reshape(shape) if data.size == np.prod(shape, dtype=np.int64) else None
