"""Instruction-set levels: what the kernels of a library are compiled for, and how they are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources.abc import Traversable
from itertools import chain
from typing import TYPE_CHECKING

from mace_core.emit.text import CIdentifier, Code
from mace_core.errors import MaceError

if TYPE_CHECKING:
    from mace_core.api import Target


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
    helpers: templates of C functions that the kernels of the level need besides their own helpers.
    replaces: templates that stand for those of the same file name: the same functions or the same kernel,
    with the same parameters, written for the level.
    peak: C source of a program that prints what one core can do, see `run/operators.py`; None if unknown.
    """

    name: str
    flags: tuple[str, ...]
    available: str
    prelude: Traversable
    probe: Traversable | None = None
    helpers: tuple[Traversable, ...] = ()
    replaces: tuple[Traversable, ...] = ()
    peak: Traversable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", CIdentifier(self.name))
        # `available` is text of a target's author: levels are stated before anything of a model is known.
        object.__setattr__(self, "available", Code(self.available))

    def choose_template(self, template: Traversable) -> Traversable:
        """Return what stands for a template at this level, most often itself."""
        return next((other for other in self.replaces if other.name == template.name), template)


def choose_levels(targets: Sequence[Target], abi: str, names: tuple[str, ...]) -> tuple[Target, ...]:
    """Return the targets with the named levels each, and always with that for every processor of the ABI.

    names: () for the levels that each target chooses itself. MaceError for a name that none of them knows.
    """
    if not names:
        return tuple(targets)
    levels = chain.from_iterable(target.known_levels(abi) for target in targets)
    known = dict.fromkeys(str(level.name) for level in levels)
    unknown = [name for name in names if name not in known]
    if unknown:
        problem = f"no level {', '.join(unknown)} for {abi}"
        raise MaceError("cpu_features", problem, f"choose among {', '.join(known) or 'none'}")
    return tuple(_restrict(target, abi, names) for target in targets)


@cache
def _restrict(target: Target, abi: str, names: tuple[str, ...]) -> Target:
    """Return the target with these of its levels; the same object each time, since targets are compared."""
    known = target.known_levels(abi)
    return with_levels(target, [level for level in known if level.name in names or level is known[-1]])


@cache
def add_flags(target: Target, abi: str, flags: tuple[str, ...]) -> Target:
    """Return the target with further flags of its levels; the same object each time."""
    levels = target.levels(abi)
    if not flags or not levels:
        return target
    return with_levels(target, [replace(level, flags=(*level.flags, *flags)) for level in levels])


def with_levels(target: Target, levels: Sequence[Level]) -> Target:
    """Return the target with other levels."""
    chosen = tuple(levels)
    # The class states its module, because it would get that of its metaclass, of which no file can be read.
    members = {"levels": lambda _self, _abi: chosen, "__module__": type(target).__module__}
    derived = type(type(target).__name__, (type(target),), members)
    leveled = copy(target)
    leveled.__class__ = derived
    return leveled
