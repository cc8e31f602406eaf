"""What `scons check` and `scons benchmark` find out about a library, and the tables that tell it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.deployment import Deployment, Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.registry import Choice
from mace_core.run.validate import Built, accuracy, cosine, relative_error

Row = dict[str, Any]

LEAST_COSINE = 0.9999
LARGEST_ERROR = 1e-3
"""Of the range of the expected output; with LEAST_COSINE what a float model must keep."""

ROUNDS = 20

WORDS = ("model", "target", "name", "offers", "state", "computes", "kernel")
"""Columns of text; the others hold numbers."""


def check_library(deployment: Deployment, folder: Path, choice: Choice, labels: Path | None, least: float) -> list[Row]:
    """A row per model: similarity to the expected outputs, accuracy where there are labels, latency, sizes."""
    built = Built.at(folder, choice.text, choice.runner)
    size = (folder / "lib" / choice.text / f"lib{deployment.library}.so").stat().st_size
    known = read_samples(str(labels)) if labels else None
    return [{**_check(built, model, known, least), "target": choice.text, "library_bytes": size} for model in deployment.models]


def _check(built: Built, model: Model, labels: Array | None, least: float) -> Row:
    ports = built.model(model.name)
    samples = stored(model.inputs, [t.name for t in ports["inputs"]])
    expected = stored(model.outputs, [t.name for t in ports["outputs"]])
    if not samples or not expected:
        raise MaceError(
            f"model {model.name!r}", "has no validation data", "name files under validation_inputs_data and validation_outputs_data"
        )
    found = built.run(model.name, samples)
    similar = min(cosine(found[n], expected[n]) for n in expected)
    error = max(relative_error(found[n], expected[n].reshape(found[n].shape)) for n in expected)
    share = accuracy(next(iter(found.values())), labels) if labels is not None else None
    figures = built.report["models"][model.name]  # type: ignore[index]  # the report's shape is emit's
    return {
        "model": model.name,
        "cosine": similar,
        "error": error,
        "accuracy": share,
        "latency_ns": statistics.median(built.time(model.name, rounds=ROUNDS)["ns"]),  # type: ignore[arg-type]
        "arena_bytes": figures["arena_bytes"],
        "passed": similar > LEAST_COSINE and error < LARGEST_ERROR and (share is None or share >= least),
    }


def stored(ports: Sequence[Port], names: Sequence[str]) -> dict[str, Array]:
    """The validation data that the deployment file names, by tensor; ports and names in the same order."""
    given = {(p.alias or p.name): p.data for p in ports}
    return {n: np.concatenate([read_samples(f) for f in given[n]]) for n in names if given.get(n)}


def read_samples(path: str) -> Array:
    """The array in a .npy file; pickled objects are refused."""
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise MaceError(path, f"cannot be read as an array: {error}", "give a .npy file of numbers") from None
    return array


def benchmark_library(deployment: Deployment, folder: Path, choice: Choice, rounds: int) -> tuple[list[Row], str]:
    """Times of every model by round and by layer, and a table of them."""
    built = Built.at(folder, choice.text, choice.runner)
    rows: list[Row] = [{**built.time(m.name, rounds=rounds, layers=True), "target": choice.text} for m in deployment.models]
    cells = [(r["model"], r["target"], _ms(min(r["ns"])), _ms(statistics.median(r["ns"]))) for r in rows]
    return rows, table(("model", "target", "least ms", "median ms"), cells)


def show(rows: Sequence[Row]) -> str:
    """The table of `scons check`."""
    head = ("model", "target", "cosine", "max error", "accuracy", "latency ms", "arena bytes", "library bytes", "")
    return table(head, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    share = "" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
    sizes = (str(row["arena_bytes"]), str(row["library_bytes"]))
    verdict = "passed" if row["passed"] else "FAILED"
    return row["model"], row["target"], f"{row['cosine']:.7f}", f"{row['error']:.1e}", share, _ms(row["latency_ns"]), *sizes, verdict


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their names, for a terminal or a file."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=SIMPLE)
    for name in head:
        words = name in WORDS
        drawn.add_column(name, justify="left" if words or not name else "right", no_wrap=not words)
    for row in rows:
        drawn.add_row(*row)
    console = Console(file=StringIO(), width=160)
    console.print(drawn)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"
