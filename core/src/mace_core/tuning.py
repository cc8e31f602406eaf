"""Reads tuning files, which name candidates where measurements are better than the cost model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mace_core.ir import Tensor
from mace_core.json_types import Json
from mace_core.selection import NodeKey

if TYPE_CHECKING:
    from mace_core.deployment import Model

TUNING = "tuning"
"""The deployment key that names a tuning file."""


@dataclass(frozen=True)
class TuningEntry:
    """Names the candidate for some nodes at some levels.

    node: by name; or op and shapes: all nodes of an op whose operands have these types and shapes, see
    `shape_key`.
    abi, target, level: at these only; "" for every one.
    line: of the file.
    """

    candidate: str
    line: int
    node: str = ""
    op: str = ""
    shapes: str = ""
    target: str = ""
    level: str = ""
    abi: str = ""

    @property
    def subject(self) -> str:
        """The nodes that it is about, in words."""
        return f"node {self.node!r}" if self.node else f"op {self.op!r} of {self.shapes!r}"

    @property
    def rank(self) -> tuple[bool, ...]:
        """How specific it is: of two entries about one node at one level, the more specific one wins."""
        return bool(self.node), bool(self.level), bool(self.target), bool(self.abi)

    def is_about(self, key: NodeKey) -> bool:
        """Tell whether it is about a node, at some level."""
        is_same = self.node == key.node if self.node else (self.op, self.shapes) == (key.op, key.shapes)
        return is_same and self.target in ("", key.target)


@dataclass(frozen=True)
class Tuning:
    """The content of a tuning file; without a file there are no entries.

    costs: numbers of the cost models of targets, by target and name; they hold for every ABI.
    """

    file: Path | None = None
    entries: tuple[TuningEntry, ...] = ()
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)

    def place(self, entry: TuningEntry) -> str:
        """Return the file and line of an entry, for messages."""
        return f"{self.file}:{entry.line}"

    def find(self, key: NodeKey, level: str) -> TuningEntry | None:
        """The entry that decides about a node at a level; None if the cost does."""
        matching = [entry for entry in self.entries if entry.level in ("", level) and entry.is_about(key)]
        return max(matching, key=lambda entry: entry.rank, default=None)


NO_TUNING = Tuning()


def shape_key(tensors: Sequence[Tensor]) -> str:
    """Write the types and shapes of a node's operands as tuning files do: "f32 1x8x8x3, f32 16x3x3x3".

    Absent ones are left out.
    """
    return ", ".join(_describe(tensor) for tensor in tensors)


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype.value} {'x'.join(map(str, tensor.shape)) or 'scalar'}"


def tuning_file(model: Model) -> Path | None:
    """The tuning file that the deployment file names for a model; None if it names none."""
    path = model.keys.get(TUNING)
    return Path(str(path)) if path else None


def tuning_of(model: Model, abi: str) -> Tuning:
    """Read the entries of a model's tuning file for an ABI; MaceError lists all faults of the file."""
    file = tuning_file(model)
    if not file:
        return NO_TUNING
    tuning = read_tuning(file)
    # One file serves all ABIs of a deployment: what it says about others is not checked against the levels of
    # this one.
    return replace(tuning, entries=tuple(entry for entry in tuning.entries if entry.abi in ("", abi)))


def read_tuning(file: Path) -> Tuning:
    """Read a tuning file; raises MaceError with all its faults, each with its line."""
    # YAML and its checks are not needed where there is no such file.
    from mace_core.deployment.faults import Faults
    from mace_core.deployment.schema import Schema
    from mace_core.deployment.values import read_document

    faults = Faults(file)
    document = read_document(Schema.read("tuning"), faults)
    entries: list[TuningEntry] = []
    for number, written in enumerate(document.items("choices")):
        # The schema says that each is a mapping of strings; a fault may have taken the candidate away.
        words = {key: str(word) for key, word in written.items()}
        entry = TuningEntry(line=document.line("choices", number), **{"candidate": "", **words})
        entries.append(entry)
        if problem := _problem(entry):
            faults.add(entry.line, problem, "write node, or op and shapes, as `mace explain` shows them")
    for entry, earlier in _find_repeated(entries):
        faults.add(
            entry.line,
            f"{entry.subject} was chosen for at the same levels in line {earlier.line}",
            "keep one of them",
        )
    faults.check()
    costs = {target: _read_numbers(document.mapping("costs", target)) for target in document.mapping("costs")}
    return Tuning(file, tuple(entries), costs)


def _read_numbers(stated: Json) -> dict[str, float]:
    """Return the numbers of a mapping; the schema has refused all else."""
    return {name: float(value) for name, value in stated.items() if isinstance(value, int | float)}


def _problem(entry: TuningEntry) -> str | None:
    """Return what is wrong with the nodes that an entry states; None if it is clear which they are."""
    if entry.node and (entry.op or entry.shapes):
        return "names a node and an op; they are two ways to say which nodes it is about"
    if not entry.node and not (entry.op and entry.shapes):
        return "does not say which nodes it is about"
    return None


def _find_repeated(entries: Sequence[TuningEntry]) -> Iterator[tuple[TuningEntry, TuningEntry]]:
    """Yield the entries about nodes and levels that an earlier one is about."""
    seen: dict[tuple[str, ...], TuningEntry] = {}
    for entry in entries:
        key = (entry.node, entry.op, entry.shapes, entry.abi, entry.target, entry.level)
        if key in seen:
            yield entry, seen[key]
        seen.setdefault(key, entry)


def write_tuning(
    file: Path,
    entries: Sequence[Mapping[str, str]],
    head: str,
    costs: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> None:
    """Write a tuning file.  head: what its first line says of it.  costs: as `Tuning` has them."""
    # JSON is YAML, and spells every name as a string, whatever a model calls its nodes.
    lines = [f"# {' '.join(head.split())}", "choices:" if entries else "choices: []"]
    lines += [f"  - {json.dumps(dict(entry))}" for entry in entries]
    lines += ["costs:"] if costs else []
    lines += [f"  {json.dumps(target)}: {json.dumps(dict(numbers))}" for target, numbers in costs.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
