"""Fusion of a depthwise convolution with the pointwise one that alone reads its results: one kernel.

The product by tiles computes the elements of its left factor through the window, in place of loading them:
their bytes are neither written nor read. But each tile along the columns computes them again, so it pays
where one or two tiles hold all columns. A result has the bits of two kernels in f32, because windows and
depth are summed in the same order, and of quantized tensors, whose sums are exact. With storage in half
precision it has the more exact ones: what would be stored between the two kernels is not rounded, unless
arithmetic is in half precision as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from mace_core.emit.text import CIdentifier
from mace_core.ir import DType
from mace_core.program import Call, Kernel, Program
from mace_target_opencl.costs import HYSTERESIS
from mace_target_opencl.enqueue import MAX_OPERANDS, make_kernel, operands_of
from mace_target_opencl.exact import EXACT
from mace_target_opencl.fusion import MAX_STEPS, choose_names, rename_operands
from mace_target_opencl.images import IMAGES
from mace_target_opencl.kernel_operand import QUAD, KernelOperand
from mace_target_opencl.kernel_request import DEPTHWISE
from mace_target_opencl.lower.product_tile import (
    BLOCK,
    BYTE_BLOCK,
    MANY_GROUPS,
    MIN_GROUPS,
    DeviceSize,
    ProductTile,
)
from mace_target_opencl.lower.windows import drop_padded, reaches_over
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import C_TYPES, FLOAT, HALF, INT, UNITS

TILES = (ProductTile(8, 8, 2, 1), ProductTile(8, 8, 4, 1), ProductTile(8, 8, 1, 1), ProductTile(4, 16, 1, 1))
"""Of 64, 128, 32 and 16 columns. Wide ones for few rows: the elements of a row are computed once a tile."""

FLOAT_GROUPS = 192
"""Groups from which on one kernel of floats is faster than two on an H200.

98 took 0.9 to 1.5 times as long as the two kernels, 196 and more 0.5 to 0.9 times.
"""

TAP_COST = 4
"""Multiplications in whose time an element of a window is loaded from a cache, where neighbors have put it.

