"""Counts what a program takes on the chip, layer by layer: memory, operations, estimated cycles.

Operations are counted as the vendor's documentation counts them.

Cycles are an estimate. First generation: the vendor's formula. A position is read in A cycles where it is
padding and in B where it is data; a row of outputs then takes one cycle for each output slot, pass and
column.

Second generation: the vendor gives none. This one has the same structure and two differences that the
documentation names: the pipeline reads the next positions while outputs are computed, so that a row takes the
longer of the two instead of their sum; and a depthwise layer computes its channels side by side, so that a
position takes only the time slots in which its words are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mace_frontend_ai8x.network import INPUT, Eltwise, Layer, LayerActivation, Network, Operation
from mace_target_max78000.device import KERNEL_BYTES, PER_MEMORY, PROCESSORS, QUADRANTS, Chip
from mace_target_max78000.encode import Synthesis
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.streaming import list_streams
from mace_target_max78000.encode.weight_memory import WeightRun
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options

BITWISE = (Eltwise.OR, Eltwise.XOR)


@dataclass(frozen=True)
class Operations:
    """multiplications: with their additions.  comparisons: of max pooling and activations.

    additions: of average pooling and element-wise operations.
    """

    multiplications: int = 0
    comparisons: int = 0
    additions: int = 0
    bitwise: int = 0

    def __add__(self, other: Operations) -> Operations:
        """Both together."""
        return Operations(
            self.multiplications + other.multiplications,
            self.comparisons + other.comparisons,
            self.additions + other.additions,
            self.bitwise + other.bitwise,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.multiplications + self.comparisons + self.additions + self.bitwise


def count_operations(layer: Layer) -> Operations:
    """Count what one layer computes.

    Each value of a window is one comparison or addition, each activation one comparison.

    Multiplications of a transposed convolution include those with the zeros between its inputs.
    """
    outputs = layer.out_channels * prod(layer.out_dim)
    # The vendor counts each output of an activation as one comparison.
    compared = outputs if layer.activation is not LayerActivation.NONE else 0
    added = bitwise = 0
    if layer.pool is not None:
        elements = (
            layer.channels
            * prod(layer.pooled)
            * prod(layer.pool.size)
            * (layer.operands if layer.pool_first else 1)
        )
        compared, added = (compared, elements) if layer.pool.average else (compared + elements, 0)
    if layer.eltwise is not None:
        elements = (
            layer.channels * prod(layer.pooled if layer.pool_first else layer.dim) * (layer.operands - 1)
        )
        added, bitwise = (added, elements) if layer.eltwise in BITWISE else (added + elements, 0)
    return Operations(_multiplications(layer), compared, added, bitwise)


def _multiplications(layer: Layer) -> int:
    if layer.operation is Operation.PASSTHROUGH:
        return 0
    positions = prod(layer.pooled) if layer.flatten else 1
    return (
        layer.channels
        // layer.groups
        * positions
        * prod(layer.kernel)
        * layer.out_channels
        * prod(layer.out_dim)
    )


STARTUP = 1
"""Cycles before the first layer."""
LARGE = 16
"""Values of a flattened layer's input, for each processor, beyond which it takes a cycle more."""


@dataclass(frozen=True)
class _Reads:
    """Cycles to read a position: of padding, of data.  times: how often a row is read."""

    padding: int
    data: int
    times: int


def estimate_cycles(unit: HardwareLayer, quadrants: Sequence[int], pipeline: bool) -> int:
    """Return cycles of one layer; half as many again where it streams, because it waits for its input.

    pipeline: reading goes on while outputs are computed (second generation).
    """
    reads = _reads(unit)
    rows, columns = unit.layer.pooled
    if not unit.convolves:
        cycles = rows * columns * (reads.data + unit.in_passes * unit.timeslots(tuple(quadrants)))
    else:
        cycles = _convolution(unit, reads, tuple(quadrants), pipeline)
    # How long a streaming layer waits depends on the application; half as much again is a rule of thumb.
    return cycles * 3 // 2 if unit.place.streaming else cycles


def _reads(unit: HardwareLayer) -> _Reads:
    layer = unit.layer
    (rows, columns), _, _ = layer.window
    window = rows * columns
    passes = unit.flattened
    if not unit.convolves and passes > 1 and layer.pool is not None:
        passes = 2 * passes - 1
    if layer.pool_first:
        return _Reads(passes * layer.operands * 2, passes * layer.operands * (window + 1), 1)
    return _Reads(2 * passes, passes * (layer.operands * window + 1), passes)


def _convolution(unit: HardwareLayer, reads: _Reads, quadrants: tuple[int, ...], pipeline: bool) -> int:
    """Padding rows above, rows until the first window is complete, rows of outputs, padding rows below."""
    layer = unit.layer
    double = 2 if layer.operation is Operation.CONV_TRANSPOSE2D else 1
    rows, columns = (1, 1) if layer.flatten else (double * n for n in layer.pooled)
    (kernel_rows, kernel_columns), (pad_rows, pad_columns) = layer.kernel, unit.pad
    right = layer.out_dim[1] - pad_columns
    a, b, times = reads.padding, reads.data, reads.times

    def row(inside: int) -> int:
        lead = pad_columns * (a + 1) + times * (kernel_columns - 1 - pad_columns) * (inside + 1)
        return max(0, lead + times * right * inside + a * pad_columns)

    above = 2 * pad_columns * (a + 1) + times * columns * (a + 1)
    full = 2 * pad_columns * (a + 1) + times * columns * (b + 1)
    out = _outputs(unit, quadrants)
    before = max(0, kernel_rows - 1 - pad_rows)
    full_row, bottom = (max(row(x), out) if pipeline else row(x) + out for x in (b, a))
    large = layer.flatten and unit.flattened > LARGE
    return large + pad_rows * above + before * full + full_row * max(0, rows - before) + pad_rows * bottom


