"""Time the first inference of a process: `uv run python benchmarks/first_inference.py MODEL_FILE [LEVEL ...]`.

Builds a library of the model, links first_inference.c with it statically and dynamically, and starts each program
again and again, in turn. Prints for each level the least microseconds until main begins and from there to the first
run, and those of the processor in the first and the fifth run, with the page faults in the first. A program of the
same source without a library tells what the system alone takes until main begins. What the file system has read once
is in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "first"
NO_LIBRARY = "no library"
PROCESSES = 40
RUNS = 5
FLAGS = ("-O2", "-std=gnu11")

Figures = Mapping[str, Any]


def build(folder: Path, model: Path, levels: Sequence[str]) -> dict[str, Path]:
    """Build a library of a model for these levels, else for the usual ones; return the programs by their names."""
    features = f"cpu_features: [{', '.join(levels)}]\n" if levels else ""
    deployment = folder / f"{LIBRARY}.yml"
    text = f"library_name: {LIBRARY}\n{features}models:\n  m:\n    model_file_path: {model.resolve()}\n"
    deployment.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mace_core.cli", "build", str(deployment), "--builds", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own build
    root = folder / LIBRARY
    libraries = root / "lib/host"
    uses = (f'-DHEADER="{LIBRARY}.h"', f"-DMODELS={LIBRARY}_models", f"-I{root / 'include'}")
    static = str(libraries / f"lib{LIBRARY}.a")
    words = {
        NO_LIBRARY: (),
        "static": (*uses, static),
        "dynamic": (*uses, str(libraries / f"lib{LIBRARY}.so"), f"-Wl,-rpath,{libraries}"),
        "static, large pages": (*uses, "-DLARGE_PAGES", static),
    }
    programs = {}
    for number, (name, own_words) in enumerate(words.items()):
        programs[name] = folder / f"program{number}"
        command = ["cc", *FLAGS, "-o", str(programs[name]), str(SOURCE), *own_words, "-lm", "-pthread"]
        subprocess.run(command, check=True)  # noqa: S603  # built here
    return programs


def run(program: Path, level: str) -> Figures:
    """Return the figures of one process."""
    command = [str(program), level, str(RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # built here
    figures: Figures = json.loads(done.stdout)
    return figures


def summarize(processes: Sequence[Figures]) -> str:
    """Return the least of each figure as text, times in microseconds."""
    load = min(figures["load_ns"] for figures in processes) / 1000
    if "run_ns" not in processes[0]:
        return f"main after {load:,.0f} us"
    opened = min(figures["open_ns"] for figures in processes) / 1000
    first, last = (min(figures["run_ns"][number] for figures in processes) / 1000 for number in (0, RUNS - 1))
    faults = min(figures["page_faults"][0] for figures in processes)
    return (
        f"main after {load:,.0f} us, first run begins {opened:,.0f} us later; "
        f"first run {first:,.0f} us with {faults:,} page faults, run {RUNS} {last:,.0f} us"
    )


def measure(
    folder: Path, model: Path, levels: Sequence[str], processes: int = PROCESSES
) -> dict[str, list[Figures]]:
    """Return the figures of all processes by level and program; "" stands for the best level."""
    programs = build(folder, model, levels)
    found: dict[str, list[Figures]] = {}
    for _ in range(processes):
        for level in levels or [""]:
            for kind, program in programs.items():
                name = kind if kind == NO_LIBRARY else f"{level or 'best level'}, {kind}"
                found.setdefault(name, []).append(run(program, level))
    return found


def main() -> None:
    """Print a line for each level and way to link."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: first_inference.py MODEL_FILE [LEVEL ...]")
    with tempfile.TemporaryDirectory() as folder:
        for name, processes in measure(Path(folder), Path(sys.argv[1]), sys.argv[2:]).items():
            sys.stdout.write(f"{name}: {summarize(processes)}\n")


if __name__ == "__main__":
    main()
