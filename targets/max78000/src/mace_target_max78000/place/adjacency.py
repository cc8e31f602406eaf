"""Ties values that must lie beside each other: at one offset, or in slots that follow from each other.

Operands of one element-wise operation are interleaved: word k of each position is operand k's. Joined inputs
of one pass lie in consecutive data memories at one offset; of several passes, each pass's are interleaved
like operands. A layer that does not convolve writes to the slots that it reads. Where a value would have to
lie in two ways, a layer that copies it is inserted. Ties are added one by one; one that
contradicts is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Operation
from mace_target_max78000.device import PER_MEMORY, PROCESSORS, Chip
from mace_target_max78000.encode.weight_memory import ALIGNMENT, words_of
from mace_target_max78000.place.inserted_layers import copy_layer, select_layer
from mace_target_max78000.place.values import (
    StoredValue,
    contiguous_slots,
    count_passes,
    find_readers,
    list_values,
    make_units,
    processors_per_pass,
    runs_as_image,
)


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A network whose values can all lie somewhere.

    values: by layer, and the input's.  groups: for each value a number that it shares with those whose slots
    follow from its own, and its first slot counted from the group's.  lanes: for each value the others that
    share its offset.
    words: that each layer takes of the weight memory of its processors.
    """

    layers: tuple[Layer, ...]
    values: Mapping[int, StoredValue]
    groups: Mapping[int, tuple[int, int]]
    lanes: Mapping[int, Lane]
    words: tuple[int, ...]


@dataclass(frozen=True)
class ReadLayout:
    """How a reader wants a value: its word among `gap`, its first slot counted from the reader's.

    joined: all that it reads so.
    """

    gap: int = 1
    position: int = 0
    shift: int = 0
    side_by_side: tuple[int, ...] = ()


def arrange_values(layers: Sequence[Layer], source: Layer, device: Chip) -> Arrangement:
    """Insert the copies that the layers need.  source: the network's input."""
    arranger = _Arranger(layers, source, device)
    for index in range(len(layers)):
        arranger.add(index)
    tie_table = arranger.tie_table
    return Arrangement(
        tuple(arranger.layers),
        tie_table.values,
        tie_table.groups,
        tie_table.lanes,
        _count_kernel_words(arranger.layers, device),
    )


