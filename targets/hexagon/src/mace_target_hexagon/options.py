"""Defines the options of the target in a deployment file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from mace_core.cost_options import read_costs
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_target_hexagon.costs import DspCosts
from mace_target_hexagon.vtcm import DEFAULT_KB, MAX_KB

ABIS = ("hexagon-v66", "hexagon-v68", "hexagon-v69", "hexagon-v73")
REGIONS = ("auto", "all", "worthwhile")
"""Which regions the DSP computes; "auto" is "worthwhile" for `runtime: cpu+dsp`, and else "all"."""
NAMES = ("abi", "regions", "costs", "vtcm_kb")


@dataclass(frozen=True)
class HexagonOptions:
    """What a model asks of the target.

    abi: that of the DSP; a version executes what was built for an earlier one.  is_selective: whether regions
    that the processor computes faster are left to it.  costs: by what that is estimated.  vtcm_kb: KB of the
    vector units' memory for tensors; 0 for none.
    """

    abi: str = ABIS[0]
    is_selective: bool = False
    costs: DspCosts = field(default_factory=DspCosts)
    vtcm_kb: int = DEFAULT_KB[ABIS[0]]

    @classmethod
    def of(cls, options: Json, place: str, runtimes: Sequence[str] = ()) -> HexagonOptions:
        """Return the options by their names in the deployment file; one MaceError with every fault.

        place: where they stand, for messages.  runtimes: those of the model.
        """
        faults = [_describe_unknown(str(name), place) for name in options if name not in NAMES]
        for name, allowed in (("abi", ABIS), ("regions", REGIONS)):
            value = options.get(name, allowed[0])
            if value not in allowed:
                faults.append(f"{place}: {name}: {value!r:.40} is not allowed; write {' or '.join(allowed)}")
        abi = str(options.get("abi", ABIS[0]))
        vtcm_kb = options.get("vtcm_kb", DEFAULT_KB.get(abi, 0))
        # A bool is an int in Python, and no number of KB.
        if type(vtcm_kb) is not int or not 0 <= vtcm_kb <= MAX_KB:
            faults.append(
                f"{place}: vtcm_kb: {vtcm_kb!r:.40} is not allowed; write an integer from 0 to {MAX_KB}"
            )
        costs = DspCosts()
        try:
            costs = read_costs(DspCosts(), options, place)
        except MaceError as error:
            faults.append(str(error))
        if faults:
            raise MaceError.of(faults)
        regions = options.get("regions", "auto")
        # With `runtime: dsp` alone the user has chosen; with both, the faster one is wanted.
        shares = {"cpu", "dsp"} <= {*runtimes}
        is_selective = regions == "worthwhile" or (regions == "auto" and shares)
        assert isinstance(vtcm_kb, int)
        return cls(abi, is_selective, costs, vtcm_kb)

    @classmethod
    def of_model(cls, model: Model) -> HexagonOptions:
        """Return the options that a model states; MaceError with every fault."""
        place = f"model {model.name!r}: target_options: hexagon"
        return cls.of(model.options("hexagon"), place, model.runtimes)


def _describe_unknown(name: str, place: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"remove it; the options are {', '.join(NAMES)}"
    return f"{place}: {name!r:.40} is no option of the target; {remedy}"
