"""Measure what handing work over to the pool of threads costs: `uv run python benchmarks/handover.py [WORKERS ...]`.

Prints a line for each number of workers: nanoseconds of a call without work, the first one after the workers
went to sleep, and how much faster calls of 10 to 1000 microseconds get. Needs gcc.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

RUNTIME = Path(str(files("mace_core") / "runtime"))
SOURCE = Path(__file__).with_suffix(".c")


def measure(workers: Sequence[str], folder: Path) -> list[dict[str, float]]:
    """Return the figures for each number of workers; the program is built in the folder."""
    program = folder / SOURCE.stem
    flags = ["-std=gnu11", "-O2", f"-I{RUNTIME}", "-pthread"]
    units = [str(SOURCE), str(RUNTIME / "mace_threads.c")]
    subprocess.run(["gcc", *flags, *units, "-o", str(program)], check=True)  # noqa: S603, S607  # our own source
    done = subprocess.run([program, *workers], capture_output=True, text=True, check=True)  # noqa: S603  # built here
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print a line for each number of workers."""
    with tempfile.TemporaryDirectory() as folder:
        for figures in measure(sys.argv[1:] or ["2"], Path(folder)):
            shown = ", ".join(f"{key} {value:g}" for key, value in figures.items())
            sys.stdout.write(f"{shown}\n")


if __name__ == "__main__":
    main()