def _count_kernel_words(layers: Sequence[Layer], device: Chip) -> tuple[int, ...]:
    places = [
        LayerPlacement(contiguous_slots(layer.channels), contiguous_slots(layer.out_channels))
        for layer in layers
    ]
    units = make_units(layers, places, device)
    return tuple(0 if u.layer.weights is None else -(-words_of(u) // ALIGNMENT) * ALIGNMENT for u in units)


def list_layouts(
    layer: Layer, values: Mapping[int, StoredValue], channels: Mapping[int, int]
) -> list[ReadLayout]:
    """List how a layer wants each of its inputs."""
    inputs = layer.inputs
    if len(inputs) == 1:
        return [ReadLayout()]
    # Operand k of a position is the k-th word of as many.
    if layer.eltwise is not None:
        return [ReadLayout(len(inputs), k, 0, inputs) for k in range(len(inputs))]
    passes = count_passes(layer.channels)
    sizes = [channels[source] if passes > 1 else values[source].memories * PER_MEMORY for source in inputs]
    # Of one pass the inputs lie in a row of slots; of several, each pass is one of as many interleaved words.
    count = processors_per_pass(layer.channels) if passes > 1 else PROCESSORS
    firsts = accumulate(sizes[:-1], initial=0)
    return [ReadLayout(passes, first // count, first % count, inputs) for first in firsts]


class _Arranger:
    """The layers done so far, with new numbers, and their values' ties.

    renamed: new numbers of old layers.
    """

    def __init__(self, layers: Sequence[Layer], source: Layer, device: Chip) -> None:
        self.old: Mapping[int, Layer] = dict(enumerate(layers)) | {INPUT: source}
        self.old_values, self.device = list_values(layers, source, device), device
        channels = {i: layer.out_channels for i, layer in self.old.items()}
        self.layouts = [list_layouts(layer, self.old_values, channels) for layer in layers]
        self.readers = find_readers(layers)
        self.layers: list[Layer] = []
        self.renamed = {INPUT: INPUT}
        self.tie_table = Ties({INPUT: self.old_values[INPUT]})
        self.copies: dict[tuple[int, ReadLayout], int] = {}

    def add(self, index: int) -> None:
        """Append an old layer, before it the copies that it needs."""
        layer = self.old[index]
        pairs = list(zip(layer.inputs, self.layouts[index], strict=True))
        # Copies that are free of other ties cost a layer each, so they come second.
        inputs = self._find_inputs(layer, pairs, free=False) or self._find_inputs(layer, pairs, free=True)
        number = self._append(replace(layer, inputs=tuple(inputs)), self.old_values[index])
        self.renamed[index] = number
        # These do not sum over processors: each channel stays in its slot.
        if layer.operation is Operation.PASSTHROUGH or layer.groups > 1:
            shifts = [layout.shift - pairs[0][1].shift for _, layout in pairs]
            pattern = 0
            for value, shift in zip(inputs, shifts, strict=True):
                pattern |= self.tie_table.values[value].pattern << shift
            self.tie_table.values[number] = replace(self.tie_table.values[number], pattern=pattern)
            self.tie_table.tie(inputs[0], number, 0)

    def _find_inputs(self, layer: Layer, pairs: Sequence[tuple[int, ReadLayout]], free: bool) -> list[int]:
        """Return the values that a layer reads, side by side as it wants them.

        None, and nothing done, where other ties forbid it.
        free: all are copies that are tied to nothing else, which is always possible.
        """
        count, copies, saved = len(self.layers), dict(self.copies), self.tie_table.save()
        inputs: list[int] = []
        for source, layout in pairs:
            anchor = (inputs[0], pairs[0][1]) if inputs else None
            value = self._find_input(layer, source, (layout, anchor), free)
            if value is None:
                del self.layers[count:]
                self.copies = copies
                self.tie_table.restore(saved)
                return []
            inputs.append(value)
        return inputs

    def _append(self, layer: Layer, value: StoredValue) -> int:
        self.layers.append(layer)
        number = len(self.layers) - 1
        self.tie_table.add(number, value)
        return number

    def _find_input(
        self, layer: Layer, source: int, wish: tuple[ReadLayout, tuple[int, ReadLayout] | None], free: bool
    ) -> int | None:
        """Return the value that a layer reads: the source itself, or a copy that lies as it wants."""
        value, (layout, anchor) = self.renamed[source], wish
        if not free:
            if self._is_direct(source, layout) and self._join(value, layout, anchor):
                return value
            if (source, layout) in self.copies and self._join(self.copies[source, layout], layout, anchor):
                return self.copies[source, layout]
        # A passthrough copy takes no weights, but lies in the slots of its source; a convolution does not.
        for kind in (self._add_convolution,) if free else (self._add_passthrough, self._add_convolution):
            number = kind(layer, source)
            if self._join(number, layout, anchor):
                self.copies[source, layout] = number
                return number
            self.layers.pop()
            self.tie_table.remove(number)
        return None

    def _is_direct(self, source: int, layout: ReadLayout) -> bool:
        interleaved = self._find_interleaved(source)
        return interleaved == layout if layout.gap > 1 else interleaved is None or not layout.side_by_side

    def _find_interleaved(self, source: int) -> ReadLayout | None:
        """Return the one way in which a value is written with gaps, if every reader can read it so."""
        reads: list[tuple[int, ReadLayout]] = []
        for reader in dict.fromkeys(self.readers[source]):
            reads += ((reader, layout) for value, layout in self._list_reads(reader) if value == source)
        gapped = {layout for _, layout in reads if layout.gap > 1}
        # The application loads the input without gaps; an image of a dilated line is written without gaps.
        if len(gapped) != 1 or source == INPUT or runs_as_image(self.old[source]):
            return None
        others = [self.old[r] for r, layout in reads if layout.gap == 1]
        return gapped.pop() if not others or self._can_skip(source, others) else None

    def _list_reads(self, index: int) -> list[tuple[int, ReadLayout]]:
        return list(zip(self.old[index].inputs, self.layouts[index], strict=True))

    def _can_skip(self, source: int, others: Sequence[Layer]) -> bool:
        """Whether all layers can leave out words when they read: those of one pass and one input."""
        single = all(
            len(o.inputs) == 1 and o.operands == 1 and not (o.flatten or runs_as_image(o)) for o in others
        )
        return self.device.features.read_gaps and single and count_passes(self.old[source].out_channels) == 1

    def _join(self, value: int, layout: ReadLayout, anchor: tuple[int, ReadLayout] | None) -> bool:
        """Let a value lie as a reader wants it, beside the reader's first input.

        False, and nothing done, where it cannot.
        """
        tie_table = self.tie_table
        lane = tie_table.lanes[value]
        # A value that nothing has tied yet can still be written with gaps.
        if layout.gap > 1 and lane == Lane(lane.cluster):
            tie_table.lanes[value] = Lane(lane.cluster, layout.gap, layout.position)
        if anchor is None or tie_table.share(anchor[0], value, layout.shift - anchor[1].shift):
            return True
        tie_table.lanes[value] = lane
        return False

    def _add_passthrough(self, layer: Layer, source: int) -> int:
        value, name = self.renamed[source], f"{layer.name}/copy of {self.old[source].name}"
        number = self._append(
            copy_layer(self.old[source], name, value), replace(self.tie_table.values[value], lead=0)
        )
        self.tie_table.tie(value, number, 0)
        return number

    def _add_convolution(self, layer: Layer, source: int) -> int:
        producer, name = self.old[source], f"{layer.name}/copy of {self.old[source].name}"
        copy = select_layer(producer, name, self.renamed[source], range(producer.out_channels))
        return self._append(
            copy,
            StoredValue(
                contiguous_slots(producer.out_channels),
                self.old_values[source].words - self.old_values[source].lead,
            ),
        )


@dataclass(frozen=True)
class Lane:
    """How a value lies among those that share its offset: which of `gap` interleaved words is its own.

    cluster: the number that these values have in common.
    """

    cluster: int
    gap: int = 1
    position: int = 0


class Ties:
    """Which values are tied, grown tie by tie.

    values: by number.
    groups: for each value a group and its first slot counted from the group's.  lanes: for each value its
    own.
    """

    def __init__(self, values: dict[int, StoredValue]) -> None:
        self.values = values
        self.groups: dict[int, tuple[int, int]] = {v: (v, 0) for v in values}
        self.lanes: dict[int, Lane] = {v: Lane(v) for v in values}

    def add(self, value: int, shape: StoredValue) -> None:
        """Add a value that is tied to none."""
        self.values[value] = shape
        self.groups[value] = (value, 0)
        self.lanes[value] = Lane(value)

    def remove(self, value: int) -> None:
        """Forget the value added last; nothing may be tied to it alone."""
        for known in (self.values, self.groups, self.lanes):
            del known[value]

    def save(self) -> tuple[dict[int, StoredValue], dict[int, tuple[int, int]], dict[int, Lane]]:
        """Return what `restore` takes to forget everything that follows."""
        return dict(self.values), dict(self.groups), dict(self.lanes)

    def restore(
        self, saved: tuple[dict[int, StoredValue], dict[int, tuple[int, int]], dict[int, Lane]]
    ) -> None:
        """Forget everything since `save`."""
        self.values, self.groups, self.lanes = saved

    def tie(self, first: int, second: int, shift: int) -> bool:
        """Let the second value begin `shift` slots after the first.

        False, and nothing done, where that cannot be.
        """
        (group, slot), (other, at_other) = self.groups[first], self.groups[second]
        move = slot + shift - at_other
        if group == other:
            return move == 0
        spans = [
            self._span(v, move if g == other else 0)
            for v, (g, _) in self.groups.items()
            if g in (group, other)
        ]
        # All slots of a group must fit the processors.
        if max(last for _, last in spans) - min(start for start, _ in spans) > PROCESSORS:
            return False
        for value, (g, slot) in self.groups.items():
            if g == other:
                self.groups[value] = (group, slot + move)
        return True

    def _span(self, value: int, move: int) -> tuple[int, int]:
        first = self.groups[value][1] + move
        return first, first + self.values[value].memories * PER_MEMORY

    def share(self, first: int, second: int, shift: int) -> bool:
        """Tie two values whose lanes have the same gap and let them share an offset.

        False, and nothing done, where they collide.
        """
        lane, other = self.lanes[first], self.lanes[second]
        if lane.cluster == other.cluster:
            return self.tie(first, second, shift)
        saved = dict(self.groups)
        if (
            lane.gap != other.gap
            or not self.tie(first, second, shift)
            or self._collide(lane.cluster, other.cluster)
        ):
            self.groups = saved
            return False
        for value in list(self.members(other.cluster)):
            self.lanes[value] = Lane(lane.cluster, lane.gap, self.lanes[value].position)
        return True

    def members(self, cluster: int) -> Iterator[int]:
        """List the values of a cluster."""
        return (v for v, lane in self.lanes.items() if lane.cluster == cluster)

    def _collide(self, cluster: int, other: int) -> bool:
        cells = set(chain.from_iterable(self._list_cells(value) for value in self.members(cluster)))
        return any(not cells.isdisjoint(self._list_cells(value)) for value in self.members(other))

    def _list_cells(self, value: int) -> Iterator[tuple[int, int]]:
        first, last = self._span(value, 0)
        return (
            (memory, self.lanes[value].position) for memory in range(first // PER_MEMORY, last // PER_MEMORY)
        )


def group_by_cluster(lanes: Mapping[int, Lane]) -> dict[int, list[int]]:
    """Return the values of each cluster."""
    members: dict[int, list[int]] = {}
    for value, lane in lanes.items():
        members.setdefault(lane.cluster, []).append(value)
    return members
