"""Finds what is missing on this machine for each ABI and target: `mace doctor`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain

from mace_core.api import Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.tables import table
from mace_core.transforms import describe_empty_phases

READY, MISSING, SPARE = "ready", "MISSING", "not needed"


@dataclass(frozen=True)
class Finding:
    """The status of one thing that builds or runs need.

    subject: the ABI or target that needs it.  part: the thing, such as "toolchain gnu".
    state: READY, MISSING, or SPARE if another one is ready in its place.
    problem, remedy: what is missing, and the command that installs it; empty if nothing is.
    """

    subject: str
    part: str
    state: str
    problem: str = ""
    remedy: str = ""


def examine(registry: Registry, target: str = "") -> list[Finding]:
    """Return the status of everything that the ABIs and targets in `target` need; of all if it is "".

    target: names of ABIs and targets, separated by + or a comma. Raises MaceError for an unknown one.
    """
    abis = registry.abis()
    names = _names(registry, target)
    findings: list[Finding] = []
    for abi in sorted(abis):
        if not names or abi in names:
            findings += _examine_abi(abi, abis[abi])
    for name, offered in sorted(registry.targets.items()):
        if names and name not in names:
            continue
        findings.append(_finding(name, "target", offered.missing()))
        if runner := offered.runner():
            findings.append(_runner_finding(name, runner))
    # No ABI or target needs transforms, so they are listed only if everything is.
    return findings if names else [*findings, _examine_transforms(registry)]


def _names(registry: Registry, target: str) -> set[str]:
    """Return the names in `target`, and the ABIs of its targets if it names no ABI."""
    names = {name for name in re.split(r"[+,]", target) if name}
    known = {*registry.abis(), *registry.targets}
    for name in sorted(names - known):
        close = get_close_matches(name, sorted(known), 1)
        remedy = f"did you mean {close[0]!r}?" if close else "`mace matrix` lists what can be built"
        raise MaceError(f"target={target}", f"no ABI or target {name!r}", remedy)
    if names and not names & set(registry.abis()):
        patterns = [*chain.from_iterable(registry.targets[name].abis for name in names)]
        names |= {abi for abi in registry.abis() if any(fnmatchcase(abi, pattern) for pattern in patterns)}
    return names


def _examine_abi(abi: str, toolchains: Sequence[Toolchain]) -> Iterator[Finding]:
    """Yield the toolchains of an ABI, of which one is enough, and the runner of its programs."""
    ready = next((toolchain for toolchain in toolchains if toolchain.missing(abi) is None), None)
    for toolchain in toolchains:
        finding = _finding(abi, f"toolchain {toolchain.name}", toolchain.missing(abi))
        yield replace(finding, state=SPARE) if ready and finding.state == MISSING else finding
    if ready and (runner := ready.runner(abi)):
        yield _runner_finding(abi, runner)


def _examine_transforms(registry: Registry) -> Finding:
    """Return whether every phase has transforms. None is required: without them a library is only slower."""
    empty = describe_empty_phases(registry)
    if empty is None:
        return Finding("transforms", "all phases", READY)
    problem, _, remedy = empty.partition("; ")
    return Finding("transforms", "all phases", SPARE, problem, remedy)


def _runner_finding(subject: str, runner: Runner) -> Finding:
    return _finding(subject, f"runner {runner.name}", runner.missing())


def _finding(subject: str, part: str, reason: str | None) -> Finding:
    """Make a finding of the answer of a plugin's `missing()`, which has the form `problem: remedy`."""
    if reason is None:
        return Finding(subject, part, READY)
    problem, _, remedy = reason.partition(": ")
    return Finding(subject, part, MISSING, problem, remedy)


def list_missing(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that prevent building or running for an ABI or target."""
    return [finding for finding in findings if finding.state == MISSING]


def show_findings(findings: list[Finding]) -> str:
    """Format a table of all findings, then the commands that install what is missing."""
    rows = [(f.subject, f.part, f.state, f.problem, f.remedy) for f in findings]
    text = table(("name", "needs", "state", "problem", "remedy"), rows)
    commands = dict.fromkeys(finding.remedy for finding in list_missing(findings))
    return text + ("".join(f"to do: {command}\n" for command in commands) or "nothing is missing\n")
