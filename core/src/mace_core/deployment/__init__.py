"""The deployment file: what the user asks for, as frozen objects."""

from mace_core.deployment.objects import Deployment, Device, Model, Port


def load_deployment(path, platforms=()):
    """Stand-in until the parser is there."""
    raise NotImplementedError


__all__ = ["Deployment", "Device", "Model", "Port", "load_deployment"]
