"""Lets devices compile the parts of a library, and assembles what drivers would compile at each load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mace_core.api import Target
from mace_core.compiled_entry import CompiledEntry
from mace_core.device_code import AssemblingTarget
from mace_core.errors import MaceError
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.tuning_job import TOOL

MAX_DEVICE = 60
"""Characters of the device's name in the names of files."""


@dataclass(frozen=True)
class DeviceBinaries:
    """What devices compiled of a model.

    entries: by the keys of a cache.  notes: what was assembled, and why not.
    """

    entries: Mapping[str, bytes]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path, model: str, devices: Iterable[str]) -> tuple[Path, ...]:
        """Write a file for each part, named after the model and the devices; return the paths."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", " ".join(dict.fromkeys(devices)))[:MAX_DEVICE].strip("-")
        files = []
        for number, content in enumerate(self.entries.values()):
            files.append(folder / f"{model}.{device}.{number}.bin")
            files[-1].write_bytes(content)
        return tuple(files)


@dataclass(frozen=True)
class BinaryCollector:
    """Takes what devices compile of a model of a library.

    assemblers: targets that finish the code of their drivers, by the names of these.
    folder: for the files that the library reads and writes.
    """

    built: BuiltLibrary
    model: str
    assemblers: Mapping[str, AssemblingTarget]
    folder: Path
    step: Callable[[str], None]

    @classmethod
    def of(
        cls,
        built: BuiltLibrary,
        model: str,
        targets: Iterable[Target],
        folder: Path,
        step: Callable[[str], None],
    ) -> BinaryCollector:
        """Return the collector for a model whose regions these targets compute.

        Drivers have the names of their targets.  folder: of all models.
        """
        assemblers = {target.name: target for target in targets if isinstance(target, AssemblingTarget)}
        return cls(built, model, assemblers, folder / f"{model}-binaries", step)

    def collect(self) -> DeviceBinaries:
        """Return what the devices compile, with the code of the machine where they take it."""
        compiled = self._load("compiled", {})
        notes: list[str] = []
        assembled = dict(self._assemble(compiled, notes))
        if not assembled:
            return DeviceBinaries(compiled, tuple(notes))
        self.step(f"{self.model}: loading the assembled kernels on the device")
        try:
            loaded = self._load("assembled", {**compiled, **assembled})
        except MaceError as error:
            # Also a driver that ends the process: its own code is what it computes with.
            loaded = compiled
            notes.append(f"the device does not compute with assembled kernels: {error}")
        accepted = {key: content for key, content in assembled.items() if loaded.get(key) == content}
        notes += [self._describe(key, key in accepted) for key in assembled]
        return DeviceBinaries({**compiled, **accepted}, tuple(notes))

    def _load(self, name: str, entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the entries after sessions that load these.

        A session overwrites an entry that its device does not take, and adds those that are missing.
        """
        folder = self.folder / name
        folder.mkdir(parents=True)
        for key, content in entries.items():
            (folder / key).write_bytes(content)
        options = [f"--model={self.model}", "--rounds=1", f"--compiled={folder.resolve()}"]
        self.built.execute(TOOL, [*options, *self.built.list_session_options(self.model)])
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}

    def _assemble(self, entries: Mapping[str, bytes], notes: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each entry that an assembler finishes, with its key; append each fault to the notes."""
        if not self.assemblers:
            return
        faults = []
        for key, content in entries.items():
            try:
                entry = CompiledEntry.read(content, key)
                assembler = self.assemblers.get(entry.driver)
                code = assembler.assemble(entry.code) if assembler else None
            except MaceError as error:
                faults.append(str(error))
                continue
            if code is not None:
                yield key, CompiledEntry(entry.facts, code).write()
        # A tool that is missing is reported once, and not for each part.
        notes += dict.fromkeys(faults)

    def _describe(self, key: str, is_accepted: bool) -> str:
        if is_accepted:
            return f"{key} is assembled for the device, which loads it without compiling"
        return f"{key}: the device does not take it assembled, so it stays as the driver wrote it"
