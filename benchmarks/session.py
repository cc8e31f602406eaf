"""Measure what a session costs: `uv run python benchmarks/session.py`.

Prints nanoseconds to open a session and to run a model in it, for a model of one Relu of four floats and for the shipped digits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.compilation import Compilation, compile_graph, compile_model
from mace_core.deployment import Model, load_deployment
from mace_core.emit import code
from mace_core.generation import isas
from mace_core.registry import Registry
from mace_core.run.compile import link
from mace_core.testing.compiled import case

DIGITS = Path(__file__).parents[1] / "models/digits/digits.yml"
SOURCE = Path(__file__).with_suffix(".c")
ROUNDS = 20_000


def measure(folder: Path, rounds: int = ROUNDS) -> dict[str, Mapping[str, float]]:
    """Return the figures of each model; its library is built in the folder for this machine."""
    registry = Registry.load()
    choice = registry.select("host")[0]
    work = Compilation(choice, registry)
    (digits,) = load_deployment(DIGITS).models
    relu = compile_graph(Model("relu", ()), case("relu", "Relu", [np.zeros(4, np.float32)]), work)
    plans = [relu.plan, compile_model(digits, work).plan]
    sources = code.library("overhead", plans, isas(choice, registry))
    files = {**sources.files, SOURCE.name: SOURCE.read_text(encoding="utf-8")}
    tool = link("session", type(sources)(files, sources.flags), choice.compiler, folder, ("-O2",))
    figures = {}
    for plan in plans:
        done = subprocess.run([tool, plan.name, str(rounds)], capture_output=True, text=True, check=True)  # noqa: S603  # built here
        figures[plan.name] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Print a line for each model."""
    with tempfile.TemporaryDirectory() as folder:
        for name, figures in measure(Path(folder)).items():
            shown = ", ".join(f"{key} {value:,.0f}" for key, value in figures.items())
            sys.stdout.write(f"{name}: {shown}\n")


if __name__ == "__main__":
    main()
