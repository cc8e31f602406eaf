"""The vendor's own programs: weights, bias, registers in order and known answers, from his descriptions and checkpoints."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from references import MODELS, Reference, digest, references

from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Step, Write
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

REFERENCES = references()
LINES = (Path(__file__).parent / "zero_registers.txt").read_text().splitlines()
WITH_ZEROS = {
    name: (int(count), digits)
    for name, count, digits in (line.split() for line in LINES if not line.startswith("#"))
}
FIRST_STREAM_REGISTER = MAX78002.layer_register(0, "STREAM1", 0)


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_every_network_is_there() -> None:
    real = {r.name for r in REFERENCES if r.path.parent.parent.name != "unit"}
    assert len(real) >= 11
    assert len(REFERENCES) - len(real) >= 129


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda r: r.name)
def test_program_is_the_makers(reference: Reference) -> None:
    image = synthesize(reference.network, reference.options, reference.device).image
    expected = reference.content
    assert {f"BIAS_{q}": list(values) for q, values in image.bias.items()} == expected["bias"]
    for function, steps in (
        ("cnn_init", image.init),
        ("cnn_configure", image.configure),
        ("cnn_start", image.start),
    ):
        assert writes(steps) == expected["registers"][function], function
    assert len(image.kernels) == expected["weights"].get("chunks", 0)
    if image.kernels:
        assert digest(image.kernels) == expected["weights"]["sha256"]
    if reference.known_answer:
        assert image.known_answer == reference.known_answer


@pytest.mark.parametrize("reference", [r for r in REFERENCES if r.name in WITH_ZEROS], ids=lambda r: r.name)
def test_zeros_are_written_as_by_the_vendors_generator(reference: Reference) -> None:
    results = [pair for part in with_zeros(reference) for pair in writes(part)]
    content = b"".join(struct.pack(">II", *pair) for pair in results)
    assert (len(results), hashlib.sha256(content).hexdigest()[:16]) == WITH_ZEROS[reference.name]


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize(
    "reference", [r for r in REFERENCES if r.name == "test-layers-MAX78002"], ids=lambda r: r.name
)
def test_zeros_are_not_written_over_registers_of_other_layers(reference: Reference) -> None:
    """The second generation has stream registers for eight layers.

    Behind each kind lies the next kind, of the first layers again.
    """
    _, configure, _ = with_zeros(reference)
    names = ("STREAM1", "STREAM2")
    expected = [MAX78002.layer_register(0, name, layer) for layer in range(8) for name in names]
    end = MAX78002.layer_register(0, "IFRM", 0)
    assert len(reference.network.layers) > 8
    assert [
        address for address, _ in writes(configure) if FIRST_STREAM_REGISTER <= address <= end
    ] == expected


def with_zeros(reference: Reference) -> tuple[tuple[Step, ...], ...]:
    """The steps of a program that writes zeros as well: of its start, its layers and its inference."""
    arguments = ("--write-zero-registers", *(["--fifo"] if reference.options.fifo else []))
    image = synthesize(reference.network, Options.of_arguments(arguments), reference.device).image
    return image.init, image.configure, image.start


def writes(steps: Iterable[Step]) -> list[list[int]]:
    return [[s.address, s.value] for s in steps if isinstance(s, Write)]
