"""Defines the options of the target in a deployment file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_target_mdla.socs import GENERATIONS, Soc, find_soc

POLICIES = MappingProxyType(
    {
        "software": ("accept", "refuse"),
        "unknown": ("refuse", "accept"),
        "int8": ("keep", "to-uint8"),
        "weights": ("as-stored", "per-tensor"),
    }
)
"""Options of two values each, the default first."""
NUMBERS = ("frequency_mhz", "bandwidth_mb_s", "small_filter_factor")
COMPILERS = ("auto", "aot", "ncc", "none")
"""Who compiles before deployment: the newest that is installed, LiteRT, ncc-tflite, or nobody."""
NAMES = ("soc", "generation", *POLICIES, "compiler", "ncc", *NUMBERS)


@dataclass(frozen=True)
class MdlaOptions:
    """What a model asks of the target.

    generation: one of GENERATIONS.  soc: None where only the generation is stated.
    accepts_software: whether nodes may go to the target that it computes by software or extra copies.
    accepts_unknown: whether nodes may that the published rules do not decide.
    stores_uint8: whether quantized activations of int8 are stored as uint8, which is exact.
    weights_per_tensor: whether weights with scales along an axis may get one scale, which loses precision.
    frequency_mhz, bandwidth_mb_s: what estimates assume of the chip; None for the vendor's planning defaults.
    small_filter_factor: at least 1, by how much estimates slow convolutions at their upper end, because the
    guide's list of small filters that are slower is lost.
    compiler: one of COMPILERS.  ncc: path of the vendor's ncc-tflite; "" to look for it.
    """

    generation: str
    soc: Soc | None = None
    accepts_software: bool = True
    accepts_unknown: bool = False
    stores_uint8: bool = False
    weights_per_tensor: bool = False
    frequency_mhz: float | None = None
    bandwidth_mb_s: float | None = None
    small_filter_factor: float = 1.0
    compiler: str = "auto"
    ncc: str = ""

    @classmethod
    def of(cls, options: Json, place: str) -> MdlaOptions:
        """Return the options by their names in the deployment file; one MaceError with every fault.

        place: where they stand, for messages.
        """
        faults = [_describe_unknown(str(name), place) for name in options if name not in NAMES]
        policies = {name: options.get(name, values[0]) for name, values in POLICIES.items()}
        faults += [
            f"{place}: {name}: {value!r:.40} is not allowed; write {' or '.join(sorted(POLICIES[name]))}"
            for name, value in policies.items()
            if value not in POLICIES[name]
        ]
        numbers = {name: options[name] for name in NUMBERS if name in options}
        faults += [
            f"{place}: {name}: {value!r:.40} is not allowed; write a number of at least 1"
            for name, value in numbers.items()
            if not _is_number(value)
        ]
        compiler, ncc = options.get("compiler", "auto"), options.get("ncc", "")
        if compiler not in COMPILERS:
            faults.append(f"{place}: compiler: {compiler!r:.40} is not known; write {', '.join(COMPILERS)}")
        if not isinstance(ncc, str):
            faults.append(f"{place}: ncc: {ncc!r:.40} is no path; write that of ncc-tflite")
        soc, generation = None, ""
        try:
            soc, generation = _choose_generation(options, place)
        except MaceError as error:
            faults.append(str(error))
        if faults:
            raise MaceError.of(faults)
        known = {name: float(str(value)) for name, value in numbers.items()}
        return cls(
            generation,
            soc,
            accepts_software=policies["software"] == "accept",
            accepts_unknown=policies["unknown"] == "accept",
            stores_uint8=policies["int8"] == "to-uint8",
            weights_per_tensor=policies["weights"] == "per-tensor",
            frequency_mhz=known.get("frequency_mhz"),
            bandwidth_mb_s=known.get("bandwidth_mb_s"),
            small_filter_factor=known.get("small_filter_factor", 1.0),
            compiler=str(compiler),
            ncc=str(ncc),
        )

    @classmethod
    def of_model(cls, model: Model) -> MdlaOptions:
        """Return the options that a model states; MaceError with every fault."""
        return cls.of(model.options("mdla"), f"model {model.name!r}: target_options: mdla")

    @property
    def is_compiled_before(self) -> bool:
        """Whether a compiler of the vendor must compile each region, and the adapter restores it."""
        return self.compiler in ("aot", "ncc")

    @property
    def device(self) -> str:
        """The device in words: the chip with its generation, or the generation alone."""
        return f"MDLA {self.generation}" + (f" of {self.soc.name}" if self.soc else "")


def _choose_generation(options: Json, place: str) -> tuple[Soc | None, str]:
    """Return the chip and the generation; MaceError where neither is stated or they contradict each other."""
    named, generation = options.get("soc"), options.get("generation")
    if isinstance(generation, float):
        generation = str(generation)  # YAML reads 2.0 without quotes as a number
    if generation is not None and generation not in GENERATIONS:
        raise MaceError(
            place, f"generation: {generation!r:.40} is not known", f"choose one of {', '.join(GENERATIONS)}"
        )
    if named is None:
        if generation is None:
            raise MaceError(place, "no chip is stated", "write soc: with its name, such as MT8195")
        return None, str(generation)
    if not isinstance(named, str):
        raise MaceError(place, f"soc: {named!r:.40} is no name", "write the name of a chip, such as MT8195")
    soc = find_soc(named, place)
    if generation not in (None, soc.generation):
        problem = f"generation: {soc.name} has MDLA {soc.generation}, not {generation}"
        raise MaceError(place, problem, "leave `generation` out")
    return soc, soc.generation


def _is_number(value: object) -> bool:
    # A boolean of YAML is an integer of Python. A clock or bandwidth of 0 would divide by zero, and a factor
    # below 1 would make small filters faster than the peak.
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < math.inf


def _describe_unknown(name: str, place: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    remedy = f"did you mean {close[0]!r}?" if close else f"remove it; the options are {', '.join(NAMES)}"
    return f"{place}: {name[:40]!r}: no such option; {remedy}"
