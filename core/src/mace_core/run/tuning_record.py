"""Keeps what `mace tune` measured, so that a later run goes on where an earlier one ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mace_core.errors import MaceError
from mace_core.json_types import JsonObject
from mace_core.run.files import write
from mace_core.run.results import LayerTime
from mace_core.run.tuning_trials import Series

REMEDY = "delete it: mace tune then measures everything again"


@dataclass(frozen=True)
class TuningRecord:
    """The shortest times of layers, by the digest of the library that they were measured in.

    file: where they lie.  conditions: the devices and the workers that compute, and the version of kernels.
    """

    file: Path
    conditions: str
    times: dict[str, Mapping[int, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, conditions: str) -> TuningRecord:
        """Read what earlier runs wrote, if anything; MaceError for a file that none has written."""
        record = cls(file, conditions)
        if not file.exists():
            return record
        try:
            libraries = JsonObject.parse(file.read_text(encoding="utf-8"), file).object("libraries")
            for digest in libraries.values:
                one = libraries.object(digest)
                record.times[digest] = dict(zip(one.integers("layers"), one.integers("ns"), strict=True))
        except (OSError, ValueError, MaceError):
            raise MaceError(file, "holds no times that mace tune has written", REMEDY) from None
        return record

    def find(self, digest: str) -> tuple[LayerTime, ...]:
        """Return the times of a library's layers; none if it was not measured."""
        return tuple(LayerTime("", "", ns, number) for number, ns in self.times.get(digest, {}).items())

    def write(self, measured: Iterable[Series]) -> None:
        """Add what was measured, and write the file."""
        for series in measured:
            if shortest := series.find_shortest():
                self.times[series.trial.digest(self.conditions)] = shortest
        libraries = {
            digest: {"layers": list(times), "ns": list(times.values())}
            for digest, times in self.times.items()
        }
        write(self.file, json.dumps({"libraries": libraries}).encode())
