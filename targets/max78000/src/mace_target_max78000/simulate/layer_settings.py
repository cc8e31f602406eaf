"""Describes the settings of a layer, and decodes how it reads its input.

`Fields` reads the registers of one layer in one quadrant field by field; a bit that no field explains is a
fault. `LayerSettings` holds counts, pointers and switches: all that the datapath knows of a layer.
`first_generation` and `second_generation` decode counters, windows, passes and operands as either generation
encodes them.

Positions are pixels; the passes of a position, and the operands of a pass, lie in consecutive words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from mace_target_max78000.device import Chip
from mace_target_max78000.simulate.memory import SimulationError


class Fields:
    """The register values of a layer in a quadrant, by name; those that were never written are 0."""

    def __init__(self, device: Chip, layer: int, quadrant: int, values: Mapping[str, int]) -> None:
        self.device = device
        self.layer = layer
        self.quadrant = quadrant
        self.values = values
        self._known: dict[str, int] = {}

    def take(self, name: str, low: int = 0, count: int = 32) -> int:
        """Return the field of `count` bits from bit `low` on."""
        mask = (1 << count) - 1
        self._known[name] = self._known.get(name, 0) | mask << low
        return self.values.get(name, 0) >> low & mask

    def flag(self, name: str, bit: int) -> bool:
        """Return a field of one bit."""
        return bool(self.take(name, bit, 1))

    def fault(self, name: str, problem: str, remedy: str = "") -> SimulationError:
        """Return what is wrong with a register."""
        return SimulationError(
            f"layer {self.layer}, quadrant {self.quadrant}, {name}",
            f"{self.values.get(name, 0):#x}: {problem}",
            remedy,
        )

    def refuse_unknown(self) -> None:
        """Raise SimulationError if a bit is set that no field of this kind of layer explains."""
        for name, value in self.values.items():
            unknown = value & ~self._known.get(name, 0)
            if unknown:
                raise self.fault(name, f"bits {unknown:#x} mean nothing in this layer", "clear them")


class LayerKind(Enum):
    """How results follow from what is read."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    PASSTHROUGH = "passthrough"


@dataclass(frozen=True)
class Reading:
    """Where the input lies and what becomes of it before anything is multiplied.

    base: first word.  rows, columns: windows.  size: positions of a window.  row_step, column_step: words
    between windows;
    inner_row, inner_column: between the positions of one.  passes, operands: values of one processor at a
    position.
    pad: rows and columns of zeros on each side.  planar: a word holds four positions of one channel, and
    steps count positions.
    eltwise: code of the operation on the operands, None where there is none.  joined: passes are positions of
    a flattened input.
    """

    base: int
    rows: int
    columns: int
    size: tuple[int, int]
    row_step: int
    column_step: int
    inner_row: int
    inner_column: int
    passes: int
    operands: int
    pad: tuple[int, int]
    average: bool
    eltwise: int | None
    pool_first: bool
    planar: bool
    transposed: bool
    flattened: bool


@dataclass(frozen=True)
class KernelSettings:
    """Kernels in weight memory.

    rows, columns: of one kernel.  byte: where the first begins in the stream of each processor.  count: how
    many, all outputs and passes.
    bits: of a weight.  one_dimensional: a column.  bypassed: there are none, every value counts once.
    lanes: output channels that are computed at once, each from a physical memory of its own; 1 or 4.
    """

    rows: int
    columns: int
    byte: int
    count: int
    bits: int
    one_dimensional: bool
    bypassed: bool
    lanes: int = 1


@dataclass(frozen=True)
class Writing:
    """Where results go; pointers count words, the number of the data memory lies above the word's.

    bases: of each quadrant.  time_step, memory_step, channel_step: added for a time slot, for the next
    memory, for the next output pass.
    pixel: words between positions.  slots: output channels of one pass, those left out before the first one
    included.
    wide: 32-bit sums.  aligned: depthwise results go to the slots that were read from.
    """

    bases: Mapping[int, int]
    time_step: int
    memory_step: int
    channel_step: int
    pixel: int
    slots: int
    wide: bool
    aligned: bool


@dataclass(frozen=True)
class StreamSettings:
    """When a layer begins before its predecessor ends.

    start: words that must be there first; 0 for a layer that waits for its predecessor's end.  passes: of
    earlier layers.
    rollover: words of the buffer; 0 for one that holds all.  columns, rows: words to wait for at each column,
    and at the end of each row.
    own_passes: what the layer itself adds to the passes of the following ones.
    """

    start: int
    passes: int
    rollover: int
    columns: int
    rows: int
    own_passes: int


@dataclass(frozen=True)
class LayerSettings:
    """One layer.  processors: numbers of those that read.  sources: quadrants whose sums are added.

    biases: first byte by quadrant.

    timeslots: that writing takes beyond the first.  shift: of the sum, to the left.  row_memory: last and
    first word.
    following: the layer that comes next.
    """

    layer: int
    kind: LayerKind
    reading: Reading
    kernel: KernelSettings
    writing: Writing
    stream: StreamSettings
    processors: tuple[int, ...]
    sources: frozenset[int]
    biases: Mapping[int, int]
    timeslots: int
    shift: int
    relu: bool
    absolute: bool
    row_memory: tuple[int, int]
    following: int | None

    def fault(self, registers: str, problem: str, remedy: str = "") -> SimulationError:
        """Return what is wrong with the layer as a whole."""
        return SimulationError(f"layer {self.layer}, {registers}", problem, remedy)


@dataclass(frozen=True)
class _Grid:
    """What the generations encode differently: windows, padding, and steps in words."""

    windows: tuple[int, int]
    size: tuple[int, int]
    steps: tuple[int, int]
    inner: tuple[int, int]
    pad: tuple[int, int]


