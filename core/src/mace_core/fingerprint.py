"""Computes what a build depends on besides its input files: the plugins used, by version and by content."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from mace_core.api import Target
from mace_core.job import Job
from mace_core.registry import Registry


def fingerprint(job: Job, registry: Registry) -> str:
    """A line per plugin that the job uses: distribution, version and a digest of its files.

    Then the choice.
    """
    by_model = (registry.targets_for(job.choice, model.runtimes) for model in job.deployment.models)
    targets = {target.name: target for target in chain.from_iterable(by_model)}
    used = [registry.owner("frontends", registry.frontend(m).name) for m in job.deployment.models]
    used += [registry.owner("targets", t) for t in targets]
    # Which transforms and ops take part is known only after the model has been read, and the fingerprint is
    # needed before. So an edit of any installed one makes the build stale.
    used += [plugin for (kind, _), plugin in registry.owners.items() if kind in ("ops", "transforms")]
    lines = {f"{plugin} {digest(plugin.module.partition('.')[0])}" for plugin in used}
    bases = chain.from_iterable(map(_bases, targets.values()))
    lines |= {f"{package} {digest(package)}" for package in bases}
    core = f"mace-core {version('mace-core')} {digest('mace_core')}"
    return "\n".join([core, *sorted(lines), f"target={job.choice.text} strict={job.no_fallback}"])


def _bases(target: Target) -> set[str]:
    """The packages of the targets that a target is a variant of."""
    packages = {
        base.__module__.partition(".")[0] for base in type(target).__mro__ if issubclass(base, Target)
    }
    return packages - {"mace_core"}


@cache
def digest(module: str) -> str:
    """Digest the files of a package or module, so that an edited plugin counts as another version."""
    total = hashlib.sha256()
    spec = find_spec(module)
    if spec and spec.submodule_search_locations is None and spec.origin:
        total.update(Path(spec.origin).read_bytes())
    else:
        _add(total, files(module))
    return total.hexdigest()[:16]


def _add(total: hashlib._Hash, folder: Traversable) -> None:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "__pycache__":
            _add(total, entry)
        elif entry.name.endswith((".py", ".in", ".h", ".json")):
            total.update(entry.name.encode())
            total.update(entry.read_bytes())
