"""Finds targets that run described networks as they are placed; each registers itself by an entry point.

The distribution of a target declares, under the name of the target,

    [project.entry-points."mace.ai8x.v1"]
    max78000 = "mace_target_max78000.target:Max78000"

and the class has the methods of `DescribedTarget`.  So this frontend names no chip, and a target for another
chip of the family changes nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from mace_core.api import Content
from mace_core.deployment.faults import Faults
from mace_core.ir import Graph
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.network import Network
from mace_frontend_ai8x.options import NetworkOptions

GROUP = "mace.ai8x.v1"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """The trained model that a description is compared with; `name` stands in messages."""

    name: str
    graph: Graph


@dataclass(frozen=True)
class DescribedProject:
    """The project of a described network: files by path, notes for the user, and a report."""

    files: Mapping[str, Content]
    notes: Sequence[str]
    summary: str


class DescribedTarget(Protocol):
    """What this frontend asks of a target that runs networks as their descriptions place them."""

    @classmethod
    def add_limit_faults(
        cls, options: NetworkOptions, network: Network, unread: Collection[int], faults: Faults
    ) -> None:
        """Add what the target's chip cannot compute to the faults of the description.

        unread: indexes of layers with faults of their own, which were not read as they are written.
        """

    @classmethod
    def make_project(
        cls, described: DescribedModel, arguments: Sequence[str], trained: TrainedModel | None
    ) -> DescribedProject:
        """Return the project of a described network.

        arguments: options in the form of the vendor's command line.  trained: compared with the description.
        MaceError with all faults of the arguments, or of the description.
        """


def list_described_targets() -> dict[str, EntryPoint]:
    """Return the targets of the installed distributions by name; `load` of an entry imports the target."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_described_target(name: str) -> type[DescribedTarget] | None:
    """Import a target by its name; None where no installed distribution offers it."""
    entry = list_described_targets().get(name)
    if entry is None:
        return None
    target: type[DescribedTarget] = entry.load()
    return target
