"""Numbers of a target's cost model that `mace tune` measures on the device and writes into a tuning file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mace_core.api import Target
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.tuning import Tuning, read_tuning, tuning_file

if TYPE_CHECKING:
    from mace_core.deployment import Model

Numbers = Mapping[str, float]
"""Numbers of a cost model by their names; integers are counts, and not rounded."""


@dataclass(frozen=True)
class ProbeTime:
    """The shortest times of a graph in nanoseconds.

    ns: of a run, from host memory to host memory.  layers: of each of its kernels alone; none of a device
    that does not measure them.  units: of the device that computed it, side by side; 0 where unknown.
    """

    ns: float
    layers: tuple[float, ...]
    units: int = 0


Measure = Callable[[Sequence[Graph], Target | None], Sequence[ProbeTime]]
"""Times graphs that a target computes, or the processor where it is None, on the device that is tuned for."""


class CalibratedTarget(Target):
    """A target that decides by numbers of the device, which `mace tune` measures.

    They are those of a cost model, by which it leaves a region to another target, and what else it asks the
    device for.
    """

    @abstractmethod
    def calibrate(self, measure: Measure) -> Numbers:
        """Return numbers of its cost model, measured; none where no decision depends on them."""


def tuned_costs(model: Model, target: str) -> Numbers:
    """Return what the model's tuning file states of a target's cost model; MaceError for a faulty file."""
    file = tuning_file(model)
    return read_tuning(file).costs.get(target, {}) if file else {}


def check_costs(tuning: Tuning, targets: Mapping[str, Target]) -> None:
    """Raise MaceError for costs of targets that would not read them."""
    calibrated = sorted(name for name, target in targets.items() if isinstance(target, CalibratedTarget))
    faults = [
        str(
            MaceError(
                f"{tuning.file}: costs",
                f"no target {name[:40]!r} that is installed here reads costs",
                f"remove them; targets that do: {', '.join(calibrated) or 'none'}",
            )
        )
        for name in tuning.costs
        if name not in calibrated
    ]
    if faults:
        raise MaceError.of(faults)