That of GPUs which load 128 bytes from their first cache in the time of 128 multiplications of floats.
"""


@dataclass(frozen=True)
class Pair:
    """The sizes of a depthwise convolution and of the product that multiplies its results.

    count: pixels.  depth: channels of the first.  columns: those of the second.  taps: of a window.
    unit: bytes of an element that passes between the two.
    """

    count: int
    depth: int
    columns: int
    taps: int
    unit: int = 4

    @property
    def elements(self) -> int:
        """Elements that pass between the two."""
        return self.count * self.depth

    def count_extra(self, tile: ProductTile) -> int:
        """Return the multiplications that two kernels would not make, with the loads of windows as such."""
        across, _ = tile.count_groups(self.count, self.columns)
        idle = across * tile.columns - self.columns
        return self.elements * ((across - 1) * self.taps * TAP_COST + idle)

    def choose_tile(self, min_groups: int = 1) -> ProductTile | None:
        """Return the tile with the least work; None if no tile has so many groups."""
        tiles = [tile for tile in TILES if prod(tile.count_groups(self.count, self.columns)) >= min_groups]
        return min(tiles, key=self.count_extra, default=None)

    def pays(self, tile: ProductTile, options: OpenclOptions) -> bool:
        """Tell whether one kernel is estimated to be clearly faster than two."""
        costs = options.costs
        saved_us = costs.launch_us + 2 * self.elements * self.unit / costs.gpu_gb_s / 1e3
        return self.count_extra(tile) / costs.gpu_gmacs / 1e3 < HYSTERESIS * saved_us


def join_depthwise(first: Call, second: Call, tensor: str, options: OpenclOptions) -> Call | None:
    """Return a call that computes a depthwise convolution and the product that reads it; None if none can.

    tensor: lies between the two.
    """
    params = second.kernel.params
    request = params.get(DEPTHWISE)
    if request is False or not _is_depthwise(first) or not _is_pointwise(second, tensor):
        return None
    if not _agree_on_type(first, second) or not _agree_on_rows(first, second):
        return None
    taps = prod(axis[2] for axis in _read_axes(first))
    count, columns, depth = (int(str(params[key])) for key in ("count", "columns", "depth"))
    pair = Pair(count, depth, columns, taps, _count_bytes(first, options))
    size = DeviceSize.of(options)
    tile = pair.choose_tile(1 if request else size.scale(_choose_groups(pair)))
    if tile is None or not (request or (size.has_local and pair.pays(tile, options))):
        return None
    operands = _Operands.of(first, second, tensor)
    steps: tuple[ElementStep, ...] = params["steps"]  # type: ignore[assignment]
    if len(operands.described) > MAX_OPERANDS or len(operands.window_steps) + len(steps) > MAX_STEPS:
        return None
    kernel = _make_kernel(first, second, operands, tile)
    across, down = tile.count_groups(count, columns)
    sizes = {"global_size": (across * tile.items, down, 1), "local_size": (tile.items, 1, 1)}
    # A tile reads what other groups have not read yet, so its result takes no operand's place.
    return replace(second, kernel=kernel, args=sizes, reads=operands.reads, inplace=False)


def _count_bytes(first: Call, options: OpenclOptions) -> int:
    """Return the bytes of an element between two kernels; floats become halves when calls are fused."""
    kind = operands_of(first)[-1].type
    return 2 if kind == FLOAT and options.storage == "f16" else UNITS[kind]


def _choose_groups(pair: Pair) -> int:
    """Return the least groups of one kernel on the measured device.

    With fewer, two kernels are faster: the second shares its results among more work-items. But with storage
    in half precision they round what passes between them: UltraFace is off by 6.1e-3 of the range then, and
    by less than 5e-3 where pairs of 96 groups are joined. Bytes gain less, because less passes between.
    """
    if pair.unit == UNITS[HALF]:
        return MIN_GROUPS
    return FLOAT_GROUPS if pair.unit == UNITS[FLOAT] else MANY_GROUPS


def _make_kernel(first: Call, second: Call, operands: _Operands, tile: ProductTile) -> Kernel:
    axes, windows = _read_axes(first), first.kernel.params
    has_bytes = _has_bytes(first)
    params: Mapping[str, object] = {
        **{key: value for key, value in second.kernel.params.items() if key in COMMON},
        **tile.describe(),
        "type": windows["type"],
        "block": BYTE_BLOCK if has_bytes else BLOCK,
        "taps": 1,
        # Four channels are read at a time, as image_storage.py asks for.
        "width": QUAD,
        "image": windows["image"],
        "padded": any(map(reaches_over, axes)),
        "window_axes": axes,
        "window_steps": operands.window_steps,
        "operands": operands.described,
        "local_size": (tile.items, 1, 1),
        # Where the depthwise convolution would read its operand from an image, the one kernel does.
        **({IMAGES: True} if windows.get(IMAGES) else {}),
    }
    if has_bytes:
        between = {"zero": windows["zero"], "window_type": operands_of(first)[-1].type}
        params = {**params, **between, **{key: second.kernel.params[key] for key in COMMON_OF_BYTES}}
    return make_kernel("tile_dots" if has_bytes else "tile", params)


def _read_axes(call: Call) -> tuple[tuple[int, ...], ...]:
    """Return the axes of a depthwise convolution as products have them."""
    return drop_padded(call.kernel.params["axes"])  # type: ignore[arg-type]


def drop_requests(program: Program) -> Program:
    """Return the program without what candidates have asked of fusion, when that has been done.

    No source depends on it, so that kernels which come to the same have one name.
    """
    return replace(program, calls=tuple(map(_drop_request, program.calls)))


def _drop_request(call: Call) -> Call:
    params = call.kernel.params
    if DEPTHWISE not in params:
        return call
    others = {name: value for name, value in params.items() if name != DEPTHWISE}
    return replace(call, kernel=make_kernel(call.kernel.template.name.removesuffix(".cl.in"), others))


COMMON = (
    *("count", "columns", "depth", "x_stride", "w_stride", "y_stride", "batch", "x_view", "w_view", "y_view"),
    *("axes", "transposed", "partial", "steps", "is_fusible", "value_type"),
)
"""Parameters that a product has by itself or behind a window."""

COMMON_OF_BYTES = ("dots", "flip", "x_fill", "w_zero", EXACT)
"""More of these where bytes are multiplied."""


def _is_depthwise(call: Call) -> bool:
    """Tell whether a call is a depthwise convolution of floats or of bytes."""
    params = call.kernel.params
    if call.kernel.template.name != "windows.cl.in" or not params["weighted"] or params["width"] != QUAD:
        return False
    has_floats = params["type"] == FLOAT and operands_of(call)[-1].type == FLOAT
    return has_floats or _has_bytes(call)


def _has_bytes(call: Call) -> bool:
    """Tell whether a depthwise convolution sums integers and stores bytes."""
    return call.kernel.params["type"] == INT and operands_of(call)[-1].type in BYTES


BYTES = (C_TYPES[DType.I8], C_TYPES[DType.U8])


def _is_pointwise(call: Call, tensor: str) -> bool:
    """Tell whether a call is a product whose rows are pixels of a tensor."""
    params = call.kernel.params
    if call.kernel.template.name not in PRODUCTS:
        return False
    if params["batch"] != 1 or params["axes"] or params.get("window_axes"):
        return False
    has_shifts = any(str(params.get(key, "")) for key in ("x_shift", "w_shift"))
    factors = {str(operand.name): name for operand, name in zip(operands_of(call), call.reads, strict=False)}
    return not has_shifts and factors["x"] == tensor and factors["w"] != tensor


PRODUCTS = ("product.cl.in", "tile.cl.in", "tile_dots.cl.in")


def _agree_on_type(first: Call, second: Call) -> bool:
    """Tell whether both sum floats, or the product multiplies bytes that the first stores."""
    params = second.kernel.params
    # Bytes are multiplied by `mace_dot` alone: quads of the depth, as the product has its weights then.
    return bool(params.get("dots")) if _has_bytes(first) else params["type"] == FLOAT


def _agree_on_rows(first: Call, second: Call) -> bool:
    """Tell whether the rows of a product are the pixels of the window's result, in quads."""
    windows, product = first.kernel.params, second.kernel.params
    is_dense = product["x_stride"] == product["depth"] == windows["channels"]
    numbers = [int(str(product[key])) for key in ("depth", "columns", "w_stride", "y_stride")]
    is_vector = all(number % QUAD == 0 for number in numbers) and numbers[0] >= BLOCK
    return is_dense and is_vector and product["count"] == windows["count"]


@dataclass(frozen=True)
class _Operands:
    """The operands of both calls under names that are unique.

    described: the operands, the result last.  window_steps: the steps of the first call.
    """

    described: tuple[KernelOperand, ...]
    reads: tuple[str, ...]
    window_steps: tuple[ElementStep, ...]

    @classmethod
    def of(cls, first: Call, second: Call, tensor: str) -> _Operands:
        """Return the operands of both but for the tensor between them."""
        theirs = [pair for pair in zip(operands_of(second), second.reads, strict=False) if pair[1] != tensor]
        others = [operand for operand in operands_of(first) if str(operand.name) not in ("x", "w")]
        names = {
            CIdentifier("x"): CIdentifier("x"),
            CIdentifier("w"): CIdentifier("f"),
            **choose_names(operands_of(second), others),
        }
        pairs = [
            (replace(operand, name=names[operand.name]), name)
            for operand, name in zip(operands_of(first), first.reads, strict=False)
        ]
        described, reads = zip(*chain(pairs, theirs), strict=True)
        steps: Sequence[ElementStep] = first.kernel.params["steps"]  # type: ignore[assignment]
        window_steps = tuple(rename_operands(step, names) for step in steps)
        return cls((*described, operands_of(second)[-1]), reads, window_steps)
