"""The maker's own programs: weights, bias, registers in order and known answers, from his descriptions and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from references import MODELS, Reference, digest, references

from mace_target_max78000.image import Step, Write
from mace_target_max78000.synthesis import synthesise

REFERENCES = references()


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"the maker's networks are not in {MODELS}: set MACE_MODELS")
def test_every_network_is_there() -> None:
    real = {r.name for r in REFERENCES if r.path.parent.parent.name != "unit"}
    assert len(real) >= 11
    assert len(REFERENCES) - len(real) >= 129


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda r: r.name)
def test_program_is_the_makers(reference: Reference) -> None:
    image = synthesise(reference.network, reference.options, reference.device).image
    expected = reference.content
    assert {f"BIAS_{q}": list(values) for q, values in image.bias.items()} == expected["bias"]
    for function, steps in (("cnn_init", image.init), ("cnn_configure", image.configure), ("cnn_start", image.start)):
        assert writes(steps) == expected["registers"][function], function
    assert len(image.kernels) == expected["weights"].get("chunks", 0)
    if image.kernels:
        assert digest(image.kernels) == expected["weights"]["sha256"]
    if reference.known_answer:
        assert image.known_answer == reference.known_answer


def writes(steps: Iterable[Step]) -> list[list[int]]:
    return [[s.address, s.value] for s in steps if isinstance(s, Write)]
