"""The graph: frozen data that every stage reads and none changes.

Activations are NHWC (batch, spatial axes, channels), filters OHWI (out, spatial axes, in / group); see
docs/architecture.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mace_core.attributes import Attributes
from mace_core.numerics import Numerics

if TYPE_CHECKING:
    from mace_core.ops.op import Op

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
A = TypeVar("A", bound=Attributes)


MAX_ELEMENTS = 1 << 32
"""Elements of a tensor; more is damage, or a mistake in a shape."""

MAX_RANK = 8
"""Axes of a model's inputs and outputs: what `mace_tensor` describes."""


class DType(Enum):
    """The type of one element of a tensor."""

    BOOL = "bool"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    U16 = "u16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    F16 = "f16"
    F32 = "f32"
    F64 = "f64"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that holds it."""
        return np.dtype("bool" if self is DType.BOOL else f"{self.value[0]}{int(self.value[1:]) // 8}")

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Tell whether it is a floating-point type."""
        return self.value[0] == "f"

    @classmethod
    def of(cls, array: Array | np.dtype[Any]) -> DType:
        """The type of an array's elements; ValueError for one that the IR does not hold."""
        dtype = array if isinstance(array, np.dtype) else array.dtype
        return _FROM_NUMPY[dtype.newbyteorder("=").str.lstrip("<=|>")]


# numpy spells its types by kind and bytes ("f4"); ours count bits ("f32").
_FROM_NUMPY: Mapping[str, DType] = MappingProxyType({t.numpy.str.lstrip("<=|>"): t for t in DType})


@dataclass(frozen=True, slots=True)
class Quant:
    """real = scale * (stored - zero_point), per tensor or along one axis."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @classmethod
    def of(cls, scale: float, zero_point: int = 0) -> Quant:
        """One scale for a whole tensor."""
        return cls((float(scale),), (int(zero_point),))


@dataclass(frozen=True, slots=True)
class Storage:
    """The integer type and quantization with which real numbers are stored."""

    dtype: DType
    quant: Quant

    @property
    def has_axis(self) -> bool:
        """Tell whether the scales lie along an axis, which a Transpose or Reshape would move."""
        return self.quant.axis is not None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A description of a tensor, never its data.

    quant: how its stored integers stand for real numbers; None if its elements are what they are.
    """

    name: str
    dtype: DType
    shape: Shape
    quant: Quant | None = None

    @property
    def storage(self) -> Storage | None:
        """The storage of its real numbers as integers; None if it is not quantized."""
        return Storage(self.dtype, self.quant) if self.quant else None

    @property
    def real(self) -> Tensor:
        """The tensor as an op sees it: real numbers, however they are stored."""
        return Tensor(self.name, DType.F32, self.shape) if self.quant else self

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes it takes, dense."""
        return self.elements * self.dtype.size

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype.value}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an op.

    inputs: tensor names; "" stands for an optional input that is absent.
    attrs: complete, defaults filled in (see `Op.attrs`).
    sources: names of the model's own nodes that this one computes.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes = field(default_factory=Attributes)
    sources: tuple[str, ...] = ()

    def attributes(self, kind: type[A]) -> A:
        """Return the attributes as those of a family of ops; TypeError if they are of another one."""
        if isinstance(self.attrs, kind):
            return self.attrs
        owned = type(self.attrs).__name__
        raise TypeError(f"node {self.name!r} ({self.op.name}) has {owned}, not {kind.__name__}")

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.op.name}({', '.join(self.inputs)})"


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """Describes a tensor whose value lasts from one run of a model to the next.

    input: the graph input that holds the value before a run.
    output: the graph output that holds the value after it, of the same shape, type and quantization.
    start: the value before the first run and after a reset, in the elements that the tensor stores.
    """

    input: str
    output: str
    start: Array

    @property
    def is_stored(self) -> bool:
        """Tell whether the start value is not all zeros; a session sets zeros without stored data.

        -0.0 is not zero.
        """
        return bool(self.start.tobytes().strip(b"\0"))

    @property
    def start_text(self) -> str:
        """The start value in words: one number for all elements, or that there are several."""
        values = np.unique(self.start)
        return str(values[0]) if values.size == 1 else "an array of the model file"

    def __str__(self) -> str:
        """Describe it for messages: name, type, shape, start value."""
        return (
            f"{self.input}:{DType.of(self.start).value}{list(self.start.shape)}, at first {self.start_text}"
        )


@dataclass(frozen=True, slots=True)
class Graph:
    """A model: nodes in execution order, descriptions of all tensors, and the data of constants.

    notes: what a frontend decided in the user's place, in words, each with what to write to decide otherwise;
    and what a transform left out of the model.
    states: what lasts from run to run. Their inputs and outputs are among `inputs` and `outputs`, and are no
    ports of the application.
    origin: what a frontend read it from, for targets that know more of it than the graph says; None where no
    target does.
    numerics: the rule by which its quantized nodes round, as the deployment file states it.
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    origin: object | None = field(default=None, compare=False, repr=False)
    numerics: Numerics = Numerics.SINGLE_ROUNDING

    @property
    def port_inputs(self) -> tuple[str, ...]:
        """The inputs that the application gives: all but the states."""
        owned = {state.input for state in self.states}
        return tuple(name for name in self.inputs if name not in owned)

    @property
    def port_outputs(self) -> tuple[str, ...]:
        """The outputs that the application gets: all but the states."""
        owned = {state.output for state in self.states}
        return tuple(name for name in self.outputs if name not in owned)

    def inputs_of(self, node: Node) -> tuple[Tensor | None, ...]:
        """The node's input tensors; None for an absent optional one."""
        return tuple(self.tensors[i] if i else None for i in node.inputs)

    def outputs_of(self, node: Node) -> tuple[Tensor, ...]:
        """The node's output tensors."""
        return tuple(self.tensors[o] for o in node.outputs)

    def uses(self) -> dict[str, int]:
        """Count how often each tensor is read; a graph output counts as one reading."""
        counts = dict.fromkeys(self.tensors, 0)
        for name in self._readings():
            counts[name] += 1
        return counts

    def _readings(self) -> Iterator[str]:
        yield from self.outputs
        for node in self.nodes:
            yield from filter(None, node.inputs)

    def with_name(self, name: str) -> Graph:
        """Return the same graph under another name."""
        return replace(self, name=name)


def frozen(array: Array) -> Array:
    """A read-only, contiguous, native-endian view of an array (a copy only where one is needed)."""
    view = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape).view()
    view.flags.writeable = False
    return view
