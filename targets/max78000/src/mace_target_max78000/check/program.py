"""Runs a program in the simulator before it is written, and compares every layer with the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import INPUT, Layer, Network
from mace_target_max78000.encode import Synthesis
from mace_target_max78000.encode.data_memory import (
    ResultBlock,
    list_result_words,
    list_results,
    make_input_blocks,
)
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import NotModeledError, SimulationError, Simulator, infer_again, replay

SEED = 2
"""Of the random sample: not that of the samples that the frontend makes where a model has none."""
REPORT = (
    "nothing was written; this is a fault of the tool: please report it, with the model or the description"
)


def check_program(network: Network, synthesis: Synthesis, options: Options) -> tuple[str, ...]:
    """Compare what a program leaves in the simulator's memory with the network's arithmetic, layer by layer.

    Returns notes.

    It runs twice: with the network's sample and, on the memories that the first run leaves, with random data
    of the whole range, which a program that is right for one sample by chance does not survive.
    A layer that hands its result on to one that streams has none in memory; the layers after it are compared
    instead. Raises MaceError that names the first layer that differs, or the register that the hardware
    cannot execute.
    """
    contradiction = None if options.documented else _contradiction(network)
    checker = _Checker(network, synthesis, contradiction)
    try:
        simulator = replay(synthesis.image, options.documented, checker.check)
        checker.check_results(simulator)
        # Random data would not be what the program makes of the constants, or what a buffer holds.
        if options.synthesize_input is None and not network.buffers:
            checker.repeat(simulator, options)
    except NotModeledError as error:
        return (f"the program was not compared in the simulator: {error}",)
    except SimulationError as error:
        raise MaceError(network.name, f"the simulator cannot execute the program: {error}", REPORT) from error
    if contradiction is not None:
        name = network.layers[contradiction].name
        reason = (
            "its known answer is the vendor's, which takes the operands from halves of the channels; "
            "the hardware reads them in turn"
        )
        return (f"layer {name!r} and those after it were not compared with the simulator: {reason}",)
    return ()


def _contradiction(network: Network) -> int | None:
    """Return the first layer whose operands the vendor's tool reads differently from the hardware."""
    indexed = enumerate(network.layers)
    return next(
        (
            i
            for i, layer in indexed
            if layer.operands > 1 and len(layer.inputs) == 1 and layer.inputs != (INPUT,)
        ),
        None,
    )


class _Checker:
    """Compares data memory with results after each layer of one program."""

    def __init__(self, network: Network, synthesis: Synthesis, end: int | None) -> None:
        """end: the first layer that is not compared."""
        self.network = network
        self.end = len(network.layers) if end is None else end
        self.synthesis = synthesis
        self.outputs = synthesis.outputs
        self.device = synthesis.image.device
        pairs = zip(synthesis.numbers, synthesis.units, strict=True)
        self.units: Mapping[int, HardwareLayer] = {
            number: unit for number, unit in pairs if not self._streams_on(unit)
        }

    def _streams_on(self, unit: HardwareLayer) -> bool:
        following = unit.index + 1
        places = self.network.places
        return unit.place.streaming and following < len(places) and places[following].streaming

    def check(self, simulator: Simulator, number: int) -> None:
        """Compare the result of the layer with this number in hardware."""
        unit = self.units.get(number)
        if unit is None or unit.index >= self.end:
            return
        for addresses, mask, words in list_result_words(unit, self.outputs[unit.index], self.device):
            actual = _read(simulator, addresses) & mask
            wrong = np.flatnonzero(actual != words)
            if wrong.size:
                first = int(wrong[0])
                address = f"{int(addresses[first]):#x}"
                expected = f"expected {int(words[first]):#x} (mask {mask:#x})"
                self._raise(unit.index, f"leaves {int(actual[first]):#x} at {address}, {expected}")

    def repeat(self, simulator: Simulator, options: Options) -> None:
        """Run the program again with random data, and compare all results with their arithmetic."""
        sample = np.asarray(np.random.default_rng(SEED).integers(-128, 128, self.network.sample.shape))
        self.outputs = outputs(replace(self.network, sample=sample), options)
        infer_again(
            simulator,
            self.synthesis.image,
            make_input_blocks(self.synthesis.units[0], sample, options, self.device),
        )
        self.check_results(simulator)

    def check_results(self, simulator: Simulator) -> None:
        """Compare the blocks of results as `cnn_unload` reads them.

        Not those of a description that lists its own.
        """
        if self.network.unloads or self.end < len(self.network.layers):
            return
        last = [index for index, layer in enumerate(self.network.layers) if layer.output]
        for index, block in zip(last, list_results(self.network), strict=True):
            expected = self.outputs[index].reshape(block.channels, block.pixels)
            if not np.array_equal(self._read_unloaded(simulator, block), expected):
                self._raise(index, "has results that cnn_unload does not find where it reads them")

    def _read_unloaded(self, simulator: Simulator, block: ResultBlock) -> Array:
        """Return a block of results as signed numbers [channels, pixels]."""
        rows = []
        pixels = np.arange(block.pixels) * block.pixel_words
        for channel in range(block.channels):
            slot = block.slots[channel % len(block.slots)]
            base = self.device.data_address(slot, block.offset)
            words = pixels + channel // len(block.slots) * block.pass_words
            rows.append(_values(simulator, base + 4 * words, slot, block.width))
        return np.stack(rows)

    def _raise(self, index: int, problem: str) -> None:
        layer: Layer = self.network.layers[index]
        raise MaceError(
            f"{self.network.name}: layer {layer.name!r}",
            f"the program, run in the simulator, {problem}",
            REPORT,
        )


def _values(simulator: Simulator, addresses: Array, slot: int, width: int) -> Array:
    """Return the numbers of one slot: bytes of these words, or the slot's word of each group of four."""
    lane = slot % 4
    if width == 32:
        return _read(simulator, addresses + 4 * lane).astype(np.uint32).view(np.int32)
    return (_read(simulator, addresses) >> 8 * lane & 0xFF).astype(np.uint8).view(np.int8)


def _read(simulator: Simulator, addresses: Array) -> Array:
    """Return the words at ascending addresses of one data memory, int64."""
    first, last = int(addresses[0]), int(addresses[-1])
    words = np.frombuffer(simulator.read_block(first, last + 4 - first), "<u4")
    return np.asarray(words[(addresses - first) // 4], np.int64)
