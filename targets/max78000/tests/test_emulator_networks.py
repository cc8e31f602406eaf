"""Firmware of the vendor's networks: compiled, executed on an emulated processor beside the simulated accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from project_images import strict
from references import MODELS, Reference, references
from test_packing import rewritten

from mace_core.registry import Registry
from mace_core.testing.requirements import require
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import Network
from mace_target_max78000.emulator.command import Outcome, run_firmware
from mace_target_max78000.emulator.machine import load_firmware
from mace_target_max78000.encode import synthesize
from mace_target_max78000.encode.data_memory import ResultBlock, list_results
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware
from mace_target_max78000.firmware.packed_tables import make_table
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import Simulator

NETWORKS = (
    *(
        "mnist-MAX78000",
        "cifar-10-MAX78000",
        "kws20_v3-MAX78000",
        "cats-dogs-MAX78000",
        "camvid_unet-MAX78000",
    ),
    *("mnist-MAX78002", "cats-dogs-MAX78002", "kws20_v3_1-MAX78002", "svhn_tinierssd-MAX78002"),
    *(
        "test-fifostream-16ch-hwc-MAX78000",
        "test-stream-transition-MAX78002",
        "test-wideout-MAX78000",
        "test-conv1d-dilation7-pad0-MAX78002",
    ),
)
"""Real networks of both parts, and of the unit networks a few with FIFOs, streams, wide results and one dimension."""

REFERENCES: Mapping[str, Reference] = {r.name: r for r in references()}
pytestmark = pytest.mark.skipif(
    not REFERENCES, reason=f"no networks in {MODELS}; MACE_MODELS names another folder"
)


@dataclass(frozen=True, eq=False)
class Made:
    """A network with its program and options."""

    reference: Reference
    network: Network
    image: Image
    options: Options

    def execute(self, folder: Path, toolchain: str = "zig") -> Outcome:
        """Build its firmware and run it."""
        return run_firmware(
            self.elf(folder, toolchain), self.reference.device, Simulator(self.reference.device)
        )

    def elf(self, folder: Path, toolchain: str = "zig") -> bytes:
        """Its firmware."""
        found = Registry.load().toolchains[toolchain]
        require(found.missing("cortex-m4"))
        project = emit_project(self.image, self.network, self.options, "")
        return build_firmware(project, strict(found.compiler("cortex-m4")), folder)


@cache
def synthesize_reference(name: str, **changes: object) -> Made:
    reference = REFERENCES[name]
    network, options = reference.network, replace(reference.options, **changes)  # type: ignore[arg-type]
    return Made(reference, network, synthesize(network, options, reference.device).image, options)


@pytest.mark.slow
@pytest.mark.sampled(cases="^(mnist-MAX78000|test-fifo)")
@pytest.mark.parametrize("name", NETWORKS)
def test_known_answer_passes(name: str, tmp_path: Path) -> None:
    outcome = synthesize_reference(name).execute(tmp_path)
    assert outcome.passed, outcome.console


@pytest.mark.slow
@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("name", NETWORKS[:8])
def test_one_corrupted_weight_fails(name: str, tmp_path: Path) -> None:
    whole = synthesize_reference(name)
    first = next(layer for layer in whole.network.layers if layer.weights is not None)
    assert first.weights is not None
    values = first.weights.values.copy()
    values.flat[values.size // 2] ^= 0x40
    wrong = replace(first, weights=replace(first.weights, values=values))
    layers = tuple(wrong if layer is first else layer for layer in whole.network.layers)
    kernels = synthesize(
        replace(whole.network, layers=layers), whole.options, whole.reference.device
    ).image.kernels
    assert sum(a != b for a, b in zip(kernels, whole.image.kernels, strict=True)) == 1
    outcome = replace(whole, image=replace(whole.image, kernels=kernels)).execute(tmp_path)
    assert "*** FAIL ***" in outcome.console
    assert outcome.status == 1


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["mnist-MAX78000", "kws20_v3_1-MAX78002"])
def test_the_other_compiler(name: str, tmp_path: Path) -> None:
    assert synthesize_reference(name).execute(tmp_path, "arm-none-eabi").passed


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["mnist-MAX78000", "kws20_v3_1-MAX78002"])
def test_weights_without_the_packing_loader(name: str, tmp_path: Path) -> None:
    assert synthesize_reference(name, mexpress=False, verify_weights=True).execute(tmp_path).passed


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["kws20_v3-MAX78000", "svhn_tinierssd-MAX78002"])
def test_tables_do_the_same_in_less_flash(name: str, tmp_path: Path) -> None:
    packed = synthesize_reference(name, table_driven=True)
    assert packed.execute(tmp_path / "packed").passed
    sizes = [
        sum(len(data) for _, data in load_firmware(m.elf(tmp_path / "sizes")).segments)
        for m in (packed, synthesize_reference(name))
    ]
    assert sizes[0] < 0.75 * sizes[1]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [
        "mnist-MAX78000",
        "cats-dogs-MAX78000",
        "cats-dogs-MAX78002",
        "svhn_tinierssd-MAX78002",
        "test-fifostream-pool-hwc-MAX78000",
        "test-wideout-MAX78000",
    ],
)
@pytest.mark.parametrize("mlator", [False, True], ids=["plain", "mlator"])
def test_other_input(name: str, mlator: bool, tmp_path: Path) -> None:
    """What cnn_unload gives for input that the firmware was not made with is what the layers compute."""
    whole = synthesize_reference(name, mlator=mlator)
    network, device = whole.network, whole.reference.device
    network = replace(network, sample=np.random.default_rng(1).integers(-128, 128, network.sample.shape))
    blocks = synthesize(network, whole.options, device).image.inputs
    words = {block.processor if block.fifo is None else block.fifo: block.words for block in blocks}
    outcome = run_firmware(whole.elf(tmp_path), device, Simulator(device), words)
    computed = [
        value
        for layer, value in zip(network.layers, outputs(network, whole.options), strict=True)
        if layer.output
    ]
    assert outcome.results == tuple(
        word
        for block, value in zip(list_results(network), computed, strict=True)
        for word in unloaded(block, value)
    )


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("name", REFERENCES)
def test_registers_come_back_from_their_table(name: str) -> None:
    whole = synthesize_reference(name)
    image = whole.image
    result = make_table(image.configure, image.device)
    assert (*rewritten(result, image.device), *result.rest) == image.configure
    conditions = 24 * len(image.quadrants) if whole.reference.conditional else 0
    assert len(result.rest) <= 2 + conditions  # the FIFOs' and those of conditional layers


def unloaded(block: ResultBlock, value: np.ndarray) -> list[int]:
    """A layer's results as cnn_unload delivers them: bytes by channel, words by the memory they lie in, up to a whole word."""
    rows = value.reshape(block.channels, block.pixels).astype("<u4" if block.width == 32 else "u1")
    data = b"".join(part.T.tobytes() for part in np.split(rows, np.cumsum(block.groups)[:-1]))
    return np.frombuffer(data + bytes(-len(data) % 4), "<u4").tolist()
