"""What a program takes on the chip, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mace_frontend_ai8x.network import INPUT, Layer, Network
from mace_target_max78000.device import KERNEL_BYTES, PER_MEMORY, PROCESSORS, QUADRANTS, Device
from mace_target_max78000.encode import Synthesis
from mace_target_max78000.encode.hardware_layers import Unit
from mace_target_max78000.encode.streaming import streams
from mace_target_max78000.encode.weight_memory import Run
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options
from mace_target_max78000.report.costs import STARTUP, Operations, count_operations, estimate_cycles


@dataclass(frozen=True)
class DataRange:
    """Bytes that a value takes in some data memories while it is needed.

    maker: the layer that writes it, INPUT for the network's input.  memories: numbers.  first, last: the
    first byte and the byte after the last.  start, end: the first and the last layer of its life; results
    live on after the last layer.
    """

    maker: int
    memories: tuple[int, ...]
    first: int
    last: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class LayerReport:
    """One layer: its processors and output slots as masks, words of weight memory in each processor, weights and bias in bytes."""

    name: str
    processors: int
    output_processors: int
    run: Run | None
    weight_bytes: int
    bias_bytes: int
    operations: Operations
    cycles: int


@dataclass(frozen=True, eq=False)
class Report:
    """A whole program.

    columns: for each processor how many words of weight memory are in use.  data_bytes: of all data memories,
    that ever hold something.
    flash: bytes of weights, bias, register values and known answer as the program holds them.
    """

    name: str
    device: Device
    layers: tuple[LayerReport, ...]
    ranges: tuple[DataRange, ...]
    columns: tuple[int, ...]
    data_bytes: int
    bias_bytes: int
    quadrants: tuple[int, ...]
    flash: Mapping[str, int]

    @property
    def operations(self) -> Operations:
        """Of all layers."""
        return sum((layer.operations for layer in self.layers), Operations())

    @property
    def cycles(self) -> int:
        """Of all layers, with those before the first."""
        return STARTUP + sum(layer.cycles for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """Of all layers, as they are packed; words' unused bytes do not count."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def weight_capacity(self) -> int:
        """Bytes of all weight memories."""
        return KERNEL_BYTES * sum(self.device.kernel_capacity(p) for p in range(PROCESSORS))

    @property
    def data_capacity(self) -> int:
        """Bytes of all data memories."""
        return self.device.data_bytes * PROCESSORS // PER_MEMORY

    @property
    def bias_capacity(self) -> int:
        """Bytes of all bias memories."""
        return self.device.bias_bytes * QUADRANTS


def analyze_program(network: Network, synthesis: Synthesis, options: Options) -> Report:
    """The report of a network's program."""
    image, units, runs = synthesis.image, synthesis.units, synthesis.runs
    device = image.device
    pipeline = device.features.pipeline and options.pipeline
    columns = [0] * PROCESSORS
    for chunk in image.kernels:
        columns[chunk.processor] += chunk.count
    ranges = list_data_ranges(network, units, options, device)
    return Report(
        name=network.name,
        device=device,
        layers=tuple(
            _layer(network.layers[u.index], u, runs, estimate_cycles(u, image.quadrants, pipeline))
            for u in units
        ),
        ranges=ranges,
        columns=tuple(columns),
        data_bytes=_count_touched(ranges),
        bias_bytes=sum(map(len, image.bias.values())),
        quadrants=image.quadrants,
        flash=_flash(image),
    )


def _layer(layer: Layer, unit: Unit, runs: Mapping[int, Run], count: int) -> LayerReport:
    weights = layer.weights
    return LayerReport(
        name=layer.name,
        processors=unit.place.processors,
        output_processors=unit.place.output_processors,
        run=runs.get(unit.index),
        weight_bytes=0 if weights is None else -(-weights.values.size * weights.bits // 8),
        bias_bytes=0 if layer.bias is None else int(layer.bias.size),
        operations=count_operations(layer),
        cycles=count,
    )


def list_data_ranges(
    network: Network, units: Sequence[Unit], options: Options, device: Device
) -> tuple[DataRange, ...]:
    """Where the input and each layer's output lie, and how long."""
    rings = {i: s.rollover for i, s in streams(units, options, device).items() if s.rollover}
    found = [_range(network, units, INPUT, rings)]
    return (*found, *(_range(network, units, unit.index, rings) for unit in units))


def _range(network: Network, units: Sequence[Unit], maker: int, rings: Mapping[int, int]) -> DataRange:
    """The range of one value.

    rings: words of the buffer that a streaming layer reads.  Streaming layers run at the same time.
    """
    streaming = max((u.index for u in units if u.place.streaming), default=0)
    readers = [i for i, layer in enumerate(network.layers) if maker in layer.inputs]
    ring = rings.get(readers[0]) if len(readers) == 1 else None
    if maker == INPUT:
        mask, first, words = _input(units[0], network.layers[0])
        stays = False
    else:
        mask, first, words = _output(units[maker])
        stays = network.layers[maker].output or maker == len(units) - 1
    early = maker <= streaming
    start, end = (0, streaming) if early else (maker, maker)
    memories = tuple(m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF)
    last = first + 4 * (ring or words)
    return DataRange(maker, memories, first, last, start, len(units) if stays else max([end, *readers]))


def _output(unit: Unit) -> tuple[int, int, int]:
    """A layer's slots, its first byte, the words from its first to its last."""
    rows, columns = unit.layer.out_dim
    words = rows * columns * unit.out_passes * (unit.layer.width // 8)
    return (
        unit.place.output_processors,
        unit.place.out_offset - 4 * unit.ignored,
        (words - 1) * unit.write_step + 1,
    )


def _input(unit: Unit, layer: Layer) -> tuple[int, int, int]:
    """The input's slots, its first byte, its words in each data memory.  layer: as the network has it."""
    positions = layer.dim[0] * layer.dim[1]
    words = -(-positions // 4) if unit.place.chw else positions * unit.in_passes * unit.layer.operands
    return unit.place.processors, unit.place.in_offset, words


def _count_touched(ranges: Sequence[DataRange]) -> int:
    total = 0
    for memory in range(PROCESSORS // PER_MEMORY):
        reached = 0
        for first, last in sorted((r.first, r.last) for r in ranges if memory in r.memories):
            total += max(0, last - max(first, reached))
            reached = max(reached, last)
    return total


def _flash(image: Image) -> dict[str, int]:
    """Bytes of the program's tables: two words before each run of weights, address, mask and count before each run of results."""
    writes = len(image.init) + len(image.configure) + len(image.start)
    return {
        "weights": sum(8 + 4 * len(chunk.words) for chunk in image.kernels) + 4,
        "bias": sum(map(len, image.bias.values())),
        "registers": 8 * writes,
        "known answer": sum(12 + 4 * len(check.values) for check in image.known_answer) + 4,
    }
