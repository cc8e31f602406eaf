"""How the work of a product is shared out: tiles of results, and splits of the depth.

A product with few results has few tiles, and each walks a long depth: a large GPU is idle then, and waits for
memory. So several work-items share the results of one, each with a part of the depth; their sums are added
in local memory. The numbers are those at which an NVIDIA H200 was fastest; `DeviceSize` scales those of
groups and work-items by the compute units of another device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from mace_target_opencl.options import GROUPS, MEASURED_UNITS, OpenclOptions


@dataclass(frozen=True)
class DeviceSize:
    """How much a device computes at a time.

    max_items: work-items of a group that share results.  compute_units: each computes a group.
    has_local: whether local memory is faster than what main memory is read through.
    """

    max_items: int = GROUPS[0]
    compute_units: int = MEASURED_UNITS
    has_local: bool = True

    @classmethod
    def of(cls, options: OpenclOptions) -> DeviceSize:
        """Return what the options of a model say; of an unknown device, those of the measured one."""
        units = options.compute_units or MEASURED_UNITS
        return cls(options.group_items, units, options.local_memory is not False)

    def scale(self, count: int) -> int:
        """Return how many groups or work-items are to this device what so many are to the measured one."""
        return max(1, count * self.compute_units // MEASURED_UNITS)


@dataclass(frozen=True)
class ProductTile:
    """The results of a group: work-items across columns and down rows, and fours of each in a work-item.

    splits: teams of so many work-items in a group; each team walks a part of the depth.
    """

    across: int
    down: int
    column_parts: int
    row_parts: int
    splits: int = 1

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return 4 * self.across * self.column_parts

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return 4 * self.down * self.row_parts

    @property
    def items(self) -> int:
        """Work-items of the group."""
        return self.across * self.down * self.splits

    def describe(self) -> Mapping[str, object]:
        """Return what templates read of it."""
        return {
            "across": self.across,
            "down": self.down,
            "column_parts": self.column_parts,
            "row_parts": self.row_parts,
            "tile_rows": self.rows,
            "tile_columns": self.columns,
            "splits": self.splits,
        }

    def count_groups(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the groups along the columns and down the rows of a product."""
        return -(-columns // self.columns), -(-rows // self.rows)


LARGE, MEDIUM, SMALL = ProductTile(16, 16, 2, 2), ProductTile(8, 8, 2, 2), ProductTile(8, 8, 1, 1)

TILES = (LARGE, MEDIUM, SMALL)
"""A work-item has 64 sums at most, in registers. The target does not choose the largest; `mace tune` may.

It is 7 % faster than the next one for products of 4096 rows and columns, but wants 256 work-items with 158
registers each: smaller GPUs have no such groups, or spill.
"""

FLAT = ProductTile(8, 4, 1, 1)
"""The tile of products that have few groups of any other tile: half of the rows."""

FLAT_SPLITS = 4

DEEP_SPLITS = 8
"""The same where the depth is long: 5 to 10 % faster than 4 there, and up to 15 % slower elsewhere."""

MAX_FLAT_GROUPS = 64
"""Groups of the smallest tile below which a long depth is shared by eight teams."""

MAX_PLAIN_GROUPS = 40
"""Groups of the smallest tile below which the plain kernel is faster, if its splits are as many as these."""

MIN_PLAIN_SPLITS = 32
"""For 49 rows, a depth of 2048 and 512 columns: 13.3 us in place of 19.8 by tiles of eight teams."""

MIN_DEEP_BLOCKS = 64
"""Blocks of the depth from which on the sums of eight teams take little time beside them."""

BLOCK = 16
"""Elements of the depth that lie in local memory at a time: 8.25 KiB of both factors for 64 rows and columns.

half_arithmetic.PARTIAL counts on it: with arithmetic in f16 the sum of a block is in half precision.
"""

BYTE_BLOCK = 32
"""The same of bytes: half of the memory for twice the depth, and half of the barriers."""

MIN_GROUPS = 96
"""Groups from which on a tile keeps a large GPU busy; below, smaller tiles give it more of them."""

MIN_TILES = 16
"""Groups of the smallest tile below which the plain kernel has more work-items."""

FEW_ROWS = 8
"""Products of so few rows are computed by the plain kernel: most rows of a tile would be empty."""

MANY_GROUPS = 256
"""Groups from which on a compute unit has others to compute while one waits for memory."""

MIN_BLOCKS = 2
"""Blocks of a team: with fewer, adding the sums takes longer than it saves."""


def choose_by_groups(
    rows: int, columns: int, batch: int, blocks: int, size: DeviceSize
) -> ProductTile | None:
    """Return the tile of a product; None where the plain kernel has more work-items.

    blocks: of the depth, over all taps.
    """
    if rows <= FEW_ROWS or not size.has_local:
        return None
    medium, small = (batch * prod(tile.count_groups(rows, columns)) for tile in (MEDIUM, SMALL))
    many = size.scale(MANY_GROUPS)
    if medium >= size.scale(MIN_GROUPS):
        return _split(MEDIUM, 2 if medium < many else 1, blocks, size.max_items)
    if small < size.scale(MIN_TILES):
        return None
    if small < size.scale(MAX_FLAT_GROUPS) and blocks >= MIN_DEEP_BLOCKS:
        return _split(FLAT, DEEP_SPLITS, blocks, size.max_items)
    if small < many:
        return _split(FLAT, FLAT_SPLITS, blocks, size.max_items)
    return _split(SMALL, 2 if small < 2 * many else 1, blocks, size.max_items)


def is_plain_faster(groups: int, blocks: int, splits: int, size: DeviceSize) -> bool:
    """Tell whether the plain kernel is faster than tiles for a product of few results and a long depth.

    groups: of the smallest tile.  blocks: see `choose_by_groups`.  splits: of the plain kernel.
    """
    is_deep = blocks >= MIN_DEEP_BLOCKS and splits >= MIN_PLAIN_SPLITS
    return is_deep and groups < size.scale(MAX_PLAIN_GROUPS)


def _split(tile: ProductTile, splits: int, blocks: int, max_items: int) -> ProductTile:
    while splits > 1 and (blocks < MIN_BLOCKS * splits or splits * tile.items > max_items):
        splits //= 2
    return replace(tile, splits=splits)


MAX_ACROSS, MIN_ACROSS = 16, 4
"""Work-items along the columns: those of the least read 64 bytes of a row, a line of most caches."""

BUSY_ITEMS = 1 << 16
"""Work-items that keep a large GPU busy."""

MIN_STEPS = 4
"""Steps along the depth, of one element or a vector of four, that a work-item makes at least."""


def choose_splits(places: int, steps: int, size: DeviceSize) -> int:
    """Return how many work-items of the plain kernel share a result.

    places: work-items if none do.  steps: of each along the depth.
    """
    splits = 1
    while (
        size.has_local
        and splits < size.max_items // MIN_ACROSS
        and 2 * splits * places <= size.scale(BUSY_ITEMS)
        and 2 * splits * MIN_STEPS <= steps
    ):
        splits *= 2
    # Fewer save less time than the barrier takes.
    return splits if splits > 2 else 1


def split_group(splits: int, max_items: int) -> tuple[int, int, int]:
    """Return the group of the plain kernel whose work-items along the second axis share results."""
    return min(MAX_ACROSS, max_items // splits), splits, 1
