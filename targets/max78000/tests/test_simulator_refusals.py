"""Register values and starts that the simulator refuses, each with its message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from test_simulator import CLOCK, SYNC, program, with_register

from mace_target_max78000.device import MAX78000
from mace_target_max78000.image import Image, Step, Write
from mace_target_max78000.simulate import SimulationError, replay

REGISTER_FAULTS: list[tuple[str, Callable[[int], int], str]] = [
    ("ENA", lambda v: v ^ 1, "enables processors 0x0006 with the weights of 0x0007"),
    ("ENA", lambda _: 0, "no processor is enabled"),
    ("RPTR_BASE", lambda _: MAX78000.data_bytes // 4 - 1, "is read where a data memory ends"),
    ("WPTR_BASE", lambda _: MAX78000.data_bytes // 4 - 1, "is written; there are"),
    ("WPTR_BASE", lambda v: v | 15 << 13, "is written; there are"),
    ("TPTR", lambda v: v + 1, "row memory of 8 words where rows need 7"),
    ("LCTL", lambda v: v | 1 << 10, "bits 0x400 mean nothing"),
    ("LCTL", lambda v: v & ~0x20, "set bits 5 and 11"),
    ("LCTL", lambda v: v | 0x8000, "adds the sums of others"),
    ("MCNT", lambda _: 0xFFF8_FFF8, "a memory that ends at 768"),
    ("MCNT", lambda v: v + 4, "kernels from bit"),
    ("ONED", lambda v: v | 1, "further time slots"),
    ("ONED", lambda v: v | 1 << 12, "a kernel of 0 values"),
    ("POST", lambda v: v | 1 << 24, "a convolution layer needs 0"),
    ("POST", lambda v: v | 0xFFF, "bias from byte 4095"),
    ("PRCNT", lambda _: 0x1F, "bits 0x10 mean nothing"),
    ("LCTL2", lambda v: v | 1 << 17, "bits 0x20000 mean nothing"),
]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    REGISTER_FAULTS,
    ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(REGISTER_FAULTS)],
)
def test_registers_that_the_hardware_cannot_follow(
    name: str, change: Callable[[int], int], message: str
) -> None:
    with pytest.raises(SimulationError, match=message) as fault:
        replay(with_register(program(MAX78000), name, change, 0, (0,) if name == "ENA" else (0, 1)))
    assert "layer 0" in str(fault.value)


def test_quadrants_work_in_step() -> None:
    image = program(MAX78000)
    with pytest.raises(SimulationError, match=r"layer 1, quadrant 1, RCNT: .* quadrants work in step"):
        replay(with_register(image, "RCNT", lambda v: v - 1, 1, (1,)))


def started(image: Image, change: Callable[[list[Step]], Iterable[Step]]) -> Image:
    """The same program with another start."""
    return replace(image, start=tuple(change(list(image.start))))


START_FAULTS: list[tuple[Callable[[list[Step]], Iterable[Step]], str]] = [
    (
        lambda steps: [Write(s.address, s.value & ~CLOCK) for s in steps if isinstance(s, Write)],
        "without a clock",
    ),
    (
        lambda steps: [steps[0], Write(steps[1].address, steps[1].value & ~SYNC), steps[2]],
        "without waiting for the master",
    ),
    (
        lambda steps: [steps[0], Write(steps[1].address, steps[1].value | 1 << 13), steps[2]],
        "where the master, quadrant 0, has",
    ),
    (lambda steps: [steps[0], steps[2]], "sums of quadrants .* are awaited|which were not started"),
    (lambda steps: steps[:2], "never ends: a start"),
    (
        lambda steps: [Write(s.address, s.value | 1 << 25) for s in steps if isinstance(s, Write)],
        "mean nothing here",
    ),
]


@pytest.mark.parametrize(("change", "message"), START_FAULTS, ids=range(len(START_FAULTS)))
def test_starts_that_the_hardware_cannot_follow(
    change: Callable[[list[Step]], Iterable[Step]], message: str
) -> None:
    with pytest.raises(SimulationError, match=message):
        replay(started(program(MAX78000), change))
