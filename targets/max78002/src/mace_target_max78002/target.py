"""The target: the MAX78000's, with the larger part's table."""

from __future__ import annotations

from typing import ClassVar

from mace_target_max78000.device import Chip
from mace_target_max78000.target import Max78000
from mace_target_max78002.device import MAX78002


class Max78002(Max78000):
    """The CNN accelerator of the MAX78002, behind its Cortex-M4."""

    name = "max78002"
    device = "max78002"
    chip: ClassVar[Chip] = MAX78002
