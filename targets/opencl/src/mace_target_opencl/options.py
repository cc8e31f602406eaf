"""Defines the options of the target in a deployment file."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json

TYPES = ("f32", "f16")
NAMES = ("storage", "arithmetic")


@dataclass(frozen=True)
class OpenclOptions:
    """What a model asks of the target.

    storage: the type in which floats lie in the GPU's memory.  arithmetic: the type in which kernels compute.
    """

    storage: str = "f32"
    arithmetic: str = "f32"

    @classmethod
    def of(cls, options: Json, place: str) -> OpenclOptions:
        """Return the options by their names in the deployment file; one MaceError with every fault.

        place: where they stand, for messages.
        """
        faults = [_describe_unknown(str(name), place) for name in options if name not in NAMES]
        for name in NAMES:
            value = options.get(name, "f32")
            if value not in TYPES:
                faults.append(f"{place}: {name}: {value!r:.40} is not allowed; write {' or '.join(TYPES)}")
            elif value == "f16":
                faults.append(f"{place}: {name}: f16 is not supported yet; write f32")
        if faults:
            raise MaceError.of(faults)
        return cls()

    @classmethod
    def of_model(cls, model: Model) -> OpenclOptions:
        """Return the options that a model states; MaceError with every fault."""
        return cls.of(model.options("opencl"), f"model {model.name!r}: target_options: opencl")


def _describe_unknown(name: str, place: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"remove it; the options are {', '.join(NAMES)}"
    return f"{place}: {name!r:.40} is no option of the target; {remedy}"
