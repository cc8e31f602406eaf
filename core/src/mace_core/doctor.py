"""What is missing on this machine for each ABI and target, and the command that installs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mace_core.api import Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.tables import table
from mace_core.transforms import describe_empty_phases

READY, MISSING, SPARE = "ready", "MISSING", "not needed"


@dataclass(frozen=True)
class Finding:
    """The state of one thing that builds or runs need.

    subject: the ABI or target that needs it.  part: what it is.  state: READY, MISSING, or SPARE where
    something else does its work.
    problem, remedy: what is missing and the command that installs it; empty where nothing is.
    """

    subject: str
    part: str
    state: str
    problem: str = ""
    remedy: str = ""


def examine(registry: Registry, target: str = "") -> list[Finding]:
    """The state of everything that the ABIs and targets in `target` need; of all without it.

    target: names of ABIs and targets, with + and , between them as everywhere. Raises MaceError for one that
    does not exist.
    """
    abis = registry.abis()
    names = _names(registry, target)
    findings = [f for abi in sorted(abis) if not names or abi in names for f in _examine_abi(abi, abis[abi])]
    for name, offered in sorted(registry.targets.items()):
        if names and name not in names:
            continue
        findings.append(_finding(name, "target", offered.missing()))
        if runner := offered.runner():
            findings.append(_runner_finding(name, runner))
    # No ABI or target needs transforms, so they are part only of the whole picture.
    return findings if names else [*findings, _examine_transforms(registry)]


def _names(registry: Registry, target: str) -> set[str]:
    """The names in `target`, and the ABIs behind those targets that name none."""
    names = {name for name in re.split(r"[+,]", target) if name}
    known = {*registry.abis(), *registry.targets}
    for name in sorted(names - known):
        close = get_close_matches(name, sorted(known), 1)
        remedy = f"did you mean {close[0]!r}?" if close else "`mace matrix` lists what can be built"
        raise MaceError(f"target={target}", f"no ABI or target {name!r}", remedy)
    if names and not names & set(registry.abis()):
        patterns = [pattern for name in names for pattern in registry.targets[name].abis]
        names |= {abi for abi in registry.abis() if any(fnmatchcase(abi, pattern) for pattern in patterns)}
    return names


def _examine_abi(abi: str, toolchains: Sequence[Toolchain]) -> Iterator[Finding]:
    """The toolchains of an ABI, of which one is enough, and what executes its programs."""
    ready = next((toolchain for toolchain in toolchains if toolchain.missing(abi) is None), None)
    for toolchain in toolchains:
        finding = _finding(abi, f"toolchain {toolchain.name}", toolchain.missing(abi))
        yield replace(finding, state=SPARE) if ready and finding.state == MISSING else finding
    if ready and (runner := ready.runner(abi)):
        yield _runner_finding(abi, runner)


def _examine_transforms(registry: Registry) -> Finding:
    """Whether transforms are installed for every phase; a library is right without them."""
    empty = describe_empty_phases(registry)
    if empty is None:
        return Finding("transforms", "all phases", READY)
    problem, _, remedy = empty.partition("; ")
    return Finding("transforms", "all phases", SPARE, problem, remedy)


def _runner_finding(subject: str, runner: Runner) -> Finding:
    return _finding(subject, f"runner {runner.name}", runner.missing())


def _finding(subject: str, part: str, reason: str | None) -> Finding:
    """A reason has the form `problem: remedy`."""
    if reason is None:
        return Finding(subject, part, READY)
    problem, _, remedy = reason.partition(": ")
    return Finding(subject, part, MISSING, problem, remedy)


def needed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that keep an ABI or target from being built or run."""
    return [finding for finding in findings if finding.state == MISSING]


def show_findings(findings: list[Finding]) -> str:
    """A table of everything, then the commands that install what is missing."""
    rows = [(f.subject, f.part, f.state, f.problem, f.remedy) for f in findings]
    text = table(("name", "needs", "state", "problem", "remedy"), rows)
    commands = dict.fromkeys(finding.remedy for finding in needed(findings))
    return text + ("".join(f"to do: {command}\n" for command in commands) or "nothing is missing\n")
