"""Shows the order of the installed transforms with the reasons: `mace explain --passes`."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc

from mace_core.api import Reasons
from mace_core.json_types import Json
from mace_core.registry import Registry
from mace_core.transforms import PHASES, Pass, Phase, order_phases

NOBODY = "no transform is installed for it"


def passes_as_json(registry: Registry) -> Json:
    """Return every phase with its passes, in order; `installed` says whether a constraint has an effect."""
    installed = frozenset(registry.transforms)
    return {"phases": [_phase_as_json(phase, passes, installed) for phase, passes in _list_phases(registry)]}


def show_passes(registry: Registry) -> str:
    """Return the same as text for people."""
    lines = []
    for phase, passes in _list_phases(registry):
        lines += [*_show_phase(phase, passes, frozenset(registry.transforms)), ""]
    return "\n".join(lines)


def _list_phases(registry: Registry) -> list[tuple[Phase, tuple[Pass, ...]]]:
    """All phases, those without a transform too."""
    ordered = {passes[0].phase.name: passes for passes in order_phases(registry)}
    return [(phase, ordered.get(phase.name, ())) for phase in PHASES]


def _phase_as_json(phase: Phase, passes: tuple[Pass, ...], installed: frozenset[str]) -> Json:
    return {
        "name": phase.name,
        "before": phase.before,
        "after": phase.after,
        "rounds": phase.rounds,
        "because": phase.because,
        "passes": [_pass_as_json(step, installed) for step in passes],
    }


def _pass_as_json(step: Pass, installed: frozenset[str]) -> Json:
    return {
        "transform": step.transform.name,
        "does": _describe(step),
        "distribution": step.plugin.distribution,
        "version": step.plugin.version,
        "because": step.because,
        "after": _reasons_as_json(step.after, installed),
        "before": _reasons_as_json(step.before, installed),
    }


def _reasons_as_json(reasons: Reasons, installed: frozenset[str]) -> list[Json]:
    return [
        {"transform": name, "because": why, "installed": name in installed} for name, why in reasons.items()
    ]


def _describe(step: Pass) -> str:
    """Return the first line of what its author wrote about a transform; "" for nothing."""
    return (getdoc(step.transform.apply) or "").partition("\n")[0]


def _show_phase(phase: Phase, passes: tuple[Pass, ...], installed: frozenset[str]) -> Iterator[str]:
    yield f"phase {phase.name}"
    yield f"  before: {phase.before}"
    yield f"  after:  {phase.after}"
    if phase.rounds > 1:
        yield f"  {phase.rounds} rounds: {phase.because}"
    if not passes:
        yield f"  {NOBODY}"
    for step in passes:
        yield f"  {step.transform.name:<22} {step.plugin}"
        if does := _describe(step):
            yield f"      {does}"
        if step.because:
            yield f"      repeated here: {step.because}"
        for side, reasons in (("after", step.after), ("before", step.before)):
            for name, why in reasons.items():
                absent = "" if name in installed else " (not installed)"
                yield f"      {side} {name}{absent}: {why}"
