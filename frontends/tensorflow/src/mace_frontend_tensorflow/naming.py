"""A builder for graphs of many nodes."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.build import Builder
from mace_core.ops.op import Op


class ManyNodes(Builder):
    """A builder that finds a free name at once, however many tensors there are: loops that are written out make tens of thousands."""

    def __init__(self, name: str, ops: Mapping[str, Op] | None = None) -> None:
        super().__init__(name, ops)
        self._numbers: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A tensor name that is not taken: the stem, or the stem with a number."""
        name = stem
        while name in self.tensors or name in self.reserved:
            self._numbers[stem] = self._numbers.get(stem, 0) + 1
            name = f"{stem}.{self._numbers[stem]}"
        return name
