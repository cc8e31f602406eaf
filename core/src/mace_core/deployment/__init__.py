"""The deployment file: what the user asks for, as frozen objects."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from mace_core.deployment.objects import Deployment, Device, Model, Port

__all__ = ["Deployment", "Device", "Model", "Port", "load_deployment", "schema_text"]


def load_deployment(path: Path, platforms: Sequence[str] = ()) -> Deployment:
    """Read a deployment file; MaceError tells all its faults, each with file and line.

    platforms: the frontends that `platform:` may name; any if there are none.
    """
    from mace_core.deployment.parse import parse  # YAML is not for plugins that only name these classes

    return parse(path, platforms)


def schema_text() -> str:
    """The JSON Schema of the deployment file."""
    return (files("mace_core") / "schema" / "deployment.schema.json").read_text(encoding="utf-8")
