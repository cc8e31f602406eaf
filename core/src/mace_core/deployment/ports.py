"""The inputs and outputs of a model from the keys that describe them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.deployment.faults import Faults
from mace_core.deployment.objects import Port
from mace_core.ir import DType

ORDERS: Mapping[str, str | None] = MappingProxyType({"NHWC": "NHWC", "NCHW": "NCHW", "AUTO": None})
"""Data format -> order of axes; every other format is one that MACE does not permute."""

MODEL_DTYPES: Mapping[str, DType] = MappingProxyType({"bfloat16": DType.F32})
"""Data types that numpy does not have."""


@dataclass(frozen=True)
class Setting:
    """A key's value as `convert` makes it, and its line; line 0 for a default."""

    value: Any
    line: int


Settings = Mapping[str, Setting]


def ports(kind: str, keys: Settings, faults: Faults) -> tuple[Port, ...]:
    """The inputs (kind "input") or outputs ("output") that the keys name; a count that does not fit is noted."""
    return _Side(kind, keys, faults).ports()


@dataclass(frozen=True)
class _Side:
    kind: str
    keys: Settings
    faults: Faults

    def ports(self) -> tuple[Port, ...]:
        names = self._get("tensors")
        if names is None:
            self._nameless()
            return ()
        count = len(names.value)
        self._distinct("tensors")
        self._distinct("aliases")
        shapes = self._each("shapes", count, joined=count == 1)
        dtypes = self._each("data_types", count, spread=True)
        formats = self._each("data_formats", count, spread=True)
        aliases = self._each("aliases", count)
        limits = self._limits(count)
        data = self._data(count)
        return tuple(
            Port(name, shapes[i], _dtype(dtypes[i]), _order(formats[i]), limits[i], aliases[i], data[i])
            for i, name in enumerate(names.value)
        )

    def _get(self, what: str) -> Setting | None:
        found = self.keys.get(f"{self.kind}_{what}")
        return found if found is not None and found.value is not None else None

    def _nameless(self) -> None:
        for what in ("shapes", "data_types", "data_formats", "ranges", "aliases"):
            if (found := self._get(what)) is not None and found.line:
                names = f"{self.kind}_tensors"
                self.faults.add(found.line, f"{self.kind}_{what}: there is no {names}", f"name the tensors with {names}")

    def _distinct(self, what: str) -> None:
        found = self._get(what)
        values = found.value if found else ()
        if found and len(set(values)) < len(values):
            twice = next(v for v in values if values.count(v) > 1)
            self.faults.add(found.line, f"{self.kind}_{what}: {twice!r} is there twice", "give each tensor a name of its own")

    def _each(self, what: str, count: int, *, spread: bool = False, joined: bool = False) -> tuple[Any, ...]:
        """A value for each tensor; None for each where there is no key or not as many as there are tensors.

        spread: one value holds for all.  joined: a list of single numbers is one row of numbers.
        """
        found = self._get(what)
        if found is None:
            return (None,) * count
        values = found.value
        if joined and all(len(row) == 1 for row in values) and values:
            values = (tuple(row[0] for row in values),)
        if spread and len(values) == 1:
            values = values * count
        if len(values) != count:
            tensors = f"{self.kind}_tensors"
            remedy = f"write {'one for all or ' if spread else ''}one for each tensor"
            self.faults.add(found.line, f"{self.kind}_{what}: {len(values)} values for {count} {tensors}", remedy)
            return (None,) * count
        return tuple(values)

    def _limits(self, count: int) -> tuple[tuple[float, float], ...]:
        found = self._get("ranges")
        if found is None:
            return (Port.limits,) * count
        joined = len(found.value) == 2 and all(len(row) == 1 for row in found.value)
        rows = self._each("ranges", count, spread=True, joined=joined)
        for row in rows:
            if row is not None and not (len(row) == 2 and row[0] < row[1] and all(map(math.isfinite, row))):
                text = ",".join(f"{number:g}" for number in row)
                self.faults.add(found.line, f"{self.kind}_ranges: {text} is no range", "write the least, then the greatest value")
                return (Port.limits,) * count
        return tuple(row or Port.limits for row in rows)

    def _data(self, count: int) -> tuple[tuple[str, ...], ...]:
        """Files by tensor: file i belongs to tensor i modulo the number of tensors; one .npz holds all tensors."""
        found = self.keys.get(f"validation_{self.kind}s_data")
        files = tuple(map(str, found.value)) if found and found.value else ()
        if len(files) == 1 and files[0].endswith(".npz"):
            return (files,) * count
        if found and count and len(files) % count:
            problem = f"validation_{self.kind}s_data: {len(files)} files for {count} {self.kind}_tensors"
            self.faults.add(found.line, problem, "name one file for each tensor, or as many again for each further round")
            return ((),) * count
        return tuple(files[i::count] for i in range(count))


def _dtype(name: str | None) -> DType | None:
    if name is None:
        return None
    return MODEL_DTYPES.get(name) or DType.of(np.dtype(name))


def _order(data_format: str | None) -> str | None:
    return ORDERS.get(data_format, "NONE") if data_format else None