def _outputs(unit: HardwareLayer, quadrants: tuple[int, ...]) -> int:
    """Return cycles of one row of outputs."""
    columns, passes = unit.layer.out_dim[1], unit.flattened
    if unit.depthwise:
        return columns * passes * (unit.timeslots(quadrants) + 1)
    slots = unit.out_channel_count // passes
    return columns * passes * slots + (slots if slots == passes == 1 else 0)


@dataclass(frozen=True)
class DataRange:
    """Bytes that a value takes in some data memories while it is needed.

    maker: the layer that writes it, INPUT for the network's input.  memories: numbers.  first, last: the
    first byte and the byte after the last.  start, end: the first and the last layer of its life; results
    live on after the last layer.
    """

    producer: int
    memories: tuple[int, ...]
    first: int
    last: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class LayerUsage:
    """What one layer takes.

    processors, output_processors: masks of the reading processors and the output slots.  run: words of weight
    memory in each processor.
    """

    name: str
    processors: int
    output_processors: int
    run: WeightRun | None
    weight_bytes: int
    bias_bytes: int
    operations: Operations
    cycles: int


@dataclass(frozen=True, eq=False)
class ProgramReport:
    """A whole program.

    columns: for each processor how many words of weight memory are in use.  data_bytes: of all data memories,
    that ever hold something.
    flash: bytes of weights, bias, register values and known answer as the program holds them.
    """

    name: str
    device: Chip
    layers: tuple[LayerUsage, ...]
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


def analyze_program(network: Network, synthesis: Synthesis, options: Options) -> ProgramReport:
    """Return the report of a network's program."""
    image, units, runs = synthesis.image, synthesis.units, synthesis.runs
    device = image.device
    pipeline = device.features.pipeline and options.pipeline
    columns = [0] * PROCESSORS
    for chunk in image.kernels:
        columns[chunk.processor] += chunk.count
    ranges = list_data_ranges(network, units, options, device)
    return ProgramReport(
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


def _layer(layer: Layer, unit: HardwareLayer, runs: Mapping[int, WeightRun], count: int) -> LayerUsage:
    weights = layer.weights
    return LayerUsage(
        name=layer.name,
        processors=unit.place.processors,
        output_processors=unit.place.output_processors,
        run=runs.get(unit.index),
        # As the bits are packed; unused bytes of words are not counted.
        weight_bytes=0 if weights is None else -(-weights.values.size * weights.bits // 8),
        bias_bytes=0 if layer.bias is None else int(layer.bias.size),
        operations=count_operations(layer),
        cycles=count,
    )


def list_data_ranges(
    network: Network, units: Sequence[HardwareLayer], options: Options, device: Chip
) -> tuple[DataRange, ...]:
    """Return where the input and each layer's output lie, and how long."""
    rings = {i: s.rollover for i, s in list_streams(units, options, device).items() if s.rollover}
    input_range = [_range(network, units, INPUT, rings)]
    return (*input_range, *(_range(network, units, unit.index, rings) for unit in units))


def _range(
    network: Network, units: Sequence[HardwareLayer], producer: int, rings: Mapping[int, int]
) -> DataRange:
    """Return the range of one value.

    rings: words of the buffer that a streaming layer reads.  Streaming layers run at the same time.
    """
    streaming = max((u.index for u in units if u.place.streaming), default=0)
    readers = [i for i, layer in enumerate(network.layers) if producer in layer.inputs]
    ring = rings.get(readers[0]) if len(readers) == 1 else None
    if producer == INPUT:
        mask, first, words = _input(units[0], network.layers[0])
        stays = False
    else:
        mask, first, words = _output(units[producer])
        stays = network.layers[producer].output or producer == len(units) - 1
    early = producer <= streaming
    start, end = (0, streaming) if early else (producer, producer)
    memories = tuple(m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF)
    last = first + 4 * (ring or words)
    return DataRange(producer, memories, first, last, start, len(units) if stays else max([end, *readers]))


def _output(unit: HardwareLayer) -> tuple[int, int, int]:
    """Return a layer's slots, its first byte, the words from its first to its last."""
    rows, columns = unit.layer.out_dim
    words = rows * columns * unit.out_passes * (unit.layer.width // 8)
    return (
        unit.place.output_processors,
        unit.place.out_offset - 4 * unit.ignored,
        (words - 1) * unit.write_step + 1,
    )


def _input(unit: HardwareLayer, layer: Layer) -> tuple[int, int, int]:
    """Return the input's slots, its first byte, its words in each data memory.  layer: of the network."""
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
    """Return the bytes of the program's tables.

    Two words precede each run of weights, and address, mask and count each run of results.
    """
    writes = len(image.init) + len(image.configure) + len(image.start)
    return {
        "weights": sum(8 + 4 * len(chunk.words) for chunk in image.kernels) + 4,
        "bias": sum(map(len, image.bias.values())),
        "registers": 8 * writes,
        "known answer": sum(12 + 4 * len(check.values) for check in image.known_answer) + 4,
    }
