"""Encodes a compiled network for the driver; `driver/mace_ethosu_driver.c` reads the same numbers.

All numbers are little-endian and have 32 bits. A header: magic, version, bytes of the whole, where the
driver's payload begins and how long it is, how many regions and how many ports there are. Then each region:
its kind and its bytes. Then each port, inputs first: region, offset and bytes. Then, at a multiple of 16
bytes, the payload for the vendor's driver.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain

from mace_core.errors import MaceError
from mace_core.part import HOST
from mace_target_ethosu.vela import CompiledNetwork

MAGIC = int.from_bytes(b"MEU1", "little")
VERSION = 1
UNUSED, WEIGHTS, SCRATCH, FAST = range(4)
"""Kinds of regions."""
MAX_REGIONS = 8
"""Base addresses that the NPU has."""
ALIGNMENT = 16
"""Bytes, of the payload and of every base address: the vendor's driver refuses others."""
HEADER_WORDS = 7


@dataclass(frozen=True)
class Encoded:
    """A network for the driver.

    scratch: bytes that it needs while it runs: the arena, and behind it, at `HOST.round_up` of its size,
    the fast memory.
    """

    code: bytes
    weights: bytes
    scratch: int


def encode_network(network: CompiledNetwork, name: str) -> Encoded:
    """Return the bytes of a network; MaceError for one that the driver could not hold."""
    regions = _regions(network)
    ports = (*network.inputs, *network.outputs)
    used = {port.region for port in ports}
    # The driver copies inputs and results, and cannot reach fast memory of the vendor's driver.
    if max(regions, default=0) >= MAX_REGIONS or used != {network.scratch_region}:
        raise MaceError(name, f"Vela lays tensors into the regions {sorted(used)}", "report a bug of MACE")
    # The command stream names base addresses by number, so that a number that is not used has a row as well.
    rows = [regions.get(number, (UNUSED, 0)) for number in range(max(regions) + 1)]
    places = ((port.region, port.offset, port.bytes) for port in ports)
    words = [*chain.from_iterable(rows), *chain.from_iterable(places)]
    start = -(-4 * (HEADER_WORDS + len(words)) // ALIGNMENT) * ALIGNMENT
    size = start + len(network.stream)
    header = (MAGIC, VERSION, size, start, len(network.stream), len(rows), len(ports))
    table = struct.pack(f"<{HEADER_WORDS + len(words)}I", *header, *words)
    code = table.ljust(start, b"\0") + network.stream
    fast = network.fast_bytes
    # The driver looks for the fast memory at the same multiple behind the arena (FAST_ALIGNMENT).
    scratch = HOST.round_up(network.scratch_bytes) + fast if fast else network.scratch_bytes
    return Encoded(code, network.weights, scratch)


def _regions(network: CompiledNetwork) -> dict[int, tuple[int, int]]:
    """Return kind and bytes of each region by its number."""
    regions = {}
    if network.weights:
        regions[network.weight_region] = (WEIGHTS, len(network.weights))
    if network.scratch_bytes:
        regions[network.scratch_region] = (SCRATCH, network.scratch_bytes)
    if network.fast_bytes:
        regions[network.fast_region] = (FAST, network.fast_bytes)
    return regions
