"""Measures how long a session takes from `mace_open` to the first result.

From source, from the application's cache, and from binaries in the library; beside that, how long the parts
take alone.

    uv run python targets/opencl/benchmarks/cold_start.py MODEL.onnx

Each case is a process of its own. The driver's own cache of compiled kernels is empty for each process, so
that source means source, but for the cases named "again": PoCL unpacks binaries into it when it sees them
first, and NVIDIA's driver compiles into it what is PTX. Other drivers keep caches that no program can empty.
Binaries are assembled as by `mace tune` where they are PTX.

The cases that take no compiler are interleaved with processes that start OpenCL and do no more: what other
work of the machine costs falls on all alike. Each line has the medians of the rounds, and the ratio of the
time to the first result to the sum of what nobody can spare: OpenCL's start, the copy of the constants and a
warm run, by the clock on the wall and by the time that the process computed. The load, a session that is
opened in a process where OpenCL has started, is not in it: drivers compile in it what is no machine code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

from mace_core.compilation import Compilation, compile_model
from mace_core.compiled_entry import CompiledEntry
from mace_core.deployment import Deployment, load_deployment
from mace_core.generation import encode
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.command import Command
from mace_core.testing.probe_program import FILE_CACHE, ProbeProgram, link_probe
from mace_target_opencl.ptx import assemble_ptx

DRIVER_CACHES = ("POCL_CACHE_DIR", "CUDA_CACHE_PATH")
"""Environment variables that name the folder in which a driver keeps what it compiled."""

PROGRAM = ProbeProgram(Path(__file__).with_name("cold_start.c"), (FILE_CACHE,))


def build(model_file: Path, folder: Path, binaries: tuple[Path, ...] = ()) -> Path:
    """Return the program around the model.  binaries: what the device compiled of it."""
    folder.mkdir()
    deployment = folder / "cold.yml"
    options = {"opencl": {"binaries": [str(file.resolve()) for file in binaries]}}
    model_keys = {"model_file_path": str(model_file.resolve()), "target_options": options}
    # JSON is YAML, and keeps whatever a path is made of.
    document = {"library_name": "cold", "models": {"m": model_keys}}
    deployment.write_text(json.dumps(document), encoding="utf-8")
    registry = Registry.load()
    choice = registry.select("host+opencl")[0]
    (model,) = load_deployment(deployment).models
    compiled = compile_model(model, Compilation(choice, registry))
    sources = encode(Job(Deployment("cold", (model,)), choice), [compiled], registry)
    return link_probe(PROGRAM, sources, folder)


@dataclass(frozen=True)
class Start:
    """Milliseconds of each step of a process: what the program printed.

    start: OpenCL's own, of a process that does no more.  weights: copying the constants to the device.
    load: opening a session when OpenCL has started.
    """

    start: float
    weights: float
    open: float
    first: float
    warm: float
    load: float

    @property
    def ratio(self) -> float:
        """The time to the first result, divided by the sum of start, copy of the constants and a warm run."""
        return (self.open + self.first) / (self.start + self.weights + self.warm)

    @classmethod
    def from_lines(cls, lines: Mapping[str, str], clock: int) -> Start:
        """Return the times by a clock: 0 the wall's, 1 the process's."""
        return cls(*(float(lines[step.name].split()[clock]) for step in fields(cls)))


@dataclass(frozen=True)
class Case:
    """A way to start.

    cache: the application's file, "-" for none.
    is_repeated: whether an earlier process has filled the driver's own cache.
    """

    title: str
    program: Path
    cache: str
    is_repeated: bool = False


def execute(program: Path, words: tuple[str, ...], driver_cache: Path) -> dict[str, str]:
    """Return what the program printed, by the first word of each line."""
    lines: list[str] = []
    driver_cache.mkdir(exist_ok=True)
    environment = {**os.environ, **dict.fromkeys(DRIVER_CACHES, str(driver_cache))}
    Command((str(program), *words), driver_cache, environment, program.name).execute(lines.append)
    return dict(line.split(" ", 1) for line in lines)


def assemble(entry: Path) -> Path:
    """Return the file with what the device compiled, as machine code where it was PTX."""
    compiled = CompiledEntry.read(entry.read_bytes(), str(entry))
    code = assemble_ptx(compiled.code)
    if code is None:
        return entry
    assembled = entry.with_name("assembled")
    assembled.write_bytes(CompiledEntry(compiled.facts, code).write())
    sys.stdout.write(f"binaries were PTX, and are assembled: {len(code)} bytes\n")
    return assembled


def measure(cases: Sequence[Case], options: str, rounds: int, folder: Path) -> list[list[dict[str, str]]]:
    """Return what each process of each case printed, with OpenCL's own start of the same round."""
    results: list[list[dict[str, str]]] = [[] for _ in cases]
    for number in range(rounds):
        start = execute(cases[0].program, ("start",), folder / f"start{number}")
        for case, printed in zip(cases, results, strict=True):
            caches = folder / f"{case.title.replace(' ', '_')}{number}"
            for _ in range(1 + case.is_repeated):
                lines = execute(case.program, (case.cache, options), caches)
            printed.append({**start, **lines})
    return results


def show(case: Case, printed: Sequence[Mapping[str, str]]) -> None:
    """Print a line for a case."""
    by_clock = [[Start.from_lines(lines, clock) for lines in printed] for clock in (0, 1)]
    for name, starts in zip(("wall", "computed"), by_clock, strict=True):
        open_, first, warm = (
            median(getattr(one, step) for one in starts) for step in ("open", "first", "warm")
        )
        start, weights, load = (
            median(getattr(one, step) for one in starts) for step in ("start", "weights", "load")
        )
        ratios = sorted(one.ratio for one in starts)
        sys.stdout.write(
            f"{case.title}, {name}: open {open_:.1f} ms, first run {first:.1f} ms, warm run {warm:.1f} ms; OpenCL's "
            f"start {start:.1f} ms, constants {weights:.1f} ms, load {load:.1f} ms; ratio {median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
        )


def main() -> None:
    """Print two lines for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--options", default="-", help="of mace_config, such as opencl.device=gpu")
    parser.add_argument("--rounds", type=int, default=9, help="processes of each case that takes no compiler")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entry = folder / "entry"
        source = build(arguments.model, folder / "source")
        compiled = Case("from source", source, str(entry))
        ((printed,),) = measure([compiled], arguments.options, 1, folder)
        show(compiled, [printed])
        shipped = build(arguments.model, folder / "binaries", (assemble(entry),))
        cases = [
            Case("from the cache", source, str(entry)),
            Case("from the cache again", source, str(entry), is_repeated=True),
            Case("from binaries", shipped, "-"),
            Case("from binaries again", shipped, "-", is_repeated=True),
        ]
        for case, rounds in zip(
            cases, measure(cases, arguments.options, arguments.rounds, folder), strict=True
        ):
            show(case, rounds)
        sys.stdout.write(f"{printed['device']}; {entry.stat().st_size} bytes of compiled kernels\n")


if __name__ == "__main__":
    main()
