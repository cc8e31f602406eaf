"""The C project of a program made by hand, run against an accelerator that only remembers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from project_images import (
    DEVICES,
    FIFO,
    STATUS,
    Build,
    Recorder,
    fed_by_fifo,
    image_of,
    list_writes,
    network_of,
)

from mace_core.errors import MaceError
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.emulator.command import run_firmware
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.image import Check
from mace_target_max78000.options import Options


@pytest.mark.slow
@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(table_driven=True),
        Options(compact_weights=True, timer=0, softmax=True, boost=(2, 5)),
        Options(wfi=False),
    ],
    ids=["plain", "tables", "compact", "busy"],
)
def test_firmware_writes_what_the_image_holds(build: Build, device: Chip, options: Options) -> None:
    image = image_of(device)
    accelerator = Recorder(device)
    outcome = run_firmware(build(image, network_of(), options), device, accelerator)
    expected = list(list_writes(image))
    assert accelerator.writes[: len(expected)] == expected
    cleared = [(a, v) for a, v, _ in accelerator.writes[len(expected) :]]
    assert cleared == [(device.control_register(0, 0), 0x100008), (device.control_register(1, 0), 0x100808)]
    assert outcome.passed, outcome.console
    assert outcome.status == 0
    assert outcome.results == (0x11, 0x12345678, 33)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_fifos_are_fed_in_turn_after_the_start(build: Build, device: Chip) -> None:
    image = fed_by_fifo(image_of(device), fifos=3)
    accelerator = Recorder(device, fifo_words=6)
    outcome = run_firmware(build(image, network_of(), Options(fifo=True)), device, accelerator)
    expected = list(list_writes(image))
    # the last word of FIFO 0 ends the recorder's network, so its interrupt comes before the words of the
    # others
    handled = len(image.quadrants)
    ordinary = [w for w in accelerator.writes if w not in accelerator.writes[-handled - 2 :]]
    assert ordinary == [w for w in expected if w in ordinary]
    assert outcome.passed


@pytest.mark.sampled(every=3)
def test_a_full_fifo_is_waited_for(build: Build) -> None:
    image = fed_by_fifo(image_of(MAX78000), fifos=1)
    accelerator = Recorder(fifo_words=6)
    answers = iter([1, 1, 1, 0] + [0] * 5)
    seen: list[int] = []

    def read(address: int, size: int = 4) -> int:
        if address == STATUS:
            seen.append(next(answers))
            return seen[-1]
        return accelerator.memory.get(address, 0)

    accelerator.read = read  # type: ignore[method-assign]
    assert run_firmware(build(image, network_of(), Options(fifo=True)), MAX78000, accelerator).passed
    assert len(seen) == 9


@pytest.mark.sampled(every=3)
def test_input_made_from_a_few_words(build: Build) -> None:
    image = fed_by_fifo(image_of(MAX78000), fifos=1)
    words = tuple(5 + i % 2 + 0x10203 * (i // 2) for i in range(6))
    image = replace(image, inputs=(replace(image.inputs[0], words=words),))
    options = Options(fifo=True, synthesize_input=0x10203, synthesize_words=2)
    accelerator = Recorder(fifo_words=6)
    assert run_firmware(build(image, network_of(), options), MAX78000, accelerator).passed
    assert tuple(v for a, v, _ in accelerator.writes if a == FIFO) == words
    assert "0x00010208" not in emit_project(image, network_of(), options, "")["sampledata.h"]


@pytest.mark.parametrize(
    ("through_fifo", "group", "problem"),
    [
        (True, 2, ""),
        (True, 6, ""),
        (True, 4, "6 words of input in groups of 4; use a FIFO and a divisor"),
        (False, 2, "words of input in groups of 2; use a FIFO and a divisor"),
    ],
)
def test_input_in_groups_that_differ_by_a_constant(through_fifo: bool, group: int, problem: str) -> None:
    image = image_of(MAX78000)
    if through_fifo:
        image = fed_by_fifo(image, fifos=1)
        image = replace(image, inputs=(replace(image.inputs[0], words=tuple(range(6))),))
    options = Options(fifo=through_fifo, synthesize_input=0x10203, synthesize_words=group)
    if problem:
        with pytest.raises(MaceError, match=f"synthesize_input: .*{problem}"):
            emit_project(image, network_of(), options, "")
        return
    files = emit_project(image, network_of(), options, "")
    assert any(f"[i % {group}] + 0x00010203 * (i / {group})" in str(text) for text in files.values())


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("corrupted", [False, True])
def test_weights_word_by_word_and_verified(build: Build, device: Chip, corrupted: bool) -> None:
    image = image_of(device)
    accelerator = Recorder(device)
    first, last = device.kernel_address(0, 0), device.kernel_address(17, 4)
    expected = [(first, 0), (first + 4, 0x00000100), (first + 8, 0x000002FF), (first + 12, 0)]
    packed = b"".join(w.to_bytes(4, "big") for w in image.kernels[1].words)
    for i in range(4):
        word = packed[9 * i : 9 * i + 9]
        parts = (word[0], int.from_bytes(word[1:5], "big"), int.from_bytes(word[5:], "big"), 0)
        expected += [(last + 16 * i + 4 * k, part) for k, part in enumerate(parts)]
    elf = build(image, network_of(), Options(mexpress=False, verify_weights=True))
    if corrupted:
        plain = accelerator.write

        def write(address: int, value: int, size: int = 4) -> None:
            plain(address, value ^ (address == last + 8), size)

        accelerator.write = write  # type: ignore[method-assign]
    outcome = run_firmware(elf, device, accelerator)
    if corrupted:
        assert "FAIL" in outcome.console
        assert outcome.status == 1
    else:
        assert [(a, v) for a, v, _ in accelerator.writes if a in dict(expected)] == expected
        assert outcome.passed


@pytest.mark.slow
@pytest.mark.sampled(every=3)
def test_a_wrong_result_fails(build: Build) -> None:
    image = image_of(MAX78000)
    wrong = Check(MAX78000.data_address(4), 0xFF, (7, 9))
    outcome = run_firmware(
        build(replace(image, known_answer=(image.known_answer[0], wrong)), network_of(), Options()),
        MAX78000,
        Recorder(),
    )
    assert (
        "Data mismatch (2/2) at address 0x50408004: Expected 0x00000009, read 0x00000008." in outcome.console
    )
    assert "FAIL" in outcome.console
    assert (outcome.status, outcome.passed) == (1, False)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
def test_other_input_needs_no_other_program(build: Build) -> None:
    elf = build(image_of(MAX78000), network_of(), Options())
    outcome = run_firmware(elf, MAX78000, Recorder(), {0: (0xFFFFFFFF, 1, 2), 4: (3, 4)})
    assert outcome.results == (0xFFFFFFFF, 1, 2)
    assert outcome.status == 0
    with pytest.raises(MaceError, match="input_0 has 3 words, not 4"):
        run_firmware(elf, MAX78000, Recorder(), {0: (1, 2, 3, 4)})
