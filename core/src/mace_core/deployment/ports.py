"""The inputs and outputs of a model from the keys that describe them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.deployment.faults import Faults
from mace_core.deployment.objects import Port, Preparation
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


KEYS = ("shapes", "data_types", "data_formats", "ranges", "aliases", "mean", "scale", "std", "color")
"""Keys that describe tensors besides their names, without the prefix "input_" or "output_"."""

REVERSED: Mapping[str, bool] = MappingProxyType(
    {"NONE": False, "RGB": False, "BGR": True, "RGB2BGR": True, "BGR2RGB": True}
)
"""Words for the order of colors -> whether channels are reversed."""


WANTED: Mapping[str, str] = MappingProxyType(
    {"mean": "finite numbers", "scale": "finite numbers that are not 0", "std": "finite numbers above 0"}
)
"""Numbers that each key of a preparation accepts."""


def nameless_keys(kind: str, keys: Settings) -> list[str]:
    """The keys that describe inputs or outputs which no key names; empty if they are named."""
    names = keys.get(f"{kind}_tensors")
    if names is not None and names.value:
        return []
    candidates = (*(f"{kind}_{key}" for key in KEYS), f"validation_{kind}s_data")
    return [key for key in candidates if key in keys and keys[key].line and keys[key].value]


def ports(kind: str, keys: Settings, faults: Faults) -> tuple[Port, ...]:
    """The inputs (kind "input") or outputs ("output") that the keys name.

    A count that does not fit is noted.
    """
    return _Side(kind, keys, faults).ports()


@dataclass(frozen=True)
class _Side:
    kind: str
    keys: Settings
    faults: Faults

    def ports(self) -> tuple[Port, ...]:
        names = self._get("tensors")
        if names is None or not names.value:
            self._nameless()
            return ()
        count = len(names.value)
        self._distinct("tensors")
        self._distinct("aliases")
        shapes = self._each("shapes", count, single_row=count == 1)
        dtypes = self._each("data_types", count, spread=True)
        formats = self._each("data_formats", count, spread=True)
        aliases = self._each("aliases", count)
        limits = self._limits(count)
        data = self._data(count)
        prepared = self._preparations(count)
        return tuple(
            Port(
                name,
                shapes[i],
                _dtype(dtypes[i]),
                _order(formats[i]),
                limits[i],
                aliases[i],
                data[i],
                prepared[i],
            )
            for i, name in enumerate(names.value)
        )

    def _get(self, key: str) -> Setting | None:
        setting = self.keys.get(f"{self.kind}_{key}")
        return setting if setting is not None and setting.value is not None else None

    def _nameless(self) -> None:
        names = f"{self.kind}_tensors"
        for key in nameless_keys(self.kind, self.keys):
            self.faults.add(
                self.keys[key].line, f"{key}: there is no {names}", f"name the tensors with {names}"
            )

    def _distinct(self, key: str) -> None:
        setting = self._get(key)
        values = setting.value if setting else ()
        if setting and len(set(values)) < len(values):
            twice = next(v for v in values if values.count(v) > 1)
            self.faults.add(
                setting.line,
                f"{self.kind}_{key}: {twice!r} is there twice",
                "give each tensor a name of its own",
            )

    def _each(
        self, key: str, count: int, *, spread: bool = False, single_row: bool = False
    ) -> tuple[Any, ...]:
        """A value for each tensor; None for each where there is no key or not as many as there are tensors.

        spread: one value holds for all.  single_row: a list of single numbers is one row.
        """
        setting = self._get(key)
        if setting is None:
            return (None,) * count
        values = setting.value
        if single_row and all(len(row) == 1 for row in values) and values:
            values = (tuple(row[0] for row in values),)
        if spread and len(values) == 1:
            values = values * count
        if len(values) != count:
            self.faults.add(*self._describe_miscount(key, setting, count, spread))
            return (None,) * count
        return tuple(values)

    def _describe_miscount(
        self, key: str, setting: Setting, count: int, spread: bool
    ) -> tuple[int, str, str]:
        """Return the fault of a key with a wrong number of values, with a correct example."""
        names: tuple[str, ...] = self.keys[f"{self.kind}_tensors"].value
        problem = f"{self.kind}_{key}: {len(setting.value)} values for {count} {self.kind}_tensors"
        if count == 1 and "," in names[0]:
            listed = ", ".join(part.strip() for part in names[0].split(","))
            return (
                setting.line,
                problem,
                f"{names[0]!r} is one name; write several as a YAML list: {self.kind}_tensors: [{listed}]",
            )
        rows = [_row(value) for value in setting.value]
        example = ", ".join((rows + [f"<of {name}>" for name in names[len(rows) :]])[:count])
        each = "one for all or one for each tensor" if spread else "one for each tensor"
        remedy = f"write a YAML list with {each}: {self.kind}_{key}: [{example}]"
        return setting.line, problem, remedy

    def _preparations(self, count: int) -> tuple[Preparation, ...]:
        """Return what is computed from each input; add a fault for each value that is not allowed."""
        rows: dict[str, tuple[tuple[float, ...], ...]] = {}
        for key in ("mean", "scale", "std"):
            setting = self._get(key)
            single_row = (
                setting is not None
                and len(setting.value) != count
                and all(len(row) == 1 for row in setting.value)
            )
            rows[key] = tuple(row or () for row in self._each(key, count, spread=True, single_row=single_row))
            bad = [number for number in chain.from_iterable(rows[key]) if not _fits(key, number)]
            if setting and bad:
                self.faults.add(
                    setting.line, f"{self.kind}_{key}: {bad[0]:g} is not allowed", f"write {WANTED[key]}"
                )
                rows[key] = ((),) * count
        scale, std = self._get("scale"), self._get("std")
        if scale and std:
            problem = f"{self.kind}_std: {self.kind}_scale is there too"
            self.faults.add(std.line, problem, "write the factor as scale, or the divisor as std, not both")
        colors = self._each("color", count, spread=True)
        reversed_ = tuple(REVERSED[color or "NONE"] for color in colors)
        return tuple(
            Preparation(*row) for row in zip(rows["mean"], rows["scale"], rows["std"], reversed_, strict=True)
        )

    def _limits(self, count: int) -> tuple[tuple[float, float], ...]:
        setting = self._get("ranges")
        if setting is None:
            return (Port.limits,) * count
        single_row = len(setting.value) == 2 and all(len(row) == 1 for row in setting.value)
        rows = self._each("ranges", count, spread=True, single_row=single_row)
        for row in rows:
            if row is not None and not (len(row) == 2 and row[0] < row[1] and all(map(math.isfinite, row))):
                text = ",".join(f"{number:g}" for number in row)
                self.faults.add(
                    setting.line,
                    f"{self.kind}_ranges: {text} is no range",
                    "write the minimum, then the maximum",
                )
                return (Port.limits,) * count
        return tuple(row or Port.limits for row in rows)

    def _data(self, count: int) -> tuple[tuple[str, ...], ...]:
        """Files by tensor: file i belongs to tensor i modulo the number of tensors.

        One .npz holds all tensors.
        """
        setting = self.keys.get(f"validation_{self.kind}s_data")
        files = tuple(map(str, setting.value)) if setting and setting.value else ()
        if len(files) == 1 and files[0].endswith(".npz"):
            return (files,) * count
        if setting and count and len(files) % count:
            problem = f"validation_{self.kind}s_data: {len(files)} files for {count} {self.kind}_tensors"
            self.faults.add(
                setting.line,
                problem,
                "name one file for each tensor, or as many again for each further round",
            )
            return ((),) * count
        return tuple(files[i::count] for i in range(count))


def _fits(key: str, number: float) -> bool:
    return math.isfinite(number) and (key == "mean" or number > 0 or (key == "scale" and number != 0))


def _row(value: object) -> str:
    """A value as one writes it in a YAML list."""
    if not isinstance(value, tuple):
        return str(value)
    text = ",".join(f"{n:g}" if isinstance(n, float) else str(n) for n in value)
    return f'"{text}"'


def _dtype(name: str | None) -> DType | None:
    if name is None:
        return None
    return MODEL_DTYPES.get(name) or DType.of(np.dtype(name))


def _order(data_format: str | None) -> str | None:
    return ORDERS.get(data_format, "NONE") if data_format else None
