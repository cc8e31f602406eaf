"""What tests of the driver share: the emulated DSP, and a program around a session whose model runs on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from mace_core.api import Target
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import host, load_registry, random_inputs
from mace_core.testing.probe_program import ProbeProgram, generate_session, link_probe
from mace_core.testing.requirements import require
from mace_target_hexagon.emulator import ABI, EmulatedDsp, build_emulator, find_missing

PROBE = ProbeProgram(Path(__file__).parent / "session_probe.c")
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
NEVER, AT_OPEN, AT_RUN = 0, 1, 2
"""Values of mace_fallback."""

MEMORY, REFUSED, NO_DEVICE, STALE, LOST, FAILED = 3, 5, 6, 7, 10, 11
"""Values of mace_status."""

BURST = 3
"""MACE_POWER_BURST."""


@cache
def make_emulator(folder: Path, flags: tuple[str, ...] = ()) -> EmulatedDsp:
    """Compile the emulated DSP; skip the test where nothing executes it."""
    require(find_missing())
    return build_emulator(folder, host(), load_registry().find_toolchain(ABI).compiler(ABI), flags)


def small_graph() -> Graph:
    """(x + c) * x, then Relu, and the sum as a second output."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, 50))
    c = builder.weight("c", np.linspace(-1, 1, 50, dtype=np.float32))
    (added,) = builder.add("Add", [x, c], {})
    (product,) = builder.add("Mul", [added, x], {})
    (result,) = builder.add("Relu", [product], {})
    return builder.finish([result, added])


@dataclass(frozen=True)
class Told:
    """What the program printed, the outputs of the last run that went well, and the calls of FastRPC."""

    lines: tuple[str, ...]
    outputs: tuple[bytes, ...]
    calls: tuple[str, ...]

    def said(self, start: str) -> list[str]:
        """Return the lines that begin with a word."""
        return [line for line in self.lines if line.startswith(start)]

    def status(self, start: str) -> int:
        """Return the status of the first line that begins with a word."""
        return int(self.said(start)[0].split()[1])


@dataclass(frozen=True)
class SessionProgram:
    """The program session_probe.c around a library with the model `m`.

    emulator: the DSP; None for a machine without one.
    """

    program: Path
    graph: Graph
    emulator: EmulatedDsp | None
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        fallback: int = NEVER,
        runs: int = 1,
        sessions: int = 1,
        *,
        options: str = "-",
        power: int = 0,
        timeout_ms: int = 0,
        fault: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Told:
        """Run it; it must end well. fault: for MACE_DSP_FAULT."""
        folder, log = self.program.parent, self.program.parent / "calls.txt"
        for i, array in enumerate(self.inputs().values()):
            (folder / f"input_{i}.bin").write_bytes(array.tobytes())
        log.unlink(missing_ok=True)
        found = self.emulator.environment([folder]) if self.emulator else {}
        added = {"MACE_DSP_LOG": str(log), "MACE_DSP_FAULT": fault, **(environment or {})}
        words = [str(word) for word in (fallback, runs, sessions, options, power, timeout_ms)]
        done = subprocess.run(
            [str(self.program), *words],
            cwd=folder,
            env={**os.environ, **found, **self.environment, **added},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        files = [folder / f"output_{i}.bin" for i in range(len(self.graph.outputs))]
        outputs = tuple(file.read_bytes() for file in files if file.exists())
        for file in files:
            file.unlink(missing_ok=True)
        calls = log.read_text().splitlines() if log.exists() else []
        return Told(tuple(done.stdout.splitlines()), outputs, tuple(calls))

    def inputs(self) -> dict[str, Array]:
        """Return the same inputs each time."""
        return random_inputs(self.graph)

    def expected(self) -> list[bytes]:
        """Return what the numpy references compute."""
        values = execute(self.graph, self.inputs())
        return [values[name].tobytes() for name in self.graph.outputs]


def build_session(
    graph: Graph,
    folder: Path,
    emulator: EmulatedDsp | None,
    target: Target | None = None,
    flags: tuple[str, ...] = SANITIZED,
) -> SessionProgram:
    """Build the program for a graph that the DSP computes, with the CPU as its fallback."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = generate_session(graph, "host+hexagon", target)
    return SessionProgram(link_probe(PROBE, sources, folder, flags), graph, emulator)
