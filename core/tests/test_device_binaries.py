"""What devices compile, and what is assembled of it: only what the device takes replaces its own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from candidates_target import Grouping

from mace_core.compiled_entry import CompiledEntry
from mace_core.device_code import AssemblingTarget
from mace_core.errors import MaceError
from mace_core.report import LibraryReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.device_binaries import BinaryCollector, DeviceBinaries
from mace_core.run.runners import Native

Take = Callable[[str], bool]
"""Tells whether a device takes code."""


def write_entry(code: str, driver: str = "grouping") -> bytes:
    return CompiledEntry(f"{driver}\0facts\0".encode(), code.encode()).write()


COMPILED = {"a.bin": write_entry("half a"), "b.bin": write_entry("half b")}


@dataclass(frozen=True)
class Device(BuiltLibrary):
    """A library whose device compiles these entries, and overwrites what it does not take."""

    compiled: Mapping[str, bytes] = field(default_factory=lambda: COMPILED)
    takes: Take = lambda code: True

    def execute(self, program: str, arguments: Sequence[str]) -> str:
        """Do what a session does with a cache."""
        assert (program, arguments[:2]) == ("mace_benchmark", ["--model=m", "--rounds=1"])
        folder = Path(arguments[2].removeprefix("--compiled="))
        for key, content in self.compiled.items():
            file = folder / key
            if not file.exists() or not self.takes(CompiledEntry.read(file.read_bytes(), key).code.decode()):
                file.write_bytes(content)
        return ""


class Assembling(Grouping, AssemblingTarget):
    """Makes whole what is half."""

    def assemble(self, code: bytes) -> bytes | None:
        """Fail for what is broken."""
        if code == b"broken":
            raise MaceError("assembler", "is missing", "install it")
        return code.replace(b"half", b"whole") if code.startswith(b"half") else None


def collect(
    folder: Path,
    takes: Take = lambda code: True,
    compiled: Mapping[str, bytes] = COMPILED,
    kind: type[Grouping] = Assembling,
) -> DeviceBinaries:
    """Return what is collected of the device."""
    (folder / "target").mkdir()
    device = Device(folder, Native(), LibraryReport({}), compiled, takes)
    return BinaryCollector.of(device, "m", [kind(folder / "target")], folder, lambda step: None).collect()


def test_assembled_code_takes_the_place_of_what_the_device_compiled(tmp_path: Path) -> None:
    binaries = collect(tmp_path)
    assert binaries.entries == {"a.bin": write_entry("whole a"), "b.bin": write_entry("whole b")}
    assert binaries.notes == (
        "a.bin is assembled for the device, which loads it without compiling",
        "b.bin is assembled for the device, which loads it without compiling",
    )
    files = binaries.write(tmp_path, "m", ("GPU: x/../y", "GPU: x/../y", "z" * 90))
    assert [file.name for file in files] == [
        f"m.GPU-x-y-{'z' * 52}.0.bin",
        f"m.GPU-x-y-{'z' * 52}.1.bin",
    ]
    assert files[1].read_bytes() == write_entry("whole b")


def test_what_the_device_does_not_take_stays_as_it_was(tmp_path: Path) -> None:
    binaries = collect(tmp_path, lambda code: code != "whole b")
    assert binaries.entries == {"a.bin": write_entry("whole a"), "b.bin": write_entry("half b")}
    assert binaries.notes[1] == (
        "b.bin: the device does not take it assembled, so it stays as the driver wrote it"
    )


def test_a_device_that_fails_with_assembled_code_keeps_its_own(tmp_path: Path) -> None:
    def fail(code: str) -> bool:
        raise MaceError("mace_benchmark", "exited with status -11", "report a bug")

    binaries = collect(tmp_path, fail)
    assert binaries.entries == COMPILED
    (fault, *others) = binaries.notes
    assert fault.startswith("the device does not compute with assembled kernels: mace_benchmark: exited with")
    assert len(others) == 2
    assert all("so it stays as the driver wrote it" in other for other in others)


def test_targets_without_an_assembler_load_nothing_twice(tmp_path: Path) -> None:
    assert collect(tmp_path, kind=Grouping) == DeviceBinaries(COMPILED)
    assert not (tmp_path / "m-binaries" / "assembled").exists()


def test_a_missing_tool_is_told_once(tmp_path: Path) -> None:
    compiled = {key: write_entry("broken") for key in ("a.bin", "b.bin")}
    binaries = collect(tmp_path, compiled=compiled)
    assert binaries == DeviceBinaries(compiled, ("assembler: is missing; install it",))


def test_code_of_other_drivers_and_damaged_files_are_left_alone(tmp_path: Path) -> None:
    compiled = {"a.bin": write_entry("half a", "other"), "b.bin": b"MACEKERN", "c.bin": write_entry("whole")}
    binaries = collect(tmp_path, compiled=compiled)
    assert binaries.entries == compiled
    (note,) = binaries.notes
    assert note.startswith("b.bin: holds no compiled kernels, or damaged ones")
