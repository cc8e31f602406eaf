"""Defines the job of a build: a deployment, and the choice that it is built for."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.deployment import Deployment
from mace_core.registry import Choice


@dataclass(frozen=True)
class Job:
    """Everything that the sources of one library depend on, besides the files that the deployment names.

    no_fallback: refuse models of which a node would go to a target that nobody named.
    """

    deployment: Deployment
    choice: Choice
    no_fallback: bool = False
