"""Tries one way to place a network.

A way says how the input arrives, how many layers stream, and which processors may work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Operation
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, WORD_BYTES, Chip
from mace_target_max78000.encode.bias_memory import place_bias
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.streaming import list_streams
from mace_target_max78000.encode.weight_runs import place_runs
from mace_target_max78000.options import Options
from mace_target_max78000.place.adjacency import Arrangement, group_by_cluster
from mace_target_max78000.place.allocate import (
    AllowedOverlap,
    FixedGroups,
    GroupDemand,
    Lifetime,
    MemoryCapacity,
    MemoryRegion,
    RegionPacker,
    SlotAim,
    choose_slots,
    find_overlap_distance,
)
from mace_target_max78000.place.values import StoredValue, contiguous_slots, find_readers, make_units

SMALLER = "use fewer rows, columns or channels, or pool earlier"

SPARE_WORDS = 1
"""Words between a buffer that streams and anything beside it."""


@dataclass(frozen=True)
class PlacementWay:
    """A way to place a network.

    chw: the input lies channel by channel.  fifo: it arrives through FIFOs.  streaming: layers, from the
    first one on, that begin before their input is complete.  quadrants: that may be used.  aim: what is kept
    small when processors are chosen.
    overlap: outputs may lie over inputs that are done with.
    """

    chw: bool
    fifo: bool
    streaming: int
    quadrants: int
    aim: SlotAim
    overlap: bool

    def input_pattern(self, channels: int) -> int:
        """Return the input's slots: one of each memory, four of each FIFO's quadrant, or side by side."""
        step = PER_QUADRANT if self.fifo else PER_MEMORY
        if self.chw:
            return sum(1 << c * step for c in range(channels))
        return (
            sum(1 << c // PER_MEMORY * PER_QUADRANT + c % PER_MEMORY for c in range(channels))
            if self.fifo
            else contiguous_slots(channels)
        )


@dataclass(frozen=True, eq=False)
class PlacementResult:
    """What came of a way: places and the memory they take, or the faults.

    touched, highest: of data memory, bytes.  idle: the quadrants that would have to work and do not, as bits;
    nothing else fails then.
    """

    places: tuple[LayerPlacement, ...]
    options: Options
    touched: int = 0
    highest: int = 0
    faults: tuple[str, ...] = ()
    idle: int = 0


class PlacementAttempt:
    """An arranged network that is being placed in one way.

    Times are numbers of layers; layers that stream run at one time.
    """

    def __init__(self, arrangement: Arrangement, way: PlacementWay, device: Chip, options: Options) -> None:
        self.layers, self.lanes, self.groups = arrangement.layers, arrangement.lanes, arrangement.groups
        self.words = arrangement.words
        self.way, self.device = way, device
        self.options = replace(options, fifo=True) if way.fifo and not options.fast_fifo else options
        self.values = {**arrangement.values, INPUT: self._input(arrangement.values[INPUT])}
        self.readers = find_readers(self.layers)
        self.starts = self._starts()

    def attempt(self) -> PlacementResult:
        """Check weights and bias, and pack the data."""
        places = self._places({})
        units = make_units(self.layers, places, self.device)
        if faults := self._memory_faults(units):
            return PlacementResult(places, self.options, faults=tuple(faults))
        if idle := _find_idle_quadrants(units):
            return PlacementResult(places, self.options, faults=(_describe_idle(idle),), idle=idle)
        buffers = self._make_regions(units)
        regions = list(buffers.values())
        too_large = self._data_faults(regions)
        # Faults by layer say more than that packing failed, so they are computed first.
        packing = None
        # Overlapping may make room for what does not fit side by side.
        if self.way.overlap or not too_large:
            packing = RegionPacker(
                regions, self.device.data_bytes, self._find_overlaps(units, list(buffers))
            ).pack()
        if packing is None:
            fragments = (
                f"data memory: the layers' data do not pack into {self.device.data_bytes} bytes; {SMALLER}"
            )
            return PlacementResult(places, self.options, faults=tuple(too_large or [fragments]))
        options = replace(self.options, overlap_data=True) if packing.overlapping else self.options
        places = self._places(dict(zip(buffers, packing.offsets, strict=True)))
        return PlacementResult(places, options, packing.count_touched(regions), packing.highest(regions))

    def _input(self, value: StoredValue) -> StoredValue:
        """Return the input as it arrives; channel by channel it takes a quarter of the words."""
        if self.way.chw or self.way.fifo:
            return StoredValue(
                self.way.input_pattern(value.pattern.bit_count()),
                -(-value.words // WORD_BYTES) if self.way.chw else value.words,
            )
        return value

    def _time(self, layer: int) -> int:
        return max(layer, self.way.streaming - 1, 0)

    def _life(self, value: int) -> tuple[int, int]:
        """Return the first and last time at which a value is needed; results stay."""
        first = self._time(value)
        last = max((self._time(r) for r in self.readers[value]), default=first)
        # The application reads results after the last layer.
        stays = value != INPUT and (self.layers[value].output or value == len(self.layers) - 1)
        return first, len(self.layers) if stays else last

    def _mask(self, values: Sequence[int], starts: Mapping[int, int]) -> int:
        """Return the slots of values together.  starts: the slot from which each group counts its own."""
        mask = 0
        for value in values:
            group, shift = self.groups[value]
            mask |= self.values[value].pattern << starts[group] + shift
        return mask

    def _starts(self) -> dict[int, int]:
        groups: dict[int, list[int]] = {}
        for value, (group, _) in self.groups.items():
            groups.setdefault(group, []).append(value)
        # Slots within a group count from its first value; here from its lowest one.
        origin = {g: -min(self.groups[v][1] for v in members) for g, members in groups.items()}
        capacity = MemoryCapacity(
            self.way.quadrants, self.device.kernel_words, self.device.data_bytes, len(self.layers)
        )
        # Quadrants work only where layers read, or where the last one writes.
        read = {self.groups[v][0] for v in self.values if self.readers[v] or v == len(self.layers) - 1}
        fixed = FixedGroups(self.groups[INPUT][0] if self.way.fifo else None, frozenset(groups.keys() - read))
        demands = {
            g: [*self._data(members, origin), *self._weights(members, origin)]
            for g, members in groups.items()
        }
        return {
            g: start + origin[g] for g, start in choose_slots(demands, fixed, capacity, self.way.aim).items()
        }

    def _data(self, members: Sequence[int], origin: Mapping[int, int]) -> list[GroupDemand]:
        return [
            GroupDemand(self._mask((v,), origin), 0, WORD_BYTES * self.values[v].words, *self._life(v))
            for v in members
        ]

    def _weights(self, members: Sequence[int], origin: Mapping[int, int]) -> list[GroupDemand]:
        weighted = [
            i
            for i, layer in enumerate(self.layers)
            if layer.weights is not None and layer.inputs[0] in members
        ]
        return [GroupDemand(self._mask(self.layers[i].inputs, origin), self.words[i]) for i in weighted]

    def _places(self, offsets: Mapping[int, int]) -> tuple[LayerPlacement, ...]:
        """Return all places.  offsets: by cluster; where it has none, the lowest."""
        return tuple(self._place(i, layer, offsets) for i, layer in enumerate(self.layers))

    def _place(self, index: int, layer: Layer, offsets: Mapping[int, int]) -> LayerPlacement:
        source, target = self.lanes[layer.inputs[0]], self.lanes[index]
        is_single = len(layer.inputs) == 1
        return LayerPlacement(
            processors=self._mask(layer.inputs, self.starts),
            output_processors=self._mask((index,), self.starts),
            # Several operands lie interleaved from the first one's word on, which is where the layer begins.
            in_offset=offsets.get(source.cluster, 0) + (WORD_BYTES * source.position if is_single else 0),
            out_offset=offsets.get(target.cluster, WORD_BYTES * self.values[index].lead)
            + WORD_BYTES * target.position,
            write_gap=target.gap - 1,
            read_gap=source.gap - 1 if is_single else 0,
            streaming=index < self.way.streaming,
            chw=index == 0 and self.way.chw,
        )

    def _memory_faults(self, units: Sequence[HardwareLayer]) -> list[str]:
        """List what does not fit into weight and bias memory."""
        quadrants = sorted(set().union(*(_quadrants_of(unit.processors) for unit in units)))
        checks = (
            lambda: place_runs(units, self.device, self.options.deduplicate_weights),
            lambda: place_bias(units, quadrants, self.device, self.options.ignore_bias_groups),
        )
        return [*chain.from_iterable(_collect_faults(check) for check in checks)]

    def _make_regions(self, units: Sequence[HardwareLayer]) -> dict[int, MemoryRegion]:
        """Return what lies in data memory, by cluster.

        Of a value that streams, only what its reader has not yet passed.
        """
        rings, regions = self._rings(units), {}
        for cluster, members in group_by_cluster(self.lanes).items():
            size = WORD_BYTES * max(
                rings.get(v, self.values[v].words - self.values[v].lead) * self.lanes[v].gap for v in members
            )
            regions[cluster] = MemoryRegion(
                lead=WORD_BYTES * max(self.values[v].lead for v in members),
                size=size,
                lives=tuple(chain.from_iterable(self._lives(v) for v in members)),
                apart=max(self._count_spare_bytes(units, v, size) for v in members),
            )
        return regions

    def _lives(self, value: int) -> Iterator[Lifetime]:
        """List where and how long a value lives.

        On the second generation also where the word goes that begins an average.

        That layer is inserted between one with operands and one that averages.  It runs in the first
        quadrant, and writes where that quadrant's first result lies: in its first data memory, if none of a
        layer that does not convolve does.
        """
        mask = self._mask((value,), self.starts)
        yield Lifetime(_memories_of(mask), *self._life(value))
        layer = self.layers[value] if value != INPUT else None
        averages = (
            layer is not None
            and layer.operation is Operation.PASSTHROUGH
            and layer.pool is not None
            and layer.pool.average
        )
        if (
            # The inserted layer resets the averaging of the pipeline.
            self.device.generation == 2
            and averages
            and value > 0
            and self.layers[value - 1].operands > 1
            and not mask & 0xFFFF
        ):
            yield Lifetime(1, self._time(value - 1), self._time(value))

    def _rings(self, units: Sequence[HardwareLayer]) -> dict[int, int]:
        """Return the words of each value that streams."""
        if not self.way.streaming:
            return {}
        waits = list_streams(units, self.options, self.device)
        return {self.layers[i].inputs[0]: waits[i].rollover for i in range(self.way.streaming)}

    def _count_spare_bytes(self, units: Sequence[HardwareLayer], value: int, size: int) -> int:
        """Return the bytes that stay free behind a value that a streaming layer reads or writes.

        The vendor's rules (`check.streaming`) count the end of a buffer as a part of it, hence a word more;
        and they want a layer's output as far before its own buffer as that is long, hence no output counts as
        shorter.
        """
        if value >= self.way.streaming or not self.way.streaming:
            return 0
        waits = list_streams(units, self.options, self.device)
        return WORD_BYTES * SPARE_WORDS + (
            max(0, WORD_BYTES * waits[value].rollover - size) if value >= 0 else 0
        )

    def _find_overlaps(
        self, units: Sequence[HardwareLayer], numbers: Sequence[int]
    ) -> dict[tuple[int, int], AllowedOverlap]:
        """Return where a layer's output may lie over its input, by the numbers of their regions."""
        if not self.way.overlap:
            return {}
        overlaps = {}
        for unit in units[self.way.streaming :]:
            source, result_lane = self.lanes[unit.layer.inputs[0]], self.lanes[unit.index]
            # Otherwise a later position may read what an earlier one has overwritten.
            if _writes_in_read_order(unit) and source.cluster != result_lane.cluster:
                step_in = unit.in_passes * unit.layer.operands * (unit.place.read_gap + 1)
                step_out = unit.out_passes * unit.write_step * unit.layer.width // 8
                pair = numbers.index(source.cluster), numbers.index(result_lane.cluster)
                overlaps[pair] = AllowedOverlap(
                    self._time(unit.index), find_overlap_distance(unit.layer, step_in, step_out)
                )
        return overlaps

    def _data_faults(self, buffers: Sequence[MemoryRegion]) -> list[str]:
        """List each layer at which more bytes are needed than a data memory has."""
        capacity, faults = self.device.data_bytes, []
        for time, layer in enumerate(self.layers):
            need = max(
                sum(b.lead + b.size for b in buffers if _is_alive(b, time, m))
                for m in range(PROCESSORS // PER_MEMORY)
            )
            if need > capacity:
                needs = f"what it reads and writes, and what later layers need, takes {need} bytes"
                problem = f"{needs} of a data memory, which has {capacity}"
                faults.append(f"layer {layer.name}: {problem}; {SMALLER}")
        return faults


def _writes_in_read_order(unit: HardwareLayer) -> bool:
    """Whether a layer reads its input position by position as it writes its output."""
    layer = unit.layer
    transposed = layer.operation is Operation.CONV_TRANSPOSE2D
    return not (
        layer.flatten
        or transposed
        or unit.place.chw
        or unit.ignored
        or unit.emulated_rows > 1
        or layer.dilation != (1, 1)
    )


def _find_idle_quadrants(units: Sequence[HardwareLayer]) -> int:
    """Return as bits the quadrants that must work (for results, and the first) and do not."""
    used = _quadrants_of(units[-1].slots)
    needed = {0}
    for unit in units:
        used |= _quadrants_of(unit.processors)
        needed |= _quadrants_of(unit.slots)
    return sum(1 << quadrant for quadrant in needed - used)


def _quadrants_of(slots: Sequence[int]) -> set[int]:
    return {slot // PER_QUADRANT for slot in slots}


def _describe_idle(idle: int) -> str:
    numbers = ", ".join(str(q) for q in range(QUADRANTS) if idle >> q & 1)
    problem = f"quadrants {numbers} would hold 32-bit results and not work"
    return f"network: {problem}; let the layer with the most results be the last one"


def _is_alive(buffer: MemoryRegion, time: int, memory: int) -> bool:
    return any(life.memories >> memory & 1 and life.first <= time <= life.last for life in buffer.lives)


def _memories_of(mask: int) -> int:
    """Return the data memories that slots lie in, as bits."""
    return sum(1 << m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF)


def _collect_faults(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except MaceError as error:
        return [str(error)]
    return []
