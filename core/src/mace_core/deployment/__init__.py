"""The deployment file: what the user asks for, as frozen objects."""

from importlib.resources import files

from mace_core.deployment.objects import Deployment, Device, Model, Port
from mace_core.deployment.parse import load_deployment

__all__ = ["Deployment", "Device", "Model", "Port", "load_deployment", "schema_text"]


def schema_text() -> str:
    """The JSON Schema of the deployment file."""
    return (files("mace_core") / "schema" / "deployment.schema.json").read_text(encoding="utf-8")
