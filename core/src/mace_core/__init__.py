"""MACE turns a trained neural network into a small, fast native library."""

from mace_core.errors import MaceError, PluginError
from mace_core.hookspecs import hookimpl

__all__ = ["MaceError", "PluginError", "hookimpl"]
