"""Defines the options of the target in a deployment file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_target_opencl.costs import Costs, read_costs

TYPES = ("f32", "f16")
REGIONS = ("auto", "all", "worthwhile")
"""Which regions the GPU computes; "auto" is "worthwhile" for `runtime: cpu+gpu`, and else "all"."""
NAMES = ("storage", "arithmetic", "regions", "costs")


@dataclass(frozen=True)
class OpenclOptions:
    """What a model asks of the target.

    storage: the type in which floats lie in the GPU's memory.  arithmetic: the type in which kernels compute.
    is_selective: whether regions that the processor computes faster are left to it.  costs: by what that is
    estimated.
    """

    storage: str = "f32"
    arithmetic: str = "f32"
    is_selective: bool = False
    costs: Costs = field(default_factory=Costs)

    @classmethod
    def of(cls, options: Json, place: str, runtimes: Sequence[str] = ()) -> OpenclOptions:
        """Return the options by their names in the deployment file; one MaceError with every fault.

        place: where they stand, for messages.  runtimes: those of the model.
        """
        faults = [_describe_unknown(str(name), place) for name in options if name not in NAMES]
        for name in ("storage", "arithmetic"):
            value = options.get(name, "f32")
            if value not in TYPES:
                faults.append(f"{place}: {name}: {value!r:.40} is not allowed; write {' or '.join(TYPES)}")
            elif name == "arithmetic" and value == "f16":
                faults.append(f"{place}: {name}: f16 is not supported yet; write f32")
        regions = options.get("regions", "auto")
        if regions not in REGIONS:
            faults.append(f"{place}: regions: {regions!r:.40} is not allowed; write {' or '.join(REGIONS)}")
        costs = Costs()
        try:
            costs = read_costs(options, place)
        except MaceError as error:
            faults.append(str(error))
        if faults:
            raise MaceError.of(faults)
        shares = {"cpu", "gpu"} <= {*runtimes}
        is_selective = regions == "worthwhile" or (regions == "auto" and shares)
        return cls(str(options.get("storage", "f32")), is_selective=is_selective, costs=costs)

    @classmethod
    def of_model(cls, model: Model) -> OpenclOptions:
        """Return the options that a model states; MaceError with every fault."""
        place = f"model {model.name!r}: target_options: opencl"
        return cls.of(model.options("opencl"), place, model.runtimes)


def _describe_unknown(name: str, place: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"remove it; the options are {', '.join(NAMES)}"
    return f"{place}: {name!r:.40} is no option of the target; {remedy}"
