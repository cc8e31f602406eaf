"""Describes the instruction-set levels that the kernels of a library are compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources.abc import Traversable

from mace_core.emit.text import CIdentifier, Code


@dataclass(frozen=True)
class Level:
    """A level of an instruction set that kernels are compiled for.

    A target derives a frozen class of its own where its templates need more, such as the width of a vector
    register or the tile that a matrix kernel keeps in registers: a template sees the level as `level`. Core
    reads the fields here only.

    available: C expression that is true on a processor that has it; "" for what every processor of the ABI
    has.
    prelude: template of the C that all kernels of the level see (vector types and the like).
    probe: template of the C functions that `available` calls; None if it calls none.
    """

    name: str
    flags: tuple[str, ...]
    available: str
    prelude: Traversable
    probe: Traversable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", CIdentifier(self.name))
        # `available` is text of a target's author: levels are stated before anything of a model is known.
        object.__setattr__(self, "available", Code(self.available))
