"""What a layer's registers ask for, as counts, pointers and switches: all that the datapath knows of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from mace_target_max78000.simulator.faults import SimulationError


class Kind(Enum):
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
    joined: bool


@dataclass(frozen=True)
class Kernel:
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
class Stream:
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
class Setting:
    """One layer.  processors: numbers of those that read.  sources: quadrants whose sums are added.

    biases: first byte by quadrant.

    timeslots: that writing takes beyond the first.  shift: of the sum, to the left.  row_memory: last and
    first word.
    following: the layer that comes next.
    """

    layer: int
    kind: Kind
    reading: Reading
    kernel: Kernel
    writing: Writing
    stream: Stream
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
        """What is wrong with the layer as a whole."""
        return SimulationError(f"layer {self.layer}, {registers}", problem, remedy)
