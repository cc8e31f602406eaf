"""Checks the options of targets in a deployment file, before anything is generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.registry import Registry


def check_target_options(deployment: Deployment, registry: Registry) -> Deployment:
    """Return the deployment, with a note for each target that is not installed here.

    MaceError with everything that an installed target does not take, and for a name that an installed target
    nearly has.
    """
    faults: list[str] = []
    notes: dict[str, None] = dict.fromkeys(deployment.notes)
    for model, name in _models_with_options(deployment):
        target = registry.targets.get(name)
        place = f"model {model.name!r}: target_options"
        if target is None:
            close = get_close_matches(name, registry.targets, 1)
            if close:
                faults.append(
                    str(MaceError(place, f"no target {name!r} is installed", f"did you mean {close[0]!r}?"))
                )
            else:
                notes[f"{place}: {name!r} is not installed: its options have no effect here"] = None
            continue
        try:
            target.check_options(model)
        except MaceError as error:
            faults.append(str(error))
    if faults:
        raise MaceError.of(faults)
    return replace(deployment, notes=tuple(notes))


def _models_with_options(deployment: Deployment) -> Iterator[tuple[Model, str]]:
    """Each model with the name of each target that it has options for."""
    for model in deployment.models:
        for name in model.all_options:
            yield model, name
