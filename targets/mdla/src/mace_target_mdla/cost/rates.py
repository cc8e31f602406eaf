"""Reads the published rates, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from mace_core.ir import DType, Tensor
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import read_sources
from mace_target_mdla.socs import GENERATIONS

TYPE_COLUMNS = ("sym8", "asym8", "sym16", "f16")
"""Columns of the guide's tables of rates."""


@dataclass(frozen=True)
class Rate:
    """A published or assumed figure.

    provenance: "mark: document place: what it states".
    """

    value: float
    provenance: str


@dataclass(frozen=True)
class DeviceRates:
    """What an estimate assumes of a chip.

    megahertz: of the MDLA.  megabytes: that it moves in a second.
    cores: None where no source says how many there are.
    small_filter_factor: by how much the guide's lost list of small filters may slow a convolution at most.
    """

    generation: str
    megahertz: Rate
    megabytes: Rate
    cores: int | None
    small_filter_factor: float

    @classmethod
    def of(cls, options: MdlaOptions) -> DeviceRates:
        """Return the rates of a model's options, and the vendor's planning defaults where they state none."""
        table, generation = read_rates(), options.generation
        clock = table["clock_mhz"].get(generation, table["clock_mhz"]["default"])
        bandwidth = table["bandwidth_mb_s"]["default"]
        megahertz = _choose_rate(options.frequency_mhz, "frequency_mhz", "MHz", clock)
        megabytes = _choose_rate(options.bandwidth_mb_s, "bandwidth_mb_s", "MB/s", bandwidth)
        cores = options.soc.cores if options.soc else None
        return cls(generation, megahertz, megabytes, cores, options.small_filter_factor)

    def milliseconds_of_cycles(self, cycles: float) -> float:
        """Return the time of cycles of one core."""
        return cycles / self.megahertz.value / 1e3

    def milliseconds_of_bytes(self, count: float) -> float:
        """Return the time to move bytes."""
        return count / self.megabytes.value / 1e3


@cache
def read_rates() -> Mapping[str, Any]:
    """Return the tables of rates.yml."""
    import yaml

    text = (files(__package__) / "rates.yml").read_text(encoding="utf-8")
    return MappingProxyType(yaml.safe_load(text))


def type_column(tensor: Tensor) -> int:
    """Return the number of a tensor's column in the guide's tables; floats are computed as f16."""
    if tensor.quant is None or tensor.dtype.is_float:
        return TYPE_COLUMNS.index("f16")
    # Activations of int8 count as asymmetric; the guide's rates of sym8 and asym8 are equal.
    return TYPE_COLUMNS.index("sym16" if tensor.dtype is DType.I16 else "asym8")


def mac_rate(generation: str, tensor: Tensor) -> Rate:
    """Return the products that one core adds up in a cycle, by the type of the activation."""
    key = {"f16": "float", "sym16": 16}.get(TYPE_COLUMNS[type_column(tensor)], 8)
    table = read_rates()["macs"]
    value = table[generation][key]
    return Rate(value, _cite(table["source"], f"{value} MAC/cycle"))


def utilization(operator: str) -> Rate:
    """Return the share of the peak that a convolution reaches."""
    entry = read_rates()["utilization"][operator]
    return Rate(entry["rate"], _cite(entry["source"], f"{operator} at {entry['rate']:.0%} of the peak"))


def batch_utilization(generation: str, batch: int) -> tuple[Rate, Rate]:
    """Return the share of the peak of a matrix product, minimum and maximum; the same for listed batches."""
    table = read_rates()["fully_connected"]
    shares: Mapping[int, float] = table[generation]
    below = max((size for size in shares if size <= batch), default=min(shares))
    # The largest batch of the list reaches the peak, so a larger one does as well.
    above = min((size for size in shares if size >= batch), default=max(shares))
    return tuple(  # type: ignore[return-value]
        Rate(shares[size], _cite(table["source"], f"FULLY_CONNECTED of batch {size} at {shares[size]:.1%}"))
        for size in (below, above)
    )


def elementwise_rate(name: str, generation: str, column: int) -> Rate | None:
    """Return the elements that a core computes in a cycle; None where the guide has no figure."""
    entry = read_rates()["elementwise"].get(name)
    if entry is None:
        return None
    known = [g for g in GENERATIONS if g in entry and g <= generation]
    if not known:
        return None
    # A row holds until the guide states another one for a later generation (inferred).
    value = entry[known[-1]][column]
    return Rate(value, _cite(entry["source"], f"{name} {value} elements/cycle in {TYPE_COLUMNS[column]}"))


def table_rate(table: str, operator: str, key: str, column: int) -> Rate | None:
    """Return a figure of a table by operator and type; None where the guide says NA or has no row."""
    entry = read_rates()[table].get(operator)
    if entry is None or entry[key][column] is None:
        return None
    value = entry[key][column]
    return Rate(value, _cite(entry["source"], f"{operator} {key} {value} in {TYPE_COLUMNS[column]}"))


def _choose_rate(value: float | None, option: str, unit: str, default: Mapping[str, Any]) -> Rate:
    if value is not None:
        return Rate(value, f"option {option}: {value:g} {unit}")
    return Rate(default["value"], _cite(default["source"], f"{default['value']} {unit}"))


def _cite(source: str, statement: str) -> str:
    document = source.partition(" ")[0]
    return f"{read_sources()[document]['mark']}: {source}: {statement}"
