"""Measure what a session costs: `uv run python benchmarks/session.py [MODEL_FILE ...]`.

Prints nanoseconds to open a session and to run a model in it, the first time in a process and then, for a model
of one Relu of four floats, for the shipped digits, and for files of one input and one output that are named,
such as those of imagenet.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, compile_graph, compile_model
from mace_core.deployment import Model, load_deployment
from mace_core.emit import code
from mace_core.registry import Registry
from mace_core.testing.compiled import case
from mace_core.testing.probe_program import ProbeProgram, link_probe

DIGITS = Path(__file__).parents[1] / "models/digits/digits.yml"
SOURCE = Path(__file__).with_suffix(".c")
ROUNDS = 20_000
ROUNDS_OF_FILES = 100


def measure(folder: Path, rounds: int = ROUNDS, files: Sequence[Path] = ()) -> dict[str, Mapping[str, float]]:
    """Return the figures of each model; its library is built in the folder for this machine."""
    registry = Registry.load()
    choice = registry.select("host")[0]
    work = Compilation(choice, registry)
    (digits,) = load_deployment(DIGITS).models
    relu = compile_graph(Model("relu", ()), case("relu", "Relu", [np.zeros(4, np.float32)]), work)
    named = [compile_model(Model(file.stem, (file,)), work).plan for file in files]
    plans = [relu.plan, compile_model(digits, work).plan, *named]
    choice_levels = library_levels(registry.targets_for(choice, ()), choice.abi)
    sources = code.library("overhead", plans, choice_levels)
    program = link_probe(ProbeProgram(SOURCE), sources, folder, compiler=choice.compiler)
    figures = {}
    for plan in plans:
        count = ROUNDS_OF_FILES if plan in named else rounds
        done = subprocess.run([program, plan.name, str(count)], capture_output=True, text=True, check=True)  # noqa: S603  # built here
        figures[plan.name] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Print a line for each model."""
    with tempfile.TemporaryDirectory() as folder:
        for name, figures in measure(Path(folder), files=[*map(Path, sys.argv[1:])]).items():
            shown = ", ".join(f"{key} {value:,.0f}" for key, value in figures.items())
            sys.stdout.write(f"{name}: {shown}\n")


if __name__ == "__main__":
    main()
