"""Strips of an image: what some windows see of it, copied once with its borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_core.program import Arg
from mace_target_cpu.lower.conv import Filters
from mace_target_cpu.lower.igemm import TILE_ALIGNMENT, padded_depth, tile_bytes

SLACK = 64
"""Bytes behind a strip that its last copy and its last quad may touch."""


@dataclass(frozen=True)
class Strip:
    """The strip of a block of windows, as igemm_strip.h.in makes it.

    pieces, piece: what a window is in a strip, and the bytes of each.
    bytes: of the strip.  rows: windows of a block.  depth: elements of a window.
    is_plane: windows lie in a plane, so that lines follow each other in the image.
    """

    pieces: int
    piece: int
    bytes: int
    rows: int
    depth: int
    is_plane: bool

    @classmethod
    def from_geometry(cls, geometry: Mapping[str, Arg], filters: Filters, rows: int) -> Strip:
        """Of the arguments of a kernel's GEOMETRY and its blocks of rows."""
        kernel, out, strides, dilations = (
            np.array(geometry[name]) for name in ("kernel", "out", "stride", "dilation")
        )
        inner = filters.depth // max(1, int(kernel.prod()))
        # A block that begins within a line ends within one more.
        lines = min(int(out[1]), (rows - 1) // max(1, int(out[2])) + 2)
        height, width = (
            (count - 1) * int(strides[i]) + (int(kernel[i]) - 1) * int(dilations[i]) + 1
            for i, count in ((1, lines), (2, int(out[2])))
        )
        is_contiguous = dilations[2] == 1
        pieces = int(kernel[1]) if is_contiguous else int(kernel[1] * kernel[2])
        piece = int(kernel[2]) * inner if is_contiguous else inner
        is_plane = bool(
            kernel[0] == 1 and strides[0] == 1 and geometry["in"] and np.array(geometry["pad"])[0] == 0
        )
        is_plane &= bool(np.array(geometry["in"])[0] == out[0])
        return cls(pieces, piece, height * width * inner + SLACK, rows, filters.depth, is_plane)

    @property
    def pays(self) -> bool:
        """Whether it is smaller than the gathered windows, which it never is for windows of one pixel."""
        return self.is_plane and self.pieces * self.piece > 0 and self.bytes <= self.rows * self.depth

    @property
    def pads(self) -> bool:
        """Whether pieces end with a part of a quad, so that weights need zeros there."""
        return self.piece % 4 != 0

    @property
    def scratch(self) -> int:
        """Bytes of scratch: two numbers for each row, one for each quad, the strip, aligned, and tiles."""
        depth = self.pieces * padded_depth(self.piece)
        return 8 * self.rows + depth + TILE_ALIGNMENT + self.bytes + tile_bytes(self.rows, depth)

    def pad_pieces(self, matrices: Array) -> Array:
        """Return matrices [count, depth, columns] with zeros behind each piece up to a whole quad."""
        count, _, columns = matrices.shape
        full = np.zeros((count, self.pieces, padded_depth(self.piece), columns), matrices.dtype)
        full[:, :, : self.piece] = matrices.reshape(count, self.pieces, self.piece, columns)
        return full.reshape(count, -1, columns)
