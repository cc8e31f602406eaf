"""The plugin of QEMU is compiled, handed to the emulator, and what it wrote is read."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.qemu_counter import PLUGIN, QemuCounter, build_plugin

CLASSIFIER = """
enum { STEPS, LOADS, KINDS };
static int is_clock_call(int64_t number) { return number == 113; }
static void count_words(const void *words, size_t size, uint64_t *counts) {
  (void)words, (void)size, counts[LOADS]++;
}
"""

EMULATOR = """#!/bin/sh
test "$1" = -plugin || exit 3
test -f "${2%%,marks=*}" || exit 4
printf '10 1\\n25 3\\n' > "${2##*,marks=}"
echo "$3 $4"
"""


def make_counter(folder: Path) -> QemuCounter:
    file = folder / "classify.h.in"
    file.write_text(CLASSIFIER)

    class Steps(QemuCounter):
        names = ("steps", "loads")
        max_macs = 4
        limit = "by a stand-in"
        emulators = ("qemu-stand-in",)
        classifier = file

    return Steps()


def write_emulator(folder: Path, text: str) -> str:
    emulator = folder / "qemu-stand-in-static"
    emulator.write_text(text)
    emulator.chmod(0o755)
    return str(emulator)


@pytest.mark.slow
def test_what_the_plugin_wrote_is_read(tmp_path: Path) -> None:
    counted = make_counter(tmp_path).count([write_emulator(tmp_path, EMULATOR), "program", "--rounds=1"])
    assert counted.printed == "program --rounds=1\n"
    assert counted.readings == ((10, 1), (25, 3))


@pytest.mark.slow
def test_an_emulator_without_plugins_is_named(tmp_path: Path) -> None:
    emulator = write_emulator(tmp_path, "#!/bin/sh\necho unknown option >&2\nexit 1\n")
    with pytest.raises(MaceError, match="unknown option; use a qemu-stand-in that supports plugins"):
        make_counter(tmp_path).count([emulator, "program"])


def test_other_runners_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="adb: counts no steps; build with a toolchain that qemu-stand-in"):
        make_counter(tmp_path).count(["adb", "shell", "program"])


@pytest.mark.slow
def test_the_plugin_is_a_library_of_the_version_that_it_states(tmp_path: Path) -> None:
    counter = make_counter(tmp_path)
    build_plugin(counter.classifier, tmp_path, Registry.load())
    # What QEMU has is bound when it is called.
    library = ctypes.CDLL(str(tmp_path / PLUGIN), mode=1)
    assert ctypes.c_int.in_dll(library, "qemu_plugin_version").value == 1


@pytest.mark.slow
def test_what_the_compiler_says_of_a_classifier_is_passed_on(tmp_path: Path) -> None:
    broken = tmp_path / "broken.h"
    broken.write_text("enum { KINDS = };\n")
    with pytest.raises(MaceError, match="install a C compiler for this machine"):
        build_plugin(broken, tmp_path, Registry.load())
