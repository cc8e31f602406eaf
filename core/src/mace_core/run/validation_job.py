"""Defines what one validation depends on: a built library, one of its models, and labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from mace_core.deployment import Model
from mace_core.ir import Array
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.framework_process import FrameworkProcesses


@dataclass(frozen=True)
class ValidationJob:
    """Says which model of a built library to validate.

    threads: workers that compute.  labels: the right class of each sample.  min_accuracy: the share of right
    classes that it must reach.  processes: what runs the models' frameworks; several jobs may share it.
    """

    built: BuiltLibrary
    model: Model
    registry: Registry
    threads: int = 1
    labels: Array | None = None
    min_accuracy: float = 0.0
    processes: FrameworkProcesses = field(default_factory=FrameworkProcesses)
