"""Tables for people: of validations, of layers, of times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from types import MappingProxyType

from mace_core.api import MEASURED
from mace_core.run.results import Failure, LayerComparison, Timing, Validation
from mace_core.run.tune import TuningResult
from mace_core.run.tuning_trials import Decision
from mace_core.terminal import escape_controls

TEXT_COLUMNS = frozenset(
    (
        *(
            "model",
            "target",
            "stage",
            "tensor",
            "op",
            "name",
            "offers",
            "state",
            "computes",
            "kernel",
            "needs",
            "problem",
            "remedy",
        ),
        *("part", "driver", "phase", "transform", "reason"),
        *("shapes", "level", "default", "fastest"),
    )
)
"""Columns that hold text; the others hold numbers."""

MAX_CELL = 72
"""Characters of a cell; names of fused nodes would leave no room for the figures."""

STAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "read": ("as computed", "from the framework's inputs"),
        "computed": ("as computed", "from the library's inputs"),
    }
)
"""Figures of a stage: for the chain from the model's input on, and for each layer alone."""


def show_validations(results: Sequence[Validation | Failure]) -> str:
    """Return the table of `scons check` and `mace validate`."""
    head = (
        "model",
        "target",
        "cosine",
        "SQNR dB",
        "max error",
        "pixels",
        "accuracy",
        "latency ms",
        "arena bytes",
        "library bytes",
        "",
    )
    compared = [result for result in results if isinstance(result, Validation)]
    text = table(head, [_validation_cells(result) for result in compared]) if compared else ""
    text += "".join(f"  {result.model}: compared with {result.compared_with}\n" for result in compared)
    text += "".join(show_devices(result.model, result.devices) for result in compared)
    text += "".join(f"  {r.model}: not validated: {r.problem}\n" for r in results if isinstance(r, Failure))
    return text + timing_note(result.timing for result in compared)


def show_layers(results: Sequence[LayerComparison | Failure]) -> str:
    """Return the table of `mace validate --layers`, and a line that names the first layer that is wrong."""
    rows = [result for result in results if isinstance(result, LayerComparison)]
    text = ""
    for stage, head in STAGES.items():
        cells = [_layer_cells(row) for row in rows if row.stage == stage]
        text += table(("stage", "tensor", "op", *head, ""), cells) if cells else ""
    first: dict[str, LayerComparison] = {}
    for row in rows:
        if not row.passed:
            first.setdefault(row.model, row)
    text += "".join(f"first wrong: {row.tensor} ({row.op}), as {row.stage}\n" for row in first.values())
    return text if first or not rows else text + "no layer is wrong\n"


def show_timings(timings: Sequence[Timing]) -> str:
    """Return a table of the shortest and median time of each model, and of the framework's if timed."""
    head = ("model", "target", "min ms", "median ms", "framework ms", "ratio")
    text = table(head, [_timing_cells(timing) for timing in timings]) + timing_note(
        timing.timing for timing in timings
    )
    for timing in timings:
        text += show_devices(timing.model, timing.devices)
        slowest = sorted(timing.layers, key=lambda layer: -layer.ns)
        if slowest:
            cells = [(layer.name, layer.kernel, milliseconds(layer.ns, timing.timing)) for layer in slowest]
            text += table((timing.model, "kernel", "ms"), cells)
    return text


def show_devices(model: str, devices: Sequence[str]) -> str:
    """Return a line that names the devices which computed a model; empty where none are known."""
    names = [escape_controls(name, keep="") for name in dict.fromkeys(devices) if name]
    place = f"  {model}: " if model else ""
    return f"{place}computed by {', '.join(names)}\n" if names else ""


def milliseconds(nanoseconds: float, timing: str = MEASURED) -> str:
    """Return a time for people; with a tilde where it was not measured on the processor itself."""
    mark = "" if timing == MEASURED else "~"
    return f"{mark}{nanoseconds / 1e6:.3f}"


