"""Identity: another name for a tensor."""

from __future__ import annotations

from mace_core.ops.op import Op
from mace_core.ops.shapes import keep, same

OPS = (Op("Identity", ("x",), ("y",), same, lambda x: x, move=keep, moves=True),)
