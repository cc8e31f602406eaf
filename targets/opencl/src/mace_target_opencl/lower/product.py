"""Products over a depth: convolutions, and products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Shape
from mace_core.lowering import Lower, Lowering, Refused
from mace_target_opencl.enqueue import Launch, enqueue
from mace_target_opencl.exact import mark_exact
from mace_target_opencl.images import IMAGES
from mace_target_opencl.kernel_operand import ImageForm
from mace_target_opencl.kernel_request import DEPTHWISE
from mace_target_opencl.lower.finish import finish_steps
from mace_target_opencl.lower.product_tile import (
    BLOCK,
    BYTE_BLOCK,
    SMALL,
    TILES,
    DeviceSize,
    ProductTile,
    choose_by_groups,
    choose_splits,
    is_plain_faster,
    split_group,
)
from mace_target_opencl.lower.sizes import choose_group, read_device_size, read_request
from mace_target_opencl.lower.unary import wrap_type
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import FLOAT, INT, refuse_type
from mace_target_opencl.views import View, dense

ROWS = 4
"""Rows of a work-item: each weight that it loads serves so many."""


@dataclass(frozen=True)
class IntegerSums:
    """What a product of quantized tensors needs beside that of floats.

    zeros: zero points of x and w, which are subtracted from each element.  types: of constants, in C.
    dots: whether four bytes of the depth are multiplied at a time; steps subtract then what the zero point
    of x adds.  flips: of such bytes, whether x is unsigned.
    """

    zeros: tuple[int, int]
    types: Mapping[str, Code]
    dots: bool = False
    flips: bool = False


def _describe_dots(integer: IntegerSums) -> Mapping[str, object]:
    x_zero, w_zero = integer.zeros
    return {
        **mark_exact(True),
        "type": INT,
        "value_type": INT,
        "dots": True,
        # mace_dot multiplies signed bytes: flipping the first bit of an unsigned one subtracts 128.
        "flip": integer.flips,
        # Padding is the zero point, so that the correction by the sum of all weights holds at the edge too.
        "x_fill": x_zero - 128 if integer.flips else x_zero,
        "w_zero": w_zero,
    }


@dataclass(frozen=True)
class MatrixProduct:
    """The numbers of product.cl.in that depend on the op.

    x, w: tensors.  batch: number of products; views: where each begins in x, w and y.
    strides: elements from one row to the next in x, w and y.
    shifts: operands that are subtracted from each element of x and w, by name; see `_shift`.
    filters: the form of w where it lies in an image.
    depthwise: see `KernelRequest`; None where the target decides.
    """

    x: str
    w: str
    y: str
    count: int
    columns: int
    depth: int
    strides: tuple[int, int, int]
    batch: int = 1
    views: tuple[View, View, View] = (View((), ()),) * 3
    axes: tuple[tuple[int, ...], ...] = ()
    image: int = 0
    padded: bool = False
    transposed: bool = False
    shifts: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[ElementStep, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    integer: IntegerSums | None = None
    filters: ImageForm | None = None
    depthwise: bool | None = None


def enqueue_finished(lowering: Lowering, node: Node, product: MatrixProduct) -> None:
    """Append the call of a product, with the bias and limits of the node."""
    y = lowering.tensors[node.outputs[0]]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    steps = finish_steps(node, y, lowering.tensors[bias] if bias else None)
    others = {"bias": bias} if bias else {}
    enqueue_product(lowering, node, replace(product, steps=steps, others=others))


def enqueue_product(lowering: Lowering, node: Node, product: MatrixProduct) -> None:
    """Append the call of a product: by tiles in local memory if it is large."""
    request = read_request(lowering)
    tile = None
    # The templates of tiles read buffers alone.
    if product.filters is None:
        tile = choose_tile(lowering, product)
    if tile is not None:
        enqueue_tiles(lowering, node, product, tile)
        return
    is_float = lowering.tensors[product.x].dtype.is_float
    # Other integers are summed without sign, and OpenCL C converts vectors only where that is written.
    is_vector = is_float or product.integer is not None
    width = 4 if is_vector and product.columns % 4 == 0 and product.strides[1] % 4 == 0 else 1
    # A vector of x is loaded whole, which wants each row to begin at a multiple of four: one that is cut off
    # for a transform may not.
    is_deep = is_vector and product.depth % 4 == 0 and product.strides[0] % 4 == 0
    # A work-item with more rows than there are would compute the last one several times.
    rows = min(request.rows or ROWS, max(1, product.count))
    constants = {
        **_constants(product),
        "type": FLOAT if is_float else Code(wrap_type(lowering.tensors[product.x].dtype)),
        "deep": 4 if is_deep else 1,
        "rows": rows,
        "width": width,
        **_describe_shifts(product),
        **({IMAGES: True} if product.filters else {}),
    }
    down = -(-product.count // rows)
    places = product.columns // width * down * product.batch
    # Groups that a candidate asks for have their shape from it.
    splits = request.splits if request.group is None else 1
    size = read_device_size(lowering)
    if splits is None:
        splits = choose_splits(places, product.depth // (4 if is_deep else 1), size)
    group = choose_group(lowering, product.columns // width)
    if splits > 1:
        group = split_group(splits, size.max_items)
    constants |= {"splits": splits, "across": group[0] if splits > 1 else 0}
    launch = Launch(
        "product",
        {"x": product.x, "w": product.w, **product.shifts, **product.others},
        {"y": product.y},
        (product.columns // width, down * splits, product.batch),
        constants,
        group,
        product.steps,
        product.integer.types if product.integer else {},
        images={"w": product.filters} if product.filters else {},
    )
    enqueue(lowering, node, launch)


def _constants(product: MatrixProduct) -> dict[str, object]:
    """Return what both templates of products read."""
    x_view, w_view, y_view = product.views
    x_stride, w_stride, y_stride = product.strides
    return {
        "count": product.count,
        "columns": product.columns,
        "depth": product.depth,
        "x_stride": x_stride,
        "w_stride": w_stride,
        "y_stride": y_stride,
        "batch": product.batch,
        "x_view": x_view,
        "w_view": w_view,
        "y_view": y_view,
        "axes": product.axes,
        "image": product.image,
        "padded": product.padded,
        "transposed": product.transposed,
        "partial": 0,
        **({} if product.depthwise is None else {DEPTHWISE: product.depthwise}),
    }


def choose_tile(lowering: Lowering, product: MatrixProduct) -> ProductTile | None:
    """Return the tile of a product; None for one that the plain kernel computes.

    Raises Refused for a product that cannot be computed by the tile that a candidate requests.
    """
    dtype, request = lowering.tensors[product.x].dtype, read_request(lowering)
    if request.tile is None:
        size = read_device_size(lowering)
        return _choose_by_groups(product, size) if _is_tileable(dtype, product) else None
    tile = next((tile for tile in TILES if tile.columns == request.tile), None)
    if tile is None:
        return None
    if not _is_tileable(dtype, product):
        reason = f"tiles of {request.tile} columns need f32 or bytes, and multiples of 4 everywhere"
        raise Refused(reason, code="shape", remedy="leave the choice to the target")
    splits = request.splits or 1
    if splits > 1 and _has_dots(product):
        raise Refused("tiles of bytes are not split", code="shape", remedy="leave the choice to the target")
    return replace(tile, splits=splits)


def _is_tileable(dtype: DType, product: MatrixProduct) -> bool:
    numbers = (product.columns, product.depth, *product.strides, product.image)
    is_vector = (dtype is DType.F32 or _has_dots(product)) and all(number % 4 == 0 for number in numbers)
    is_aligned = all(step % 4 == 0 for step in (axis[6] for axis in product.axes))
    is_aligned = is_aligned and all(_has_aligned_steps(view) for view in product.views)
    # No tile has the geometry of a transposed convolution; below a block of depth it would multiply zeros.
    return is_vector and is_aligned and not product.transposed and product.depth >= _choose_block(product)


def _has_dots(product: MatrixProduct) -> bool:
    return product.integer is not None and product.integer.dots


def _choose_block(product: MatrixProduct) -> int:
    return BYTE_BLOCK if _has_dots(product) else BLOCK


def _choose_by_groups(product: MatrixProduct, size: DeviceSize) -> ProductTile | None:
    block = _choose_block(product)
    blocks = prod(axis[2] for axis in product.axes) * -(-product.depth // block)
    tile = choose_by_groups(product.count, product.columns, product.batch, blocks, size)
    if tile is None:
        return None
    if _has_dots(product):
        # The template of bytes has no teams, without which nothing was measured of half of the rows.
        return SMALL if tile.rows < SMALL.rows else replace(tile, splits=1)
    groups = product.batch * prod(SMALL.count_groups(product.count, product.columns))
    places = product.batch * (product.columns // 4) * -(-product.count // ROWS)
    is_plain = is_plain_faster(groups, blocks, choose_splits(places, product.depth // 4, size), size)
    return None if is_plain else tile


def _has_aligned_steps(view: View) -> bool:
    return all(step % 4 == 0 for step in view.strides)


def enqueue_tiles(lowering: Lowering, node: Node, product: MatrixProduct, tile: ProductTile) -> None:
    """Append the call of a product by tiles."""
    constants = {
        **_constants(product),
        **(_describe_dots(product.integer) if product.integer else {"type": FLOAT}),
        **tile.describe(),
        "block": _choose_block(product),
        "taps": prod(axis[2] for axis in product.axes),
        "window_axes": (),
    }
    across, down = tile.count_groups(product.count, product.columns)
    launch = Launch(
        "tile_dots" if product.integer else "tile",
        {"x": product.x, "w": product.w, **product.others},
        {"y": product.y},
        # A group lies along one axis: an item loads for another place of the tile than it multiplies for.
        (across * tile.items, down, product.batch),
        constants,
        (tile.items, 1, 1),
        product.steps,
        product.integer.types if product.integer else {},
    )
    enqueue(lowering, node, launch)


def _describe_shifts(product: MatrixProduct) -> Mapping[str, object]:
    """Return what is subtracted from each element of a factor, and the types of integers without wrapping."""
    integer = product.integer
    if integer is not None and integer.dots:
        return _describe_dots(integer)
    if integer is None:
        loads = {name: Code(f" - LOAD_{name}(0)") for name in product.shifts}
        return {
            "dots": False,
            "x_shift": loads.get("x_zero", Code("")),
            "w_shift": loads.get("w_zero", Code("")),
        }
    x_zero, w_zero = (Code(f" - ({zero})" if zero else "") for zero in integer.zeros)
    sums = {**mark_exact(True), "type": INT, "value_type": INT}
    return {**sums, "dots": False, "x_shift": x_zero, "w_shift": w_zero}


def matmul(node: Node, lowering: Lowering) -> None:
    """Any product of matrices; many left factors with one right factor are one product of more rows."""
    a = lowering.tensors[node.inputs[0]]
    if a.dtype in (DType.F16, DType.F64, DType.BOOL):
        raise refuse_type(node.op.name, a.dtype)
    enqueue_finished(lowering, node, plan_product(node, lowering))


def matmul_integer(node: Node, lowering: Lowering) -> None:
    """A product of eight-bit integers less their zero points, in 32 bits."""
    zeros = dict(zip(("x_zero", "w_zero"), node.inputs[2:], strict=False))
    shifts = {name: zero for name, zero in zeros.items() if zero}
    enqueue_product(lowering, node, replace(plan_product(node, lowering), shifts=shifts))


def plan_product(node: Node, lowering: Lowering) -> MatrixProduct:
    """Return the product of the node's first two operands."""
    a, b = (lowering.tensors[name] for name in node.inputs[:2])
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    rows, (depth, columns) = left[-2], right[-2:]
    batch: Shape = np.broadcast_shapes(left[:-2], right[:-2])
    views = (
        View.of(_batch_loops(left, batch)),
        View.of(_batch_loops(right, batch)),
        View.of([(prod(batch), rows * columns)]),
    )
    if prod(right[:-2]) == 1:
        rows, batch, views = rows * prod(left[:-2]), (), (View((), ()),) * 3
    strides = (depth, columns, columns)
    return MatrixProduct(a.name, b.name, node.outputs[0], rows, columns, depth, strides, prod(batch), views)


def _batch_loops(shape: Shape, batch: Shape) -> list[tuple[int, int]]:
    """Return how each batch axis moves through a stack of matrices, not at all where it is broadcast."""
    padded = (1,) * (len(batch) + 2 - len(shape)) + shape
    steps = dense(padded)
    return [(n, 0 if padded[axis] == 1 else steps[axis]) for axis, n in enumerate(batch)]


LOWERINGS: Mapping[str, Lower] = {
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
}
