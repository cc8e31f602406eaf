"""The deployment file: what the user asks for, as frozen objects."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from mace_core.deployment.objects import Deployment, Device, Model, Port, Preparation

OwnNames = Callable[[Model], tuple[tuple[str, ...], tuple[str, ...]] | None]
"""The names of a model's own inputs and outputs, in its order; None if its files do not tell."""

__all__ = [
    "Deployment",
    "Device",
    "Model",
    "OwnNames",
    "Port",
    "Preparation",
    "load_deployment",
    "schema_text",
]


def load_deployment(
    path: Path, platforms: Sequence[str] = (), own_names: OwnNames | None = None, runtimes: Sequence[str] = ()
) -> Deployment:
    """Read a deployment file; MaceError tells all its faults, each with file and line.

    platforms: the frontends that `platform:` may name; any if there are none.
    runtimes: what `runtime:` and `validation_threshold:` may name; any word if there are none.
    own_names: asked where the file describes inputs or outputs and does not name them.
    """
    # YAML is not for plugins that only name these classes.
    from mace_core.deployment.parse import Installed, parse

    return parse(path, Installed(tuple(platforms), tuple(runtimes), own_names))


def schema_text() -> str:
    """The JSON Schema of the deployment file."""
    return (files("mace_core") / "schema" / "deployment.schema.json").read_text(encoding="utf-8")
