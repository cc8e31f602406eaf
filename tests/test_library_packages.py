"""A built library in an application: the example, CMake, pkg-config, threads, after its folder was moved."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from small_project import MACE, quick_environment, run, write_deployment

from mace_core.testing.requirements import require

pytestmark = pytest.mark.exhaustive  # builds a library and runs CMake

EXPECTED = "y: 9 9 9 9 9 9 9 9 9 9 ... (32 values)\n"
"""What the example prints for an image of ones: each sum of 3 x 3 of them."""

APPLICATION = """
#include <stdio.h>
#include "mace_threads.h"
#include "one.h"
int main(void) {
  static float image[36], result[32];
  static _Alignas(MACE_ALIGNMENT) char memory[1 << 20];
  mace_session *session;
  const void *inputs[] = {image};
  void *outputs[] = {result};
  mace_config config = {.struct_bytes = sizeof config, .threads = mace_threads_new(2)};
  for (int i = 0; i < 36; i++) image[i] = 1;
  if (!config.threads || mace_open(one_model("net"), &config, memory, sizeof memory, &session)) return 1;
  if (mace_run(session, inputs, outputs)) return 1;
  mace_close(session);
  mace_threads_delete((mace_threads *)config.threads);
  printf("%g %g\\n", result[0], result[31]);
  return 0;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(application C)
find_package(one REQUIRED)
add_executable(with_static application.c)
target_link_libraries(with_static PRIVATE one::one)
add_executable(with_shared application.c)
target_link_libraries(with_shared PRIVATE one::one_shared)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's folder, moved to where it was not built."""
    folder = tmp_path_factory.mktemp("packages")
    write_deployment(folder, "one")
    run([*MACE, "build", "one.yml"], folder, quick_environment(folder))
    moved = folder / "moved to here"
    (folder / "builds/one").rename(moved)
    (folder / "application.c").write_text(APPLICATION)
    return moved


def output(*command: object, folder: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_example_runs_as_its_first_lines_say(library: Path, tmp_path: Path) -> None:
    warnings = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    output(
        "cc",
        *warnings,
        "-Iinclude/host",
        "src/example.c",
        "lib/host/libone.a",
        "-lm",
        "-o",
        "example",
        folder=library,
    )
    assert output("./example", folder=library) == EXPECTED.replace("9", "0")
    (tmp_path / "image.bin").write_bytes(struct.pack("<36f", *[1.0] * 36))
    assert output("./example", tmp_path / "image.bin", folder=library) == EXPECTED
    (tmp_path / "short.bin").write_bytes(b"123")
    done = subprocess.run(
        ["./example", str(tmp_path / "short.bin")], cwd=library, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "input x takes 144 bytes, read 3" in done.stderr


@pytest.mark.slow
def test_threads_are_in_both_libraries(library: Path) -> None:
    for product, option in (("libone.a", "--extern-only"), ("libone.so", "--dynamic")):
        assert "mace_threads_new" in output("nm", option, library / "lib/host" / product, folder=library)


def test_a_library_without_devices_has_nothing_of_engine_or_drivers(library: Path) -> None:
    """Nobody who links it pays for devices, and nothing is registered behind the linker's back."""
    archive = library / "lib/host/libone.a"
    symbols = [
        line.split()[-1] for line in output("nm", archive, folder=library).splitlines() if line.strip()
    ]
    assert not [symbol for symbol in symbols if "engine" in symbol or "driver" in symbol]
    assert not [
        name
        for name in output("ar", "t", archive, folder=library).split()
        if "engine" in name or "driver" in name
    ]
    assert not list((library / "gen").glob("*/*engine*"))
    sections = output("objdump", "-h", archive, folder=library)
    assert ".init_array" not in sections
    assert ".ctors" not in sections


@pytest.mark.slow
def test_cmake_finds_the_library(library: Path, tmp_path: Path) -> None:
    require(None if shutil.which("cmake") else "cmake is not in PATH: apt-get install cmake")
    shutil.copy(library.parent / "application.c", tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    output("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={library / 'lib/host'}", folder=tmp_path)
    output("cmake", "--build", "build", folder=tmp_path)
    for program in ("with_static", "with_shared"):
        assert output(f"build/{program}", folder=tmp_path) == "9 9\n"


def test_pkg_config_finds_the_library(library: Path, tmp_path: Path) -> None:
    require(None if shutil.which("pkg-config") else "pkg-config is not in PATH: apt-get install pkg-config")
    environment = f"PKG_CONFIG_PATH={library / 'lib/host/pkgconfig'}"
    flags = output(
        "env", environment, "pkg-config", "--cflags", "--libs", "--static", "one", folder=tmp_path
    ).strip()
    # A shell reads the flags, as in a Makefile: the folder's name has spaces.
    output("sh", "-c", f"cc '{library.parent / 'application.c'}' {flags} -o application", folder=tmp_path)
    assert (
        output("env", f"LD_LIBRARY_PATH={library / 'lib/host'}", "./application", folder=tmp_path) == "9 9\n"
    )
