"""The operand of a kernel, and the form of one that lies in an image."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Shape

QUAD = 4
"""Elements of a pixel."""

MAX_SIDE = 8192
"""Pixels of a row and of a column that every device of OpenCL 1.2's full profile takes."""


@dataclass(frozen=True)
class ImageForm:
    """A tensor [rows, columns, 4 * quads] as an image of `rows` rows and quads * columns pixels each."""

    rows: int
    columns: int
    quads: int = 1

    @property
    def width(self) -> int:
        """Pixels of a row."""
        return self.columns * self.quads

    @property
    def fits(self) -> bool:
        """Whether every device of the full profile has images of this size."""
        return 0 < self.rows <= MAX_SIDE and 0 < self.width <= MAX_SIDE

    @classmethod
    def of_activation(cls, shape: Shape) -> ImageForm | None:
        """Return the form of a tensor [N, H, W, C]; None for a shape that has none."""
        # `mace_pixel` divides the index of an element, which knows no channels that only fill a pixel.
        if len(shape) != 4 or shape[3] % QUAD:
            return None
        form = cls(shape[0] * shape[1], shape[2], shape[3] // QUAD)
        return form if form.fits else None


@dataclass(frozen=True)
class KernelOperand:
    """An argument of a kernel.

    type: as which its elements are stored.  elements: of the tensor.  image: the form of a tensor that lies
    in an image; None for one in a buffer.
    """

    name: CIdentifier
    type: Code
    elements: int
    is_written: bool = False
    image: ImageForm | None = None
