"""What a build depends on besides its input files: the plugins used, by version and by content."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

from mace_core.api import Target
from mace_core.generation import Job
from mace_core.registry import Registry


def fingerprint(job: Job, registry: Registry) -> str:
    """A line per plugin that the job uses: distribution, version and a digest of its files.

    Then the choice.
    """
    targets = {t.name for m in job.deployment.models for t in registry.targets_for(job.choice, m.runtimes)}
    used = [registry.owner("frontends", registry.frontend(m).name) for m in job.deployment.models]
    used += [registry.owner("targets", t) for t in targets]
    # Every transform and operator that is installed may take part, so an edit of any makes the build another
    # one.
    used += [plugin for (kind, _), plugin in registry.owners.items() if kind in ("ops", "transforms")]
    lines = {f"{plugin} {digest(plugin.module.partition('.')[0])}" for plugin in used}
    lines |= {f"{package} {digest(package)}" for t in targets for package in _bases(registry.targets[t])}
    core = f"mace-core {version('mace-core')} {digest('mace_core')}"
    return "\n".join([core, *sorted(lines), f"target={job.choice.text} strict={job.strict}"])


def _bases(target: Target) -> set[str]:
    """The packages of the targets that a target is a variant of."""
    packages = {
        base.__module__.partition(".")[0] for base in type(target).__mro__ if issubclass(base, Target)
    }
    return packages - {"mace_core"}


@cache
def digest(module: str) -> str:
    """A digest of the files of a package, or of a module that is one file, so that an edited plugin counts as another version."""
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
