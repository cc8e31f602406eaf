"""How values lie to each other: which share an offset, which are interleaved, which slots follow from which others.

Operands of one element-wise operation are interleaved: word k of each position is operand k's.  Joined inputs
of one pass lie in consecutive data memories at one offset; of several passes, each pass's are interleaved
like operands.  A layer that does not convolve writes to the slots that it reads.  Where a value would have to
lie in two ways, a layer that copies it is inserted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mace_target_max78000.automatic.placement.lower import copy_of, selection
from mace_target_max78000.automatic.placement.ties import Lane, Ties
from mace_target_max78000.automatic.placement.values import (
    Value,
    contiguous,
    folded,
    in_hardware,
    passes_of,
    per_pass,
    readers,
    values_of,
)
from mace_target_max78000.device import PER_MEMORY, PROCESSORS, Device
from mace_target_max78000.network import INPUT, Layer, Operation, Place
from mace_target_max78000.synthesis.kernels import ALIGNMENT, words_of


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A network whose values can all lie somewhere.

    values: by layer, and the input's.  groups: for each value a number that it shares with those whose slots
    follow from its own, and its first slot counted from the group's.  lanes: for each value the others that
    share its offset.
    words: that each layer takes of the weight memory of its processors.
    """

    layers: tuple[Layer, ...]
    values: Mapping[int, Value]
    groups: Mapping[int, tuple[int, int]]
    lanes: Mapping[int, Lane]
    words: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a reader wants a value: its word among `gap`, its first slot counted from the reader's.

    joined: all that it reads so.
    """

    gap: int = 1
    position: int = 0
    shift: int = 0
    joined: tuple[int, ...] = ()


def arranged(layers: Sequence[Layer], source: Layer, device: Device) -> Arrangement:
    """Insert the copies that the layers need.  source: the network's input."""
    arranger = _Arranger(layers, source, device)
    for index in range(len(layers)):
        arranger.add(index)
    ties = arranger.ties
    return Arrangement(
        tuple(arranger.layers), ties.values, ties.groups, ties.lanes, _words(arranger.layers, device)
    )


