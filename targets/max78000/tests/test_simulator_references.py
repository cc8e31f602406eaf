"""The vendor's networks: the simulator, fed with a program's writes alone, must find the answers that the vendor's generator expects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from references import IMPOSSIBLE as UNREADABLE
from references import digest, references

from mace_core.testing.requirements import require
from mace_target_max78000.device import Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Write
from mace_target_max78000.simulate import NotModeledError, Simulator, find_mismatches, replay

REFERENCES = {r.name: r for r in references()}
IMPOSSIBLE = [name for name in UNREADABLE if name in REFERENCES]
CONDITIONAL = [name for name, reference in REFERENCES.items() if reference.conditional]


@pytest.fixture(autouse=True)
def networks() -> None:
    require(
        None
        if REFERENCES
        else "the networks are not beside the checkout, and MACE_MODELS names no folder with them"
    )


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in (*IMPOSSIBLE, *CONDITIONAL)] or [""])
def test_known_answer(name: str) -> None:
    reference = REFERENCES[name]
    image = synthesize(reference.network, reference.options, reference.device).image
    simulator = replay(image)
    assert list(find_mismatches(simulator, replace(image, known_answer=reference.known_answer))) == []


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in (*IMPOSSIBLE, *CONDITIONAL)] or [""])
def test_the_vendors_own_program(name: str) -> None:
    """The vendor's registers and biases as they were dumped, not ours, must make the vendor's answer.

    Only the words of weights and input are ours: of the weights the vendor's are known by their hash.
    """
    reference = REFERENCES[name]
    image = synthesize(reference.network, reference.options, reference.device).image
    content = reference.content
    if image.kernels:
        assert digest(image.kernels) == content["weights"]["sha256"]
    dumped = {
        phase: tuple(Write(*pair) for pair in content["registers"][f"cnn_{phase}"])
        for phase in ("init", "configure", "start")
    }
    biases = {int(key.removeprefix("BIAS_")): bytes(values) for key, values in content["bias"].items()}
    program = replace(image, **dumped, bias=biases, known_answer=reference.known_answer)
    assert list(find_mismatches(replay(program), program)) == []


@pytest.mark.parametrize("name", CONDITIONAL or [""])
def test_conditional_layers_are_told_apart_from_faults(name: str) -> None:
    reference = REFERENCES[name]
    image = synthesize(reference.network, reference.options, reference.device).image
    with pytest.raises(NotModeledError, match="conditional layers are not simulated"):
        replay(image)


@pytest.mark.parametrize("name", IMPOSSIBLE or [""])
def test_operands_lie_side_by_side(name: str) -> None:
    reference = REFERENCES[name]
    simulator = replay(synthesize(reference.network, reference.options, reference.device).image)
    first = results(simulator, reference.device, 0x1000, 400).reshape(200, 2, 4)
    added = np.clip(first.astype(int).sum(1), -128, 127)
    assert np.array_equal(results(simulator, reference.device, 0x2000, 200), added)
    pairs = added.reshape(100, 2, 4)
    assert np.array_equal(results(simulator, reference.device, 0x3000, 100), pairs[:, 0] ^ pairs[:, 1])


def results(simulator: Simulator, device: Chip, offset: int, words: int) -> np.ndarray[Any, Any]:
    """Signed bytes [words, 4] of the first data memory."""
    return np.frombuffer(simulator.read_block(device.data_address(0, offset), 4 * words), np.int8).reshape(
        words, 4
    )
