"""Weights in the order in which kernels read them: packed at build time where constant, else by a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS

FIELDS = (
    *((n, "i32") for n in ("groups", "columns", "rows", "panel")),
    *((n, "i64") for n in ("group_stride", "column_stride", "row_stride")),
)
PACK = Kernel("pack_f32", KERNELS / "pack.c.in", FIELDS)


@dataclass(frozen=True)
class MatrixPacking:
    """Matrices [groups] of [rows][columns] in a dense tensor, and how to pack them.

    Strides are in elements; the packed order is [groups][panels][rows][panel].
    """

    groups: int
    columns: int
    rows: int
    panel: int
    group_stride: int
    column_stride: int
    row_stride: int

    @property
    def panels(self) -> int:
        """Panels of one matrix."""
        return -(-self.columns // self.panel)

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.groups * self.panels * self.rows * self.panel

    def __call__(self, array: Array) -> Array:
        """Pack an array."""
        flat = np.ascontiguousarray(array, np.float32).reshape(-1)
        shape, steps = (
            (self.groups, self.rows, self.columns),
            (self.group_stride, self.row_stride, self.column_stride),
        )
        # Strides describe every order in which frameworks store filters, without a copy for each.
        view = np.lib.stride_tricks.as_strided(flat, shape, [4 * s for s in steps], writeable=False)
        padded = np.zeros((self.groups, self.rows, self.panels * self.panel), np.float32)
        padded[:, :, : self.columns] = view
        return np.ascontiguousarray(
            padded.reshape(self.groups, self.rows, self.panels, self.panel).transpose(0, 2, 1, 3)
        )


def pack_weights(tensor: str, packing: MatrixPacking, node: Node, lowering: Lowering) -> str:
    """The name of the tensor in packed order; "" for an absent tensor."""
    if not tensor:
        return ""
    array = lowering.constant(tensor)
    if array is not None:
        return lowering.weight(f"{tensor}.packed", (packing.elements,), "f4", lambda: packing(array))
    temporary = lowering.temporary(Tensor(f"{tensor}.packed", DType.F32, (packing.elements,)))
    lowering.call(node, Call(PACK, vars(packing), [tensor], [temporary]))
    return temporary
