"""A program around a session whose OpenCL library is a stand-in, which fails as a test asks for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from compiler_cache import choose_cache

from mace_core.api import Target
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.testing.compiled import host
from mace_core.testing.probe_program import FILE_CACHE, ProbeProgram, generate_session, link_probe
from mace_target_opencl import driver

STUB = Path(__file__).parent / "stub"
PROGRAM = ProbeProgram(STUB / "session_probe.c", (FILE_CACHE,))
HEADERS = Path(driver.__file__).parent
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class ProbeLog:
    """What the program printed."""

    lines: tuple[str, ...]

    def find(self, start: str) -> list[str]:
        """Return the lines that begin so, without their beginning."""
        return [line.removeprefix(start).strip() for line in self.lines if line.startswith(start)]


@dataclass(frozen=True)
class ProbeSession:
    """What the program is asked for; see stub/session_probe.c."""

    fallback: int = 0
    runs: int = 2
    submits: bool = False
    observes: bool = False
    options: str = "-"
    cache_file: str = "-"


@dataclass(frozen=True)
class Probe:
    """The program, and the folder of the library that it finds."""

    program: Path
    library: Path

    def run(self, session: ProbeSession | None = None, **environment: str) -> ProbeLog:
        """Run it; it must end well, and give back all that the library made.

        environment: of the stand-in, without the beginning of the names.
        """
        asked = session or ProbeSession()
        words = [
            asked.fallback,
            asked.runs,
            2 if asked.observes else int(asked.submits),
            asked.options,
            asked.cache_file,
        ]
        stub = {f"OPENCL_STUB_{name}": value for name, value in environment.items()}
        done = subprocess.run(
            [str(self.program), *map(str, words)],
            env={**os.environ, "LD_LIBRARY_PATH": str(self.library), **stub},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return ProbeLog(tuple(done.stdout.splitlines()))


def build_stub(folder: Path, flags: Sequence[str] = ()) -> Path:
    """Build the stand-in into a folder, under the name of the system's loader; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = host()
    command = [*compiler.cc, *compiler.flags, "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", f"-I{HEADERS}"]
    output = ["-o", str(folder / driver.LIBRARY)]
    subprocess.run([*command, *flags, str(STUB / "opencl_stub.c"), *output], check=True)
    return folder


def stub_graph() -> Graph:
    """Return two nodes with a constant; ones become 3."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, 50))
    two = builder.weight("two", np.full((1, 50), 2, np.float32))
    return builder.finish([builder.one("Relu", [builder.one("Add", [x, two])])])


def build_probe(
    folder: Path,
    flags: Sequence[str] = SANITIZED,
    graph: Graph | None = None,
    target: Target | None = None,
) -> Probe:
    """Build the program with a session of a graph, the CPU as its fallback, and the stand-in.

    graph: `stub_graph` if none is given.  target: with other options.
    """
    sources = generate_session(graph or stub_graph(), "host+opencl", target)
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in choose_cache(folder).items():
            patch.setenv(name, value)
        return Probe(link_probe(PROGRAM, sources, folder, flags), build_stub(folder / "vendor"))