def _words(layers: Sequence[Layer], device: Device) -> tuple[int, ...]:
    places = [Place(contiguous(layer.channels), contiguous(layer.out_channels)) for layer in layers]
    units = in_hardware(layers, places, device)
    return tuple(0 if u.layer.weights is None else -(-words_of(u) // ALIGNMENT) * ALIGNMENT for u in units)


def layouts(layer: Layer, values: Mapping[int, Value], channels: Mapping[int, int]) -> list[Layout]:
    """How a layer wants each of its inputs."""
    inputs = layer.inputs
    if len(inputs) == 1:
        return [Layout()]
    if layer.eltwise is not None:
        return [Layout(len(inputs), k, 0, inputs) for k in range(len(inputs))]
    passes = passes_of(layer.channels)
    sizes = [channels[source] if passes > 1 else values[source].memories * PER_MEMORY for source in inputs]
    count = per_pass(layer.channels) if passes > 1 else PROCESSORS
    firsts = accumulate(sizes[:-1], initial=0)
    return [Layout(passes, first // count, first % count, inputs) for first in firsts]


class _Arranger:
    """The layers done so far, with new numbers, and their values' ties.

    renamed: new numbers of old layers.
    """

    def __init__(self, layers: Sequence[Layer], source: Layer, device: Device) -> None:
        self.old: Mapping[int, Layer] = dict(enumerate(layers)) | {INPUT: source}
        self.old_values, self.device = values_of(layers, source, device), device
        channels = {i: layer.out_channels for i, layer in self.old.items()}
        self.wanted = [layouts(layer, self.old_values, channels) for layer in layers]
        self.readers = readers(layers)
        self.layers: list[Layer] = []
        self.renamed = {INPUT: INPUT}
        self.ties = Ties({INPUT: self.old_values[INPUT]})
        self.copies: dict[tuple[int, Layout], int] = {}

    def add(self, index: int) -> None:
        """Append an old layer, before it the copies that it needs."""
        layer = self.old[index]
        pairs = list(zip(layer.inputs, self.wanted[index], strict=True))
        inputs = self._inputs(layer, pairs, free=False) or self._inputs(layer, pairs, free=True)
        number = self._append(replace(layer, inputs=tuple(inputs)), self.old_values[index])
        self.renamed[index] = number
        if layer.operation is Operation.PASSTHROUGH or layer.groups > 1:
            shifts = [layout.shift - pairs[0][1].shift for _, layout in pairs]
            pattern = 0
            for value, shift in zip(inputs, shifts, strict=True):
                pattern |= self.ties.values[value].pattern << shift
            self.ties.values[number] = replace(self.ties.values[number], pattern=pattern)
            self.ties.tie(inputs[0], number, 0)

    def _inputs(self, layer: Layer, pairs: Sequence[tuple[int, Layout]], free: bool) -> list[int]:
        """The values that a layer reads, side by side as it wants them.

        none, and nothing done, where other ties forbid it.

        free: all are copies that are tied to nothing else, which always can be.
        """
        count, copies, saved = len(self.layers), dict(self.copies), self.ties.saved()
        inputs: list[int] = []
        for source, layout in pairs:
            anchor = (inputs[0], pairs[0][1]) if inputs else None
            value = self._input(layer, source, (layout, anchor), free)
            if value is None:
                del self.layers[count:]
                self.copies = copies
                self.ties.restore(saved)
                return []
            inputs.append(value)
        return inputs

    def _append(self, layer: Layer, value: Value) -> int:
        self.layers.append(layer)
        number = len(self.layers) - 1
        self.ties.add(number, value)
        return number

    def _input(
        self, layer: Layer, source: int, wanted: tuple[Layout, tuple[int, Layout] | None], free: bool
    ) -> int | None:
        """The value that a layer reads: the source itself, or a copy that lies as it wants."""
        value, (layout, anchor) = self.renamed[source], wanted
        if not free:
            if self._direct(source, layout) and self._join(value, layout, anchor):
                return value
            if (source, layout) in self.copies and self._join(self.copies[source, layout], layout, anchor):
                return self.copies[source, layout]
        for kind in (self._convolution,) if free else (self._passthrough, self._convolution):
            number = kind(layer, source)
            if self._join(number, layout, anchor):
                self.copies[source, layout] = number
                return number
            self.layers.pop()
            self.ties.remove(number)
        return None

    def _direct(self, source: int, layout: Layout) -> bool:
        interleaved = self._interleaved(source)
        return interleaved == layout if layout.gap > 1 else interleaved is None or not layout.joined

    def _interleaved(self, source: int) -> Layout | None:
        """The one way in which a value is written with gaps, if every reader can read it so."""
        found = [
            (r, layout)
            for r in dict.fromkeys(self.readers[source])
            for s, layout in self._reads(r)
            if s == source
        ]
        gapped = {layout for _, layout in found if layout.gap > 1}
        if len(gapped) != 1 or source == INPUT or folded(self.old[source]):
            return None
        others = [self.old[r] for r, layout in found if layout.gap == 1]
        return gapped.pop() if not others or self._skips(source, others) else None

    def _reads(self, index: int) -> list[tuple[int, Layout]]:
        return list(zip(self.old[index].inputs, self.wanted[index], strict=True))

    def _skips(self, source: int, others: Sequence[Layer]) -> bool:
        """Whether all layers can leave out words when they read: the second generation's, of one pass, one input."""
        single = all(len(o.inputs) == 1 and o.operands == 1 and not (o.flatten or folded(o)) for o in others)
        return self.device.pipelined and single and passes_of(self.old[source].out_channels) == 1

    def _join(self, value: int, layout: Layout, anchor: tuple[int, Layout] | None) -> bool:
        """Let a value lie as a reader wants it, beside the reader's first input.

        False, and nothing done, where it cannot.
        """
        ties = self.ties
        lane = ties.lanes[value]
        if layout.gap > 1 and lane == Lane(lane.cluster):
            ties.lanes[value] = Lane(lane.cluster, layout.gap, layout.position)
        if anchor is None or ties.share(anchor[0], value, layout.shift - anchor[1].shift):
            return True
        ties.lanes[value] = lane
        return False

    def _passthrough(self, layer: Layer, source: int) -> int:
        value, name = self.renamed[source], f"{layer.name}/copy of {self.old[source].name}"
        number = self._append(
            copy_of(self.old[source], name, value), replace(self.ties.values[value], lead=0)
        )
        self.ties.tie(value, number, 0)
        return number

    def _convolution(self, layer: Layer, source: int) -> int:
        maker, name = self.old[source], f"{layer.name}/copy of {self.old[source].name}"
        made = selection(maker, name, self.renamed[source], range(maker.out_channels))
        return self._append(
            made,
            Value(
                contiguous(maker.out_channels), self.old_values[source].words - self.old_values[source].lead
            ),
        )
