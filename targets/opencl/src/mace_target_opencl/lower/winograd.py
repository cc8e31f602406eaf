"""Convolutions of 3 x 3 windows by Winograd's minimal filtering: fewer products for a few sums more.

A tile of m x m results needs (m + 2) x (m + 2) products for each pair of channels instead of 9 m x m: 2.25
times fewer for m = 2, four times for m = 4, by the matrices of `mace_core.winograd`. Their sums cancel, so
that errors grow with m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lowering
from mace_core.ops.conv import ConvAttributes
from mace_core.winograd import WINDOW, Matrix, is_within, transform_filters, transforms
from mace_target_opencl.enqueue import Launch, enqueue
from mace_target_opencl.lower.finish import finish_steps
from mace_target_opencl.lower.product import MatrixProduct, enqueue_product
from mace_target_opencl.lower.sizes import square_group
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.types import literal
from mace_target_opencl.views import View

MIN_CHANNELS = 16
"""Channels of both sides below which the transforms take longer than the products that they spare."""

MIN_TILES = 16
"""Tiles of an image below which the product of each place has too few rows to keep a GPU busy."""


WIDTHS: Mapping[int, int] = {2: 4, 4: 1}
"""Tile -> channels of a work-item that transforms; its registers hold (m + 2) * (m + 2) numbers of each."""


def read_tile(node: Node, lowering: Lowering) -> int:
    """Return the m of a convolution; 0 for one that is computed directly."""
    options = lowering.parameters
    assert isinstance(options, OpenclOptions)
    # In half precision the differences of a tile of 4 lose too much: measured 2e-2 of the range, 7e-4 for 2.
    largest = min(options.winograd, 2 if options.storage == "f16" else max(WIDTHS))
    x, w, y = (lowering.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
    attrs, weights = node.attributes(ConvAttributes), lowering.constant(w.name)
    is_square = w.shape[1:-1] == (WINDOW, WINDOW) and {*attrs.strides} == {*attrs.dilations} == {1}
    # Filters that are computed would have to be transformed in each run.
    if not is_square or attrs.group != 1 or weights is None:
        return 0
    channels = (x.shape[-1], y.shape[-1])
    if min(channels) < MIN_CHANNELS or any(count % 4 for count in channels):
        return 0
    for tile in sorted(WIDTHS, reverse=True):
        is_allowed = tile <= largest and prod(_count_tiles(y, tile)) >= MIN_TILES
        if is_allowed and is_within(weights, tile, options.winograd_error):
            return tile
    return 0


def _count_tiles(y: Tensor, tile: int) -> tuple[int, int, int]:
    """Return images, and tiles down and across each."""
    images, height, width = y.shape[:-1]
    return images, -(-height // tile), -(-width // tile)


def enqueue_winograd(lowering: Lowering, node: Node, tile: int) -> None:
    """Append the calls: the data transformed, a product for each of (m + 2)^2 places, the results."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    places, tiles = (tile + WINDOW - 1) ** 2, prod(_count_tiles(y, tile))
    depth, columns = x.shape[-1], y.shape[-1]
    # Places come first, so that those of each are a matrix, and all of them a batch of products.
    data = lowering.temporary(Tensor(f"{x.name}.tiles", DType.F32, (places, tiles, depth)))
    products = lowering.temporary(Tensor(f"{y.name}.tiles", DType.F32, (places, tiles, columns)))
    _enqueue_data(lowering, node, tile, data)
    steps = (depth, columns, columns)
    sizes = (tiles * depth, depth * columns, tiles * columns)
    views = tuple(View.of([(places, size)]) for size in sizes)
    product = MatrixProduct(
        data,
        _transform_filters(lowering, node, tile),
        products,
        tiles,
        columns,
        depth,
        steps,
        places,
        (views[0], views[1], views[2]),
    )
    enqueue_product(lowering, node, product)
    _enqueue_results(lowering, node, tile, products)


def _transform_filters(lowering: Lowering, node: Node, tile: int) -> str:
    """Return the filters as [places, depth, columns]."""
    name = node.inputs[1]
    weights = lowering.constant(name)
    assert weights is not None
    columns, _, _, depth = weights.shape
    shape = ((tile + WINDOW - 1) ** 2, depth, columns)
    return lowering.once(
        (name, "winograd", tile),
        lambda: lowering.weight(
            f"{name}_winograd", shape, "float32", lambda: transform_filters(weights, tile)
        ),
    )


def _enqueue_data(lowering: Lowering, node: Node, tile: int, data: str) -> None:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    data_matrix, pads = transforms(tile).data, node.attributes(ConvAttributes).pads_before
    _, height, width, channels = x.shape
    across, tiles = channels // WIDTHS[tile], _count_tiles(y, tile)
    constants = {
        **_describe(tiles, tile, channels),
        "height": height,
        "image_width": width,
        "pads": tuple(pads),
        "rows": _spell_rows(data_matrix, "d"),
        "columns": _spell_rows(data_matrix, "g"),
    }
    sizes = (across, prod(tiles), 1)
    launch = Launch("winograd_data", {"x": x.name}, {"y": data}, sizes, constants, square_group(across))
    enqueue(lowering, node, launch)


def _enqueue_results(lowering: Lowering, node: Node, tile: int, products: str) -> None:
    y = lowering.tensors[node.outputs[0]]
    results_matrix = transforms(tile).results
    _, height, width, channels = y.shape
    across, tiles = channels // WIDTHS[tile], _count_tiles(y, tile)
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    constants = {
        **_describe(tiles, tile, channels),
        "height": height,
        "image_width": width,
        "rows": _spell_rows(results_matrix, "d"),
        "columns": _spell_rows(results_matrix, "g"),
    }
    launch = Launch(
        "winograd_results",
        {"x": products, **({"bias": bias} if bias else {})},
        {"y": y.name},
        (across, prod(tiles), 1),
        constants,
        square_group(across),
        finish_steps(node, y, lowering.tensors[bias] if bias else None),
    )
    enqueue(lowering, node, launch)


def _describe(tiles: tuple[int, int, int], tile: int, channels: int) -> dict[str, object]:
    """Return what both templates of transforms read."""
    _, down, across = tiles
    return {
        "tiles": prod(tiles),
        "down": down,
        "across": across,
        "tile": tile,
        "side": tile + WINDOW - 1,
        "channels": channels,
        "width": WIDTHS[tile],
    }


def _spell_rows(matrix: Matrix, name: str) -> tuple[Code, ...]:
    """Return the product of each row of a matrix with numbers NAME0, NAME1 and so on, as C expressions."""
    return tuple(_spell_row(row, name) for row in matrix)


def _spell_row(row: Sequence[Fraction], name: str) -> Code:
    # Zeros are left out here: compilers keep a product with 0, which is NaN for an infinity.
    terms = [_spell_term(factor, f"{name}{number}") for number, factor in enumerate(row) if factor]
    return Code(" ".join(terms).removeprefix("+ "))


def _spell_term(factor: Fraction, name: str) -> str:
    sign = "-" if factor < 0 else "+"
    return f"{sign} {name}" if abs(factor) == 1 else f"{sign} {literal(float(abs(factor)))} * {name}"
