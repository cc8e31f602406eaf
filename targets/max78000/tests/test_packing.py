"""The codes of weights and registers, read back by readers written from their descriptions alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.firmware.packed_tables import LONGEST, Packed, Table, _lengths, make_table, pack
from mace_target_max78000.image import Write
from mace_target_max78002.device import MAX78002


def unpacked(packed: Packed, size: int) -> bytes:
    """Codes of a length count up.

    The first of a length is twice the one after the last of the length before.
    """
    bytes_of, code, at = {}, 0, 0
    for length, n in enumerate(packed.counts, 1):
        for symbol in packed.symbols[at : at + n]:
            bytes_of[length, code] = symbol
            code += 1
        code, at = 2 * code, at + n
    found, code, length = bytearray(), 0, 0
    for bit in np.unpackbits(np.frombuffer(packed.data, np.uint8)).tolist():
        code, length = 2 * code + bit, length + 1
        if (length, code) in bytes_of:
            found.append(bytes_of[length, code])
            code = length = 0
            if len(found) == size:
                break
    return bytes(found)


def steep() -> bytes:
    """Each byte half as often as the one before: the longest codes that there can be, were they not limited."""
    depth = LONGEST + 2
    return b"".join(bytes([i]) * (1 << depth - i) for i in range(depth + 1))


RANDOM = np.random.default_rng(5)
DATA = {
    "one byte": bytes([77]) * 9,
    "all bytes": bytes(range(256)) * 3,
    "weights": RANDOM.normal(0, 12, 70_000).astype(np.int8).tobytes(),
    "steep": steep(),
}


@pytest.mark.parametrize("name", DATA)
def test_weights_come_back(name: str) -> None:
    packed = pack(DATA[name])
    assert len(packed.counts) == 16
    assert sum(packed.counts) == len(packed.symbols)
    assert unpacked(packed, len(DATA[name])) == DATA[name]


def test_weights_take_what_their_entropy_says() -> None:
    share = np.bincount(np.frombuffer(DATA["weights"], np.uint8), minlength=256) / len(DATA["weights"])
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum()
    assert 8 * len(pack(DATA["weights"]).data) < 1.01 * entropy * len(DATA["weights"])


def rewritten(found: Table, device: Chip) -> Iterator[Write]:
    """The writes that a table stands for."""
    data, values, written, layer = iter(found.data), [0] * len(found.registers), 0, -1
    for head in data:
        layer += (head >> 2 & 1) - (head >> 3 & 1)
        if head & 16:
            written = number(data)
        changed = number(data)
        for i, register in enumerate(found.registers):
            if changed >> i & 1:
                values[i] = number(data)
            if written >> i & 1:
                yield Write(
                    register.address + device.quadrant_pitch * (head & 3) + register.pitch * layer, values[i]
                )


def number(data: Iterator[int]) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return value


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_registers_come_back_in_order(device: Chip) -> None:
    random = np.random.default_rng(3)
    names = [n for n in device.registers if n not in device.stream_registers]
    writes = []
    for layer in (0, 1, 2, 5, 6, 5, 2, 8):
        for quadrant in random.permutation(4).tolist():
            used = random.permutation(names)[: random.integers(1, len(names))].tolist()
            values = random.choice([0, 1, 0x80, 0xFFFFFFFF, 0x1234], len(used)).tolist()
            writes += [
                Write(device.layer_register(quadrant, n, layer), v) for n, v in zip(used, values, strict=True)
            ]
    writes.insert(20, Write(device.layer_register(1, "IFRM", 0), 784))
    rest = (Write(0x50000000, 5), Write(device.layer_register(0, "RCNT", 0), 1))
    result = make_table([*writes, *rest], device)
    assert list(rewritten(result, device)) == writes
    assert result.rest == rest


@pytest.mark.parametrize(("symbols", "longest"), [(17, LONGEST), (18, 9)])
def test_a_code_of_the_longest_length_is_kept(symbols: int, longest: int) -> None:
    """Of n symbols that occur as often as Fibonacci's numbers say, the rarest two have codes of n - 1 bits."""
    frequencies = np.zeros(256, np.int64)
    frequencies[:2] = 1
    for symbol in range(2, symbols):
        frequencies[symbol] = frequencies[symbol - 1] + frequencies[symbol - 2]
    assert _lengths(frequencies).max() == longest
