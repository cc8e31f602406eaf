"""What `scons check` and `scons benchmark` find out about a library, and the tables that tell it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mace_core.api import MEASURED
from mace_core.deployment import Deployment
from mace_core.errors import MaceError
from mace_core.registry import Choice, Registry
from mace_core.run.built import Built
from mace_core.run.files import read_samples
from mace_core.run.validate import Question, Row, validate
from mace_core.terminal import escape_controls

WORDS = ("model", "target", "stage", "tensor", "op", "name", "offers", "state", "computes", "kernel", "needs", "problem", "remedy")
"""Columns of text; the others hold numbers."""


def check_library(library: tuple[Deployment, Registry], folder: Path, choice: Choice, labels: Path | None, least: float) -> list[Row]:
    """A row per model: similarity to the expected outputs, accuracy where there are labels, latency, sizes."""
    deployment, registry = library
    built = Built.at(folder, choice.text, choice.runner)
    known = read_samples(str(labels)) if labels else None
    asked = (Question(built, model, registry, labels=known, least=least) for model in deployment.models)
    return [row for question in asked for row in attempted(question, lambda q: [validate(q)])]


def attempted(question: Question, work: Callable[[Question], list[Row]]) -> list[Row]:
    """The rows of one model; a row with the problem where it cannot be validated, so that the others go on."""
    named = {"model": question.model.name, "target": question.built.programs.name}
    try:
        return [{**named, **row} for row in work(question)]
    except MaceError as error:
        return [{**named, "problem": str(error), "passed": False}]


def benchmark_library(deployment: Deployment, folder: Path, choice: Choice, rounds: int) -> tuple[list[Row], str]:
    """Times of every model by round and by layer, and a table of them."""
    built = Built.at(folder, choice.text, choice.runner)
    rows: list[Row] = [{**built.time(m.name, rounds=rounds, layers=True), "target": choice.text} for m in deployment.models]
    cells = [(r["model"], r["target"], milliseconds(min(r["ns"]), r), milliseconds(statistics.median(r["ns"]), r)) for r in rows]
    return rows, table(("model", "target", "least ms", "median ms"), cells) + timing_note(rows)


def show(rows: Sequence[Row]) -> str:
    """The table of `scons check` and `mace validate`."""
    head = ("model", "target", "cosine", "SQNR dB", "max error", "pixels", "accuracy", "latency ms", "arena bytes", "library bytes", "")
    compared = [row for row in rows if "problem" not in row]
    text = table(head, [_cells(row) for row in compared]) if compared else ""
    text += "".join(f"  {row['model']}: compared with {row['compared_with']}\n" for row in compared)
    text += "".join(f"  {row['model']}: not validated: {row['problem']}\n" for row in rows if "problem" in row)
    return text + timing_note(compared)


def show_layers(rows: Sequence[Row]) -> str:
    """The table of `mace validate --layers`, and a line that names the first layer that is wrong."""
    text = ""
    for stage, head in STAGES.items():
        cells = [(stage, r["tensor"], r["op"], _chain(r), _alone(r), _verdict(r)) for r in rows if r.get("stage") == stage]
        text += table(("stage", "tensor", "op", *head, ""), cells) if cells else ""
    first: dict[str, Row] = {}
    for row in rows:
        if not row["passed"]:
            first.setdefault(row["model"], row)
    bad = list(first.values())
    text += "".join(f"first wrong: {r['tensor']} ({r['op']}), as {r['stage']}\n" for r in bad)
    return text if bad or not rows else text + "no layer is wrong\n"


STAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "read": ("as computed", "from the framework's inputs"),
        "computed": ("as computed", "from the library's inputs"),
    }
)
"""What the cosine and decibels of a stage are of: the chain from the model's input on, and each layer alone."""


def _chain(row: Mapping[str, Any]) -> str:
    return f"{row['cosine']:.7f} {row['sqnr']:6.1f}"


def _alone(row: Mapping[str, Any]) -> str:
    return f"{row['fed_cosine']:.7f} {row['fed_sqnr']:6.1f}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    share = "" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
    sizes = (str(row["arena_bytes"]), str(row["library_bytes"]))
    latency = milliseconds(row["latency_ns"], row)
    return row["model"], row["target"], *_figures(row), f"{row['pixels']:.4f}", share, latency, *sizes, _verdict(row)


def _figures(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{row['cosine']:.7f}", f"{row['sqnr']:.1f}", f"{row['error']:.1e}"


def _verdict(row: Mapping[str, Any]) -> str:
    return "passed" if row["passed"] else "FAILED"


def milliseconds(nanoseconds: float, row: Mapping[str, Any]) -> str:
    """A time of a row; with a tilde where it was not measured on the processor itself."""
    mark = "" if row.get("timing", MEASURED) == MEASURED else "~"
    return f"{mark}{nanoseconds / 1e6:.3f}"


def timing_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line that tells what the times with a tilde are; empty where there are none."""
    words = sorted({row.get("timing", MEASURED) for row in rows} - {MEASURED})
    return f"~ {' or '.join(words)}: not measured on the processor itself\n" if words else ""


LONGEST = 72
"""Characters of a cell: names of fused nodes are longer than a terminal, and would leave no room for the figures."""


def _short(cell: str) -> str:
    """A cell without its middle where it is too long; names differ mostly at their ends."""
    half = (LONGEST - 1) // 2
    return cell if len(cell) <= LONGEST else f"{cell[:half]}…{cell[-half:]}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], whole: bool = False) -> str:
    """Columns under their names, for a terminal or a file.

    whole: long cells are wrapped instead of shortened, because every word of them counts.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE)
    for name in head:
        words = name in WORDS
        drawn.add_column(_short(name), justify="left" if words or not name else "right", no_wrap=not words)
    for row in rows:
        # Text, not str: names of tensors may look like rich's markup, [bold] for example, and would vanish.
        drawn.add_row(*(Text(escape_controls(cell if whole else _short(cell), keep="")) for cell in row))
    console = Console(file=StringIO(), width=160)
    console.print(drawn)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"
