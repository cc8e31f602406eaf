"""Computes when a streaming layer may begin, how far it then goes before it waits, and when its buffer wraps.

Positions are counted in words of one data memory.  Formulas are those that the vendor's generated programs
show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mace_target_max78000.device import Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.options import Options

CHANNEL_BUFFER = 12
"""Words of the first generation's buffer for an input that lies channel by channel."""


@dataclass(frozen=True)
class StreamRegisters:
    """A streaming layer's registers.

    start: words that must be there before it begins.  columns, rows: words to wait for at each column, at the
    end of each row.
    passes: of earlier layers.  rollover: words of the buffer, 0 where it holds all.  frame: words of the
    input, first layer with FIFO.
    """

    start: int = 0
    columns: int = 0
    rows: int = 0
    passes: int = 0
    rollover: int = 0
    frame: int = 0


def list_streams(
    units: Sequence[HardwareLayer], options: Options, device: Chip
) -> Mapping[int, StreamRegisters]:
    """Return the streams of all layers that wait for data, by layer."""
    fifo = options.fifo or options.fast_fifo
    waiting = [u for u in units if u.place.streaming or (u.index == 0 and fifo)]
    return {u.index: _stream(u, units, options, device.generation) for u in waiting}


def _stream(
    unit: HardwareLayer, units: Sequence[HardwareLayer], options: Options, generation: int
) -> StreamRegisters:
    fifo = options.fifo or options.fast_fifo
    if unit.index == 0:
        make = _first_of_second_generation if generation == 2 else _first
        frame = _words(unit.layer.dim[0] * unit.layer.dim[1], unit) if fifo else 0
        stream = replace(make(unit, options), frame=frame)
    else:
        stream = _later_of_second_generation(unit, units) if generation == 2 else _later(unit, units, options)
        increased = stream.columns + options.increase_delta1, stream.rows + options.increase_delta2
        stream = replace(stream, columns=increased[0], rows=increased[1])
    stream = replace(stream, passes=sum(u.stream_passes for u in units[: unit.index]))
    # Only what comes through a FIFO is longer than its buffer; other data lie in memory complete.
    return stream if fifo and unit.place.streaming else replace(stream, rollover=0)


def _words(values: int, unit: HardwareLayer) -> int:
    """Return words that hold as many positions: four of them each where a channel lies by itself."""
    return -(-values // 4) if unit.place.chw else values


def _override(option: int | None, computed: int) -> int:
    """Return what an option asks for instead of what follows from the layer."""
    return computed if option is None else option


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _roll_over(start: int, unit: HardwareLayer) -> int:
    """Return the first generation's buffer: what must be there, the rest of a window, and a step."""
    layer = unit.layer
    (rows, columns), _, stride = layer.window
    if unit.place.chw:
        return _up(CHANNEL_BUFFER, unit.in_passes)
    return _up(start + (rows - 1) * layer.dim[1] + max(stride, columns), unit.in_passes)


def _first(unit: HardwareLayer, options: Options) -> StreamRegisters:
    """Return the stream of the first generation's first layer.

    Of the options about streams, those that begin with `override` change this layer only.

    What must be there before it begins is counted in positions, even where a word holds four of them; without
    streaming that is the whole input, in words.  Either is multiplied by the rows of the pool's window, as
    the vendor's programs do.
    """
    layer = unit.layer
    (rows, columns), _, stride = layer.window
    if not unit.place.streaming:
        frame = _words(layer.dim[0] * layer.dim[1], unit)
        return StreamRegisters(_override(options.override_start, frame * rows))
    start = _override(options.override_start, ((rows - 1) * layer.dim[1] + columns) * rows)
    step = _override(options.override_delta1, (stride - 1) * layer.operands)
    wait = _override(options.override_delta2, (rows - 1) * layer.dim[1] * layer.operands)
    return StreamRegisters(
        start, step, wait, rollover=_override(options.override_rollover, _roll_over(start, unit))
    )


def _later(unit: HardwareLayer, units: Sequence[HardwareLayer], options: Options) -> StreamRegisters:
    layer, before = unit.layer, units[unit.index - 1]
    (rows, columns), _, stride = layer.window
    # A window is there when the layer before has written its last row, for which that layer's kernel must
    # have read its own last row.
    row = before.layer.pooled[1] + 2 * before.pad[1]
    kernel = before.layer.kernel
    start = row * (kernel[0] - 1 + rows - 1) + kernel[1] - 1 + columns + options.increase_start
    wait = (stride - 1) * row + columns * layer.operands
    return StreamRegisters(start, stride * layer.operands, wait, rollover=_roll_over(start, unit))


@dataclass(frozen=True)
class _Geometry:
    """A layer's rows as the second generation counts them: steps, padded width, columns left over."""

    down: int
    right: int
    padded: int
    rest: int
    left_out: int


def _geometry(unit: HardwareLayer, first: bool) -> _Geometry:
    layer = unit.layer
    (rows, columns), (row_dilation, column_dilation), stride = layer.window
    down, right = max(rows * row_dilation, stride), max(columns * column_dilation, stride)
    width = layer.dim[1]
    steps = width // (stride if first else right)
    steps -= steps * stride + columns - first > width
    rest = 0 if right == 1 and not first else width - steps * right
    return _Geometry(down, right, width + 2 * unit.pad[1], rest, max(0, width - steps * stride))


def _first_of_second_generation(unit: HardwareLayer, options: Options) -> StreamRegisters:
    """Return the stream of the second generation's first layer.

    Positions and steps are counted in words, of which one holds four positions by channels.
    """
    layer = unit.layer
    (rows, columns), _, stride = layer.window
    if not unit.place.streaming:
        return StreamRegisters(_override(options.override_start, _words(layer.dim[0] * layer.dim[1], unit)))
    geometry = _geometry(unit, first=True)
    single = stride == 1 and rows == 1
    positions = (
        geometry.down * geometry.padded + unit.pad[1] + 2 * geometry.right
    ) * layer.operands + unit.place.read_ahead * stride
    positions = _override(options.override_start, geometry.right if single else positions)
    start = positions if options.override_start is not None else _words(positions, unit)
    step = _override(options.override_delta1, _words(stride * layer.operands - single, unit))
    wait = (
        step + geometry.left_out
        if stride == 1
        else (stride - 1) * layer.dim[1] + geometry.left_out + columns - 1
    )
    wait = _words(wait, unit)
    # the pipeline takes one more word while it waits
    wait = _override(options.override_delta2, wait + (options.pipeline and wait != 0))
    rollover = positions + geometry.right + (stride - 1) * geometry.padded
    rollover = rollover * 4 * stride if unit.place.chw else rollover
    return StreamRegisters(start, step, wait, rollover=_override(options.override_rollover, rollover))


def _later_of_second_generation(unit: HardwareLayer, units: Sequence[HardwareLayer]) -> StreamRegisters:
    layer, geometry = unit.layer, _geometry(unit, first=False)
    stride, pad, width = layer.window[2], unit.pad[1], layer.dim[1]
    last = unit.index + 1 == len(units) or not units[unit.index + 1].place.streaming
    start = (pad or stride) * geometry.padded + (
        geometry.down * geometry.padded + pad + 2 * geometry.right
    ) * layer.operands
    start += (unit.place.read_ahead + last * geometry.rest) * stride
    step = stride * layer.operands
    wait = step + geometry.rest if stride == 1 else (stride - 1) * width + geometry.rest
    rollover = start + (unit.in_passes - 1) * (geometry.down * width + pad + geometry.right) + geometry.right
    return StreamRegisters(start, step, wait, rollover=_up(rollover, unit.in_passes))
