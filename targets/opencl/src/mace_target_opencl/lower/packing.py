"""Weights in the order in which a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType, Node, Shape, Tensor
from mace_core.lowering import Lowering
from mace_target_opencl.kernel_operand import ImageForm
from mace_target_opencl.lower.maps import Map, enqueue_map_to
from mace_target_opencl.views import View, dense


@dataclass(frozen=True)
class WeightOrder:
    """A transposition.  shape: as which the weights are seen.  order: their axes in the packed form.

    image: the form of the packed weights where they lie in an image. Those of an image and of a buffer are
    two constants, also where their order is the same: a tensor lies in one of them alone.
    """

    shape: Shape
    order: tuple[int, ...]
    image: ImageForm | None = None


def pack(lowering: Lowering, node: Node, name: str, arrangement: WeightOrder) -> str:
    """Return weights of f32 in another order: packed at build time if constant, else on the device."""
    shape, order = arrangement.shape, arrangement.order
    packed = tuple(shape[axis] for axis in order)
    constant = lowering.constant(name)
    if constant is None:
        steps = dense(shape)
        result = lowering.temporary(Tensor(f"{name}_packed", DType.F32, packed))
        view = View.of((shape[axis], steps[axis]) for axis in order)
        enqueue_map_to(lowering, node, Map(name, view), result)
        return result
    array = constant

    def make() -> Array:
        return np.ascontiguousarray(array.reshape(shape).transpose(order))

    # Nodes that share weights share the packed ones.
    return lowering.once(
        (name, arrangement), lambda: lowering.weight(f"{name}_packed", packed, "float32", make)
    )
