"""What the simulator makes of every bit of a layer's registers, for layers of each kind in `program_texts.txt`.

`decode_texts.txt` has the settings of each layer, and for each of its registers what becomes of the settings where
one bit is turned over: how many bits are refused, change the settings and change nothing, with the beginning of the
SHA-256 of all results.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_program_texts import DEVICES, read_cases

from mace_target_max78000.device import Chip
from mace_target_max78000.simulate import SimulationError
from mace_target_max78000.simulate.decode import decode

pytestmark = pytest.mark.slow  # two seconds together

Registers = dict[int, dict[str, int]]
TEXTS = Path(__file__).parent / "decode_texts.txt"
WRITE = re.compile(r"(\d)\.(\w+)\[(\d+)\]=(0x[0-9a-f]+)")
OWN = ("ENA", "LCTL", "POST", "WPTR_BASE", "MCNT", "MCNT1")
"""Registers of which quadrants may have some bits of their own, and one of which they may not."""


def read_registers(program: list[str], layer: int) -> Registers:
    """What a program writes to the registers of a layer, by quadrant."""
    registers: Registers = {}
    (line,) = (line for line in program if line.startswith("configure: "))
    for quadrant, name, number, value in WRITE.findall(line):
        if int(number) == layer:
            registers.setdefault(int(quadrant), {})[name] = int(value, 16)
    return registers


def describe_decoded(device: Chip, layer: int, registers: Registers) -> str:
    try:
        return str(decode(device, layer, registers))
    except SimulationError as error:
        return f"refused: {error}"


def describe_bits(device: Chip, layer: int, registers: Registers) -> Iterator[str]:
    """A line for each register: its bits are turned over in all quadrants, or in one besides the master."""
    settings = describe_decoded(device, layer, registers)
    yield settings
    for quadrants in (tuple(registers), *((quadrant,) for quadrant in list(registers)[1:2])):
        for name in device.registers if len(quadrants) == len(registers) else OWN:
            results = []
            for bit in range(32):
                values = {q: registers[q] | {name: registers[q].get(name, 0) ^ 1 << bit} for q in quadrants}
                results.append(describe_decoded(device, layer, registers | values))
            refused = sum(result.startswith("refused: ") for result in results)
            same = results.count(settings)
            digest = hashlib.sha256("\n".join(results).encode()).hexdigest()[:8]
            where = "" if len(quadrants) == len(registers) else f" of quadrant {quadrants[0]}"
            yield f"{name}{where}: {refused} refused, {32 - refused - same} change, {same} nothing, {digest}"


def read_expected() -> dict[tuple[str, int], list[str]]:
    """The lines of each case of `program_texts.txt` and layer."""
    cases: dict[tuple[str, int], list[str]] = {}
    lines: list[str] = []
    for line in TEXTS.read_text().splitlines():
        if line.startswith("> "):
            case, _, layer = line[2:].rpartition(" | layer ")
            lines = cases.setdefault((case, int(layer)), [])
        elif not line.startswith("#"):
            lines.append(line)
    return cases


EXPECTED = read_expected()
PROGRAMS = {f"{given} | {asked}": program for given, asked, program in read_cases()}


@pytest.mark.parametrize(("case", "layer"), EXPECTED, ids=[str(number) for number in range(len(EXPECTED))])
def test_bits(case: str, layer: int) -> None:
    device = DEVICES[case.rpartition(" | ")[2].split()[0]]
    registers = read_registers(PROGRAMS[case], layer)
    assert list(describe_bits(device, layer, registers)) == EXPECTED[case, layer]
