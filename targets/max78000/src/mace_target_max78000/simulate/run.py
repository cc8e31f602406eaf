"""One inference: from the start, layer after layer, to the interrupt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, Chip
from mace_target_max78000.simulate.convolver import convolve, read_biases, read_kernels, sum_bypassed
from mace_target_max78000.simulate.data_paths import (
    Averaging,
    Fifos,
    OutputPlaces,
    find_places,
    finish_sums,
    number_fifos,
    read_input,
    write_outputs,
)
from mace_target_max78000.simulate.decode import decode
from mace_target_max78000.simulate.layer_settings import LayerKind, LayerSettings
from mace_target_max78000.simulate.memory import Array, BiasMemory, DataMemory, SimulationError, WeightMemory
from mace_target_max78000.simulate.registers import (
    BINARY,
    FAST,
    ONE_SHOT,
    ROUNDING,
    STREAMING,
    RegisterFile,
    Start,
)
from mace_target_max78000.simulate.streaming import Flow, Group, check_flow, find_overwritten, make_flow

ROUNDS = 8
"""How often a layer is computed again that overwrites its own input, before its results are given up."""


@dataclass(frozen=True)
class ChipState:
    """All state that an inference works on.

    on_layer: called with the number of each layer that has been executed.
    """

    device: Chip
    registers: RegisterFile
    data: DataMemory
    weights: WeightMemory
    bias: BiasMemory
    fifos: Fifos
    documented: bool
    on_layer: Callable[[int], None]


class Inference:
    """The inference that a start began.  layer: the next one, None at the end."""

    def __init__(self, chip: ChipState, start: Start) -> None:
        self._chip = chip
        self.start = start
        self.layer: int | None = start.first
        self._steps = 0
        self._group = Group(chip.device)
        self._flow: Flow | None = None
        self._is_fed = not start.fifo

    def missing(self) -> str:
        """Return what the first layer still waits for; empty where it waits for nothing."""
        if self._is_fed:
            return ""
        frame, chip = self._frame, self._chip
        short = [n for n in self._sources if chip.fifos.count(n) < frame]
        return ", ".join(f"FIFO {n} had {chip.fifos.count(n)} of {frame} words" for n in short)

    @cached_property
    def _frame(self) -> int:
        # The size of the frame is a register of the quadrant, and quadrants run in lockstep.
        frames = {self._chip.registers.layers[q].get(0, {}).get("IFRM", 0) for q in self.start.quadrants}
        if len(frames) != 1 or frames == {0}:
            raise SimulationError(
                "IFRM",
                f"words of the input's frame are {sorted(frames)}",
                "write the same count to every quadrant",
            )
        return frames.pop()

    @cached_property
    def _sources(self) -> tuple[int, ...]:
        setting = self._setting(self.start.first)
        return number_fifos(setting.processors, self.start.has(FAST), self._chip.fifos.control)

    def _setting(self, layer: int) -> LayerSettings:
        registers = {q: self._chip.registers.layers[q].get(layer, {}) for q in self.start.quadrants}
        return decode(self._chip.device, layer, registers)

    def go_on(self) -> None:
        """Run the layers that are left; one of them in one-shot mode."""
        if not self._is_fed:
            self._move_from_fifos()
        while self.layer is not None:
            setting = self._setting(self.layer)
            self._execute(setting)
            self._chip.on_layer(setting.layer)
            self._steps += 1
            if self._steps > self._chip.device.layers:
                # A layer may jump back; a program that ends takes no more steps than there are layers.
                raise setting.fault("NXTLYR", "layers follow each other without end", "let the last one stop")
            self.layer = None if self.layer == self.start.last else setting.following
            if self.start.has(ONE_SHOT):
                return

    def _move_from_fifos(self) -> None:
        """Move the frame from the FIFOs to data memory or, if the first layer streams, to its history."""
        setting, frame, chip = self._setting(self.start.first), self._frame, self._chip
        base, sources = setting.reading.base, self._sources
        memories = frozenset(n * PER_QUADRANT // PER_MEMORY for n in sources)
        if self._streams(setting):
            data = np.zeros((len(chip.data.data), 4 * (base + frame)), np.uint8)
            self._flow = Flow(data, memories, base, base + frame)
        else:
            data = chip.data.data
            # Without streaming the layer may begin only when the frame is complete.
            if setting.stream.start < frame:
                raise setting.fault("STREAM1", f"it begins after {setting.stream.start} of {frame} words")
            if 4 * (base + frame) > data.shape[1]:
                raise setting.fault(
                    "IFRM",
                    f"{frame} words do not fit a data memory from word {base} on",
                    "stream the first layer",
                )
        for number in sources:
            data.view("<u4")[number * PER_QUADRANT // PER_MEMORY, base : base + frame] = chip.fifos.take(
                number, frame
            )
        self._is_fed = True

    def _streams(self, setting: LayerSettings) -> bool:
        return self.start.has(STREAMING) and setting.stream.start > 0

    def _execute(self, setting: LayerSettings) -> None:
        """Read, compute and write one layer."""
        self._check_sources(setting)
        source = self._source(setting)
        results = self._results(setting, source)
        places = find_places(setting, self._chip.device, len(results), self.start.quadrants[0])
        if not self._streams(setting):
            results = self._overwriting(setting, source, places, results)
        self._deliver(setting, results.reshape(len(results), -1), places)

    def _results(self, setting: LayerSettings, source: Array) -> Array:
        """Return what a layer makes of data memory: [channels, rows, columns]."""
        chip, master = self._chip, self.start.quadrants[0]
        values = read_input(setting, source, Averaging(self.start.has(ROUNDING), chip.documented))
        if setting.kind is LayerKind.PASSTHROUGH:
            return finish_sums(setting, 128 * values.astype(np.int64).reshape(-1, *values.shape[2:]))
        sums = convolve(setting, values, self._weights(setting), master)
        # The first generation reads the bias of a first layer that streams one byte late.
        dummy = chip.device.generation == 1 and self._streams(setting) and setting.layer == self.start.first
        return finish_sums(setting, sums + read_biases(setting, chip.bias.data, master, dummy)[:, None, None])

    def _overwriting(
        self, setting: LayerSettings, source: Array, places: OutputPlaces, results: Array
    ) -> Array:
        """Return the results of a layer, some of which may overwrite input that is still to be read.

        The layer is computed again on its own results until these no longer change.
        """
        memories, words = find_overwritten(setting, places, (results.shape[1], results.shape[2]))
        if not len(words):
            return results
        # What a layer reads of its own results depends on them, so it is computed until they no longer
        # change. Working programs settle at once, because they overwrite only what no result needs.
        for _ in range(ROUNDS):
            after, seen = source.copy(), source.copy()
            write_outputs(setting, results.reshape(len(results), -1), places, after)
            seen.view("<u4")[memories, words] = after.view("<u4")[memories, words]
            before, results = results, self._results(setting, seen)
            if np.array_equal(before, results):
                return results
        raise setting.fault(
            "WPTR_BASE",
            f"word {int(words[0])} of its own input is overwritten before it is read",
            "write elsewhere",
        )

    def _check_sources(self, setting: LayerSettings) -> None:
        """Raise SimulationError if the master waits for sums of a quadrant that does not run."""
        silent = setting.sources - set(self.start.quadrants)
        if silent:
            raise setting.fault(
                "LCTL", f"sums of quadrants {sorted(silent)} are awaited, which were not started"
            )

    def _weights(self, setting: LayerSettings) -> Array:
        if setting.kernel.bypassed:
            return sum_bypassed(setting)
        return read_kernels(setting, self._chip.weights.data, self._chip.device, self.start.has(BINARY))

    def _source(self, setting: LayerSettings) -> Array:
        """Data memory, or the history of the buffer that a streaming layer reads."""
        if not self._streams(setting):
            self._group, self._flow = Group(self._chip.device), None
            return self._chip.data.data
        self._group.join(setting)
        if self._flow is None:
            return self._chip.data.data
        check_flow(setting, self._flow)
        self._group.check(setting, self._flow.end - self._flow.first)
        self._group.roll(setting, self._flow, self._chip.data.data)
        return self._flow.data

    def _deliver(self, setting: LayerSettings, results: Array, places: OutputPlaces) -> None:
        """Write results to data memory, or to the history of the buffer that the next layer streams from."""
        self._group.leave(setting)
        if self._streamed_on(setting):
            self._flow = make_flow(places, results.shape[1], self._chip.device)
            write_outputs(setting, results, places, self._flow.data)
            return
        if self._streams(setting):
            last = int(places.word.max()) + (results.shape[1] - 1) * places.pixel + 1
            for memory in set(places.memory.tolist()):
                self._group.claim(setting, memory, int(places.word.min()), last)
        self._flow = None
        write_outputs(setting, results, places, self._chip.data.data)

    def _streamed_on(self, setting: LayerSettings) -> bool:
        """Whether the next layer reads the results while they are made."""
        following = setting.following
        if setting.layer == self.start.last or following is None or not self._streams(setting):
            return False
        return self._streams(self._setting(following))