def timing_note(timings: Iterable[str]) -> str:
    """Return a line that tells what the times with a tilde are; empty where there are none."""
    words = sorted({*timings} - {MEASURED})
    return f"~ {' or '.join(words)}: not measured on the processor itself\n" if words else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], full_text: bool = False) -> str:
    """Return columns under their names, for a terminal or a file.

    full_text: long cells are wrapped instead of shortened, because every word of them counts.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE)
    for name in head:
        is_text = name in TEXT_COLUMNS
        drawn.add_column(
            _shorten(name), justify="left" if is_text or not name else "right", no_wrap=not is_text
        )
    for row in rows:
        # Text, not str: names of tensors may look like rich's markup, [bold] for example, and would vanish.
        drawn.add_row(
            *(Text(escape_controls(cell if full_text else _shorten(cell), keep="")) for cell in row)
        )
    console = Console(file=StringIO(), width=160)
    console.print(drawn)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _shorten(cell: str) -> str:
    """Return a cell without its middle where it is too long; names differ mostly at their ends."""
    half = (MAX_CELL - 1) // 2
    return cell if len(cell) <= MAX_CELL else f"{cell[:half]}…{cell[-half:]}"


def _validation_cells(result: Validation) -> tuple[str, ...]:
    similarity = result.similarity
    return (
        result.model,
        result.target,
        f"{similarity.cosine:.7f}",
        f"{similarity.sqnr:.1f}",
        f"{similarity.error:.1e}",
        f"{similarity.pixels:.4f}",
        "" if result.accuracy is None else f"{result.accuracy:.4f}",
        milliseconds(result.latency_ns, result.timing),
        str(result.arena_bytes),
        str(result.library_bytes),
        _verdict(result.passed),
    )


def _layer_cells(row: LayerComparison) -> tuple[str, ...]:
    chain = f"{row.chain.cosine:.7f} {row.chain.sqnr:6.1f}"
    layer_alone = f"{row.layer_alone.cosine:.7f} {row.layer_alone.sqnr:6.1f}"
    return row.stage, row.tensor, row.op, chain, layer_alone, _verdict(row.passed)


def _timing_cells(timing: Timing) -> tuple[str, ...]:
    framework = milliseconds(statistics.median(timing.framework_ns)) if timing.framework_ns else ""
    ratio = "" if timing.ratio is None else f"{timing.ratio:.2f}"
    times = (milliseconds(min(timing.ns), timing.timing), milliseconds(timing.median, timing.timing))
    return timing.model, timing.target, *times, framework, ratio


def _verdict(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def show_tuning(results: Sequence[TuningResult]) -> str:
    """Return a table of what was measured for each choice, and whether a file was written."""
    text = ""
    for result in results:
        rows = [_tuning_cells(decision) for decision in result.decisions]
        text += (
            table(("op", "shapes", "level", "default", "us", "fastest", "us", "candidates"), rows)
            if rows
            else ""
        )
        text += show_devices(result.model, result.devices)
        before, after = (f"{ns / 1e6:.3f} ms" for ns in (result.ns, result.tuned_ns))
        for target, numbers in result.costs.numbers.items():
            measured = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
            text += f"{result.model}: measured costs of {target}: {measured}\n"
        if result.file and not result.tuned_ns:
            text += f"{result.model}: {before}; no candidate is faster; {result.file} has the costs alone\n"
        elif result.file:
            text += (
                f"{result.model}: {before} without and {after} with {result.file}; name it under tuning:\n"
            )
        elif result.tuned_ns:
            causes = "measured costs and " if result.costs.numbers else ""
            causes += "candidates that win alone"
            reason = f"{causes} make it {after}, so no file is written"
            text += f"{result.model}: {before}; {reason}\n"
        else:
            text += f"{result.model}: {before}; no candidate is faster than the target's own choice\n"
        text += "".join(f"{result.model}: wrote {file}, compiled by the device\n" for file in result.binaries)
        text += "".join(f"{result.model}: {escape_controls(note)}\n" for note in result.notes)
    return text


def _tuning_cells(decision: Decision) -> tuple[str, ...]:
    subject = decision.subject
    # All of them would not fit into a line: --json has them.
    default, best = (
        f"{decision.ns[name] / 1e3:.1f}" if name in decision.ns else ""
        for name in (subject.default, decision.candidate)
    )
    names = (subject.op, subject.shapes, subject.level, subject.default)
    return *names, default, decision.candidate, best, str(len(decision.ns))
