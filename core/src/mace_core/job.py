"""Defines the job of a build: a deployment, and the choice that it is built for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mace_core.deployment import Deployment
from mace_core.numerics import Numerics, read_numerics
from mace_core.registry import Choice

SEPARATE_ROUNDING = ("-ffp-contract=off",)
"""Flags with which a compiler makes no multiply-add of a product and a sum."""


@dataclass(frozen=True)
class Job:
    """Everything that the sources of one library depend on, besides the files that the deployment names.

    no_fallback: refuse models of which a node would go to a target that nobody named.
    """

    deployment: Deployment
    choice: Choice
    no_fallback: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", with_features(self.choice, self.deployment))


def with_features(choice: Choice, deployment: Deployment) -> Choice:
    """Return the choice with the instruction-set levels that the deployment file names.

    Its kernels are compiled as the rules ask by which the deployment's models round.
    """
    names = deployment.keys.get("cpu_features", ())
    assert isinstance(names, tuple)  # the schema says so
    # Kernels are shared by the models of a library, so one model decides for all.
    has_reproducible = any(read_numerics(model.keys) is Numerics.REPRODUCIBLE for model in deployment.models)
    flags = SEPARATE_ROUNDING if has_reproducible else ()
    return replace(choice, cpu_features=tuple(str(name) for name in names), kernel_flags=flags)
