"""DFT and SquaredDistance."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from mace_core.ir import Array, Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.dft import DFTAttributes
from mace_core.ops.shapes import axis_of
from mace_target_opencl.enqueue import Launch, enqueue
from mace_target_opencl.lower.product import MatrixProduct, enqueue_product
from mace_target_opencl.lower.sizes import square_group
from mace_target_opencl.types import need_floats

MAX_MATRIX = 1 << 22
"""Elements of the matrix of a DFT, 16 MiB: frames of audio have 400 to 1024 samples, and need 2^20."""


def dft(node: Node, lowering: Lowering) -> None:
    """Append the product with the matrix of a transform, which is what the op computes of unit vectors."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    need_floats(x)
    attrs = node.attributes(DFTAttributes)
    if axis_of(attrs.axis, len(x.shape)) != len(x.shape) - 2:
        reason = "transforms another axis than the last before that of the complex numbers"
        raise Refused(reason, code="shape", remedy="transpose the tensor before the node")
    count, parts = x.shape[-2:]
    inputs = _count_inputs(attrs, count)
    depth, columns = inputs * parts, prod(y.shape[-2:])
    if depth * columns > MAX_MATRIX:
        reason = f"the matrix of {inputs} elements to {y.shape[-2]} has more than {MAX_MATRIX} numbers"
        raise Refused(reason, code="too-large", remedy="let the processor compute it by its fast transform")

    def make() -> Array:
        units = np.eye(depth, dtype=np.float64).reshape(depth, inputs, parts)
        # In double precision, so that each number is rounded once.
        (matrix,) = node.op.compute([units], DFTAttributes(attrs.length, -2, attrs.inverse, attrs.onesided))
        return np.ascontiguousarray(matrix.reshape(depth, columns), np.float32)

    matrix = lowering.once(
        ("dft", inputs, parts, attrs),
        lambda: lowering.weight(f"{y.name}.matrix", (depth, columns), "float32", make),
    )
    rows = prod(x.shape[:-2])
    # A row of x may be longer than what the transform reads of it.
    product = MatrixProduct(x.name, matrix, y.name, rows, columns, depth, (count * parts, columns, columns))
    enqueue_product(lowering, node, product)


def _count_inputs(attrs: DFTAttributes, count: int) -> int:
    """Return the elements of the axis that the transform reads; it cuts off the others."""
    is_half = attrs.inverse and attrs.onesided
    return min(count, attrs.length // 2 + 1 if is_half else attrs.length)


def squared_distance(node: Node, lowering: Lowering) -> None:
    """Append the call that computes the distance of each pair of rows."""
    x, y = (lowering.tensors[name] for name in node.inputs)
    need_floats(x, y)
    constants = {"rows": x.shape[0], "others": y.shape[0], "depth": x.shape[1]}
    sizes = (y.shape[0], x.shape[0], 1)
    reads = {"x": x.name, "w": y.name}
    group = square_group(y.shape[0])
    launch = Launch("squared_distance", reads, {"y": node.outputs[0]}, sizes, constants, group, ())
    enqueue(lowering, node, launch)


LOWERINGS: Mapping[str, Lower] = {"DFT": dft, "SquaredDistance": squared_distance}