def first_generation(fields: Fields) -> Reading:
    """Decode the first generation's counters, which run over padded rows and columns.

    Positions follow each other without gaps.
    """
    passes, operands, transposed = _passes(fields), _operands(fields), fields.flag("POST", 28)
    pads = fields.take("RCNT", 16, 2), fields.take("CCNT", 16, 2)
    # The counters run over the padding as well.
    rows, columns = (
        fields.take(name, 0, 10) + 1 - 2 * pad for name, pad in zip(("RCNT", "CCNT"), pads, strict=True)
    )
    if min(rows, columns) < 1:
        raise fields.fault("RCNT", f"{rows} rows and {columns} columns are left after padding")
    stride = fields.take("STRIDE", 0, 4) + 1
    size = _size(fields, (fields.take("PRCNT", 0, 4) + 1, fields.take("PCCNT", 0, 4) + 1))
    if size[0] > rows or size[1] > columns:
        raise fields.fault(
            "PRCNT", f"a window of {size[0]}x{size[1]} does not fit {rows}x{columns} positions"
        )
    windows = (rows + stride - size[0]) // stride, (columns + stride - size[1]) // stride
    # Zeros between the rows of a transposed convolution are counted, but lie nowhere in memory.
    unit, width = passes * operands, columns // 2 if transposed else columns
    grid = _Grid(windows, size, (stride * width * unit, stride * unit), (width * unit, unit), pads)
    return _reading(fields, grid, passes, operands)


def second_generation(fields: Fields) -> Reading:
    """Decode the second generation's counters.

    They hold where the last window begins, and how many words lie between the end of a row of windows and the
    next.
    """
    passes, operands, transposed = _passes(fields), _operands(fields), fields.flag("POST", 28)
    stride, step = fields.take("STRIDE", 0, 4) + 1, fields.take("STRIDE", 4, 28)
    last = fields.take("RCNT", 0, 11), fields.take("CCNT", 0, 11)
    pads = _padding(fields, "RCNT"), _padding(fields, "CCNT")
    if last[0] % stride or last[1] % stride or step % stride:
        raise fields.fault(
            "STRIDE", f"the last window, {last}, and {step} words are no multiples of the step {stride}"
        )
    unit, right = step // stride, fields.take("CCNT", 16, 16)
    if fields.take("RCNT", 16, 16) != (right + (stride - 1) * (last[1] + right)) * unit:
        steps = f"{stride} rows and {unit} words at a position"
        raise fields.fault("RCNT", f"{right} columns from the last window on, {steps} lead elsewhere")
    dilation = fields.take("PRCNT", 4, 4) + 1, fields.take("PCCNT", 4, 4) + 1
    spans = fields.take("PRCNT", 0, 4), fields.take("PCCNT", 0, 4)
    if spans[0] % dilation[0] or spans[1] % dilation[1]:
        raise fields.fault("PRCNT", f"a window that spans {spans} is not dilated by {dilation}")
    size = _size(fields, (spans[0] // dilation[0] + 1, spans[1] // dilation[1] + 1))
    windows = last[0] // stride + 1, last[1] // stride + 1
    width = (last[1] + right) // (2 if transposed else 1)
    grid = _Grid(
        windows, size, (stride * width * unit, step), (dilation[0] * width * unit, dilation[1] * unit), pads
    )
    return _reading(fields, grid, passes, operands)


def _reading(fields: Fields, grid: _Grid, passes: int, operands: int) -> Reading:
    rows, columns = grid.windows
    transposed = fields.flag("POST", 28)
    if transposed:
        # Each position is followed by a zero, in rows and in columns.
        if rows % 2 or columns % 2 or grid.size != (1, 1):
            raise fields.fault(
                "POST",
                f"a transposed convolution of {rows}x{columns} pooled positions",
                "use even counts and no pool",
            )
        rows, columns = rows // 2, columns // 2
    combined = fields.flag("ONED", 13)
    return Reading(
        base=fields.take("RPTR_BASE", 0, 15),
        rows=rows,
        columns=columns,
        size=grid.size,
        row_step=grid.steps[0],
        column_step=grid.steps[1],
        inner_row=grid.inner[0],
        inner_column=grid.inner[1],
        passes=passes,
        operands=operands,
        pad=grid.pad,
        average=not fields.flag("LCTL", 8),
        eltwise=fields.take("ONED", 14, 2) if combined else None,
        pool_first=combined and fields.flag("ONED", 16),
        planar=fields.flag("LCTL", 6),
        transposed=transposed,
        flattened=fields.flag("POST", 27),
    )


def _passes(fields: Fields) -> int:
    """Return how many values a processor reads at a position.

    A flattened layer counts all its positions here.
    """
    low = fields.take("LCTL2", 0, 4)
    if not fields.flag("POST", 27):
        return low + 1
    last = fields.take("POST", 18, 4) << 4 | low
    expected = last << 16 | 2 * last + 1
    if fields.take("TPTR") != expected:
        raise fields.fault(
            "TPTR", f"row memory of a flattened layer of {last + 1} values must be {expected:#x}"
        )
    return last + 1


def _operands(fields: Fields) -> int:
    return fields.take("ONED", 18, 4) + 1 if fields.flag("ONED", 13) else 1


def _size(fields: Fields, size: tuple[int, int]) -> tuple[int, int]:
    """Return the window; one position where pooling is off."""
    return size if fields.flag("LCTL", 7) else (1, 1)


def _padding(fields: Fields, name: str) -> int:
    """Three bits: one less than the count, and whether there is any."""
    count, padded = fields.take(name, 13, 2), fields.flag(name, 15)
    if count and not padded:
        raise fields.fault(name, "a count of padding that is switched off")
    return count + 1 if padded else 0
