"""Reads what a deployment file asks of the target, under `target_options: {ethosu: ...}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from mace_core.deployment import Model
from mace_core.errors import MaceError

ACCELERATORS = (
    *("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256"),
    *("ethos-u65-256", "ethos-u65-512"),
    *("ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048"),
)
"""Generation and multiply-accumulate units of each NPU that Vela 5.2 compiles for."""

# The name becomes a word of Vela's command line, where it must not pass for an option.
SECTION = re.compile(r"[A-Za-z0-9_]+")
"""A name of a section of Vela's configuration file, behind System_Config. or Memory_Mode."""

NAMES = ("accelerator", "system_config", "memory_mode", "arena_cache_size")


@dataclass(frozen=True)
class EthosUOptions:
    """What Vela compiles for, in Vela's own words.

    system_config, memory_mode: sections of Vela's configuration file; "" for Vela's default for the
    accelerator.  arena_cache_size: bytes; None for what the memory mode states.
    """

    accelerator: str = "ethos-u55-128"
    system_config: str = ""
    memory_mode: str = ""
    arena_cache_size: int | None = None

    @property
    def generation(self) -> str:
        """The generation of the NPU: "u55", "u65" or "u85"."""
        return self.accelerator.split("-")[1]


def read_options(model: Model) -> EthosUOptions:
    """Return the options of a model; one MaceError with all that is wrong with them."""
    values = model.options("ethosu")
    place = f"model {model.name!r}: target_options: ethosu"
    faults = [*_faults_of_names(values, place), *_faults_of_values(values, place)]
    if faults:
        raise MaceError.of(str(fault) for fault in faults)
    return EthosUOptions(**{str(name): value for name, value in values.items()})  # type: ignore[arg-type]


def _faults_of_names(values: Mapping[str, object], place: str) -> list[MaceError]:
    faults = []
    for name in values:
        if name not in NAMES:
            close = get_close_matches(str(name), NAMES, 1)
            remedy = f"did you mean {close[0]}?" if close else f"the options are {', '.join(NAMES)}"
            faults.append(MaceError(place, f"unknown option {str(name)!r}", remedy))
    return faults


def _faults_of_values(values: Mapping[str, object], place: str) -> list[MaceError]:
    faults = []
    accelerator = values.get("accelerator", EthosUOptions.accelerator)
    if accelerator not in ACCELERATORS:
        problem = f"accelerator: no such value {str(accelerator)[:40]!r}"
        faults.append(MaceError(place, problem, f"choose one of {', '.join(ACCELERATORS)}"))
    for name in ("system_config", "memory_mode"):
        if name in values and not SECTION.fullmatch(str(values[name])):
            problem = f"{name}: {str(values[name])[:40]!r} is no name of a section"
            faults.append(MaceError(place, problem, "`vela --list-configs Arm/vela.ini` lists the names"))
    size = values.get("arena_cache_size", 1)
    # A boolean of YAML is an integer of Python.
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        problem = f"arena_cache_size: {str(size)[:40]!r} is no positive integer"
        faults.append(MaceError(place, problem, "write a number of bytes"))
    return faults
