"""Sessions and their engine, in C: the contract of drivers held against a fake device, and what the headers promise about linking."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from mace_core.build_manifest import ENGINE
from mace_core.testing.requirements import require

pytestmark = pytest.mark.slow  # a compiler makes every program

HEAP = Path(str(files("mace_core") / "testing/heap.h"))
RUNTIME = Path(str(files("mace_core") / "runtime"))
SOURCES = Path(__file__).parent / "engine"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{RUNTIME}", f"-I{SOURCES}")
FLAGS = ("-std=gnu11", "-g", "-O0", *STRICT)
THUMB = ("arm-none-eabi-gcc", "-mthumb")
TESTS = re.findall(
    r"^static void test_(\w+)\(void\)",
    "".join(p.read_text() for p in sorted(SOURCES.glob("*_test*"))),
    re.MULTILINE,
)
SESSION = """#include "mace.h"
const mace_functions functions = {sizeof(mace_functions), MACE_ABI, mace_session_bytes, mace_open, mace_run, mace_run_batch, mace_reset,
                                  mace_bind, mace_observe, mace_part_device, mace_error, mace_close, mace_submit, mace_wait,
                                  mace_allocate, mace_layer_ns, mace_notify, mace_part_units};
"""


def compile_program(name: str, folder: Path, flags: tuple[str, ...]) -> Path:
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    units = [SOURCES / f"{name}.c", SOURCES / "fake_driver.c", *(RUNTIME / unit for unit in ENGINE)]
    subprocess.run(["gcc", *FLAGS, *flags, *units, "-o", folder / name], check=True)
    return folder / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return compile_program("engine_test", tmp_path_factory.mktemp("engine"), sanitize)


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_driver_contract(name: str, program: Path) -> None:
    done = subprocess.run([program, name], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[:2000]


def test_every_test_of_the_program_is_run(program: Path) -> None:
    listed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == sorted(TESTS)
    assert len(TESTS) == 49


@pytest.mark.slow
def test_sessions_in_threads(tmp_path: Path) -> None:
    """Under the thread sanitizer, which ends the program with a status of its own for every race."""
    program = compile_program("thread_test", tmp_path, ("-fsanitize=thread", "-pthread"))
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[:2000]
    assert "found the session busy" in done.stdout
    assert "notified of 2000 runs" in done.stdout


@pytest.mark.slow
def test_nothing_asks_for_the_heap(tmp_path: Path) -> None:
    """Sessions, the engine, and drivers without the flag MACE_ALLOCATES, in every call; the one with the flag is counted."""
    require(None if platform.libc_ver()[0] == "glibc" else "the heap is counted with the GNU C library only")
    program = compile_program("heap_test", tmp_path, (f"-I{HEAP.parent}",))
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.slow
@pytest.mark.sampled(cases="m0")
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "cortex-m7"])
def test_a_bare_machine_with_a_driver_links_without_an_allocator(cpu: str, tmp_path: Path) -> None:
    """Neither C library nor start-up code: an allocator that anything asked for would be undefined."""
    require(None if shutil.which(THUMB[0]) else f"{THUMB[0]} is not installed")
    units = [SOURCES / "bare.c", SOURCES / "bare_driver.c", *(RUNTIME / unit for unit in ENGINE)]
    flags = ("-std=gnu11", "-Os", "-ffreestanding", "-fno-tree-loop-distribute-patterns", *STRICT)
    link = ("-nostdlib", "-Wl,-e,start", "-Wl,--no-warn-rwx-segments")
    command = [*THUMB, f"-mcpu={cpu}", *flags, *link]
    subprocess.run([*command, *units, "-lgcc", "-o", tmp_path / "bare.elf"], check=True)


def undefined(unit: Path, folder: Path, compiler: tuple[str, ...], flags: tuple[str, ...] = ()) -> set[str]:
    """The symbols that an object needs from elsewhere."""
    made = folder / "unit.o"
    subprocess.run(
        [*compiler, "-std=c11", "-Os", "-ffreestanding", *STRICT, *flags, "-c", unit, "-o", made], check=True
    )
    listed = subprocess.run(["nm", "-u", made], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines() if " U " in line}


COMPILERS = {
    "gcc": ("gcc",),
    "zig": (sys.executable, "-m", "ziglang", "cc"),
    "cortex-m4": (*THUMB, "-mcpu=cortex-m4"),
    "cortex-m0": (*THUMB, "-mcpu=cortex-m0"),
}


@pytest.mark.sampled(cases="^gcc")
@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
def test_nothing_but_memory_functions_is_needed(compiler: tuple[str, ...], tmp_path: Path) -> None:
    """Neither heap nor C library: sessions and engine serve bare machines."""
    require(None if shutil.which(compiler[0]) and shutil.which("nm") else f"{compiler[0]} is not installed")
    session = tmp_path / "session.c"
    session.write_text(SESSION)
    memory = {
        "memcpy",
        "memset",
        "__aeabi_memcpy",
        "__aeabi_memset",
        "__aeabi_memclr",
        "__aeabi_memcpy4",
        "__aeabi_memset4",
    }
    assert undefined(session, tmp_path, compiler) <= memory
    needed = set().union(*(undefined(RUNTIME / unit, tmp_path, compiler) for unit in ENGINE))
    # What the compiler's own library has for processors that cannot divide, multiply 64 bits or jump through a table.
    arithmetic = {"__aeabi_uidivmod", "__aeabi_uidiv", "__aeabi_lmul", "__gnu_thumb1_case_uqi"}
    assert {name for name in needed if not name.startswith("mace_engine_")} <= memory | arithmetic


@pytest.mark.slow
@pytest.mark.sampled(cases="^0$")
@pytest.mark.parametrize("text_bytes", [0, 20])
def test_texts_may_be_short_or_absent(text_bytes: int, tmp_path: Path) -> None:
    program = compile_program(
        "engine_test", tmp_path, ("-O0", "-fsanitize=bounds", f"-DMACE_TEXT_BYTES={text_bytes}")
    )
    for name in ("run", "long_texts", "bind"):
        done = subprocess.run([program, name], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr[:2000]


def test_the_headers_are_c_and_cpp(tmp_path: Path) -> None:
    require(None if shutil.which("g++") else "g++ is not installed: apt-get install g++")
    (tmp_path / "c.c").write_text(
        '#include "mace.h"\n#include "driver.h"\nint main(void) { return mace_error(NULL)[0] == 0; }\n'
    )
    (tmp_path / "c.cc").write_text((tmp_path / "c.c").read_text())
    subprocess.run(["gcc", "-std=c11", *STRICT, "-O2", "-fsyntax-only", tmp_path / "c.c"], check=True)
    subprocess.run(["g++", "-std=c++17", *STRICT, "-O2", "-fsyntax-only", tmp_path / "c.cc"], check=True)


@pytest.mark.slow
def test_an_archive_brings_engine_and_driver_only_where_they_are_used(tmp_path: Path) -> None:
    """Generated code names its driver, so that no linker drops it.

    A program without a device links nothing of either.
    """
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    units = [SOURCES / "fake_driver.c", *(RUNTIME / unit for unit in ENGINE)]
    subprocess.run(
        ["gcc", *FLAGS, "-ffunction-sections", "-fdata-sections", "-c", *units], cwd=tmp_path, check=True
    )
    subprocess.run(
        ["ar", "rcs", "libfake.a", *(f"{unit.stem}.o" for unit in units)], cwd=tmp_path, check=True
    )
    (tmp_path / "plain.c").write_text(SESSION + "int main(void) { return functions.abi != MACE_ABI; }\n")
    link = ("-Wl,--gc-sections", "-L.", "-lfake")
    subprocess.run(
        ["gcc", *FLAGS, SOURCES / "engine_test.c", "-o", "device", *link], cwd=tmp_path, check=True
    )
    subprocess.run(["gcc", *FLAGS, "plain.c", "-o", "plain", *link], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "device", "run"], check=True)
    subprocess.run([tmp_path / "plain"], check=True)
    symbols = subprocess.run(["nm", "plain"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "fake" not in symbols
    assert "mace_device_engine" not in symbols
