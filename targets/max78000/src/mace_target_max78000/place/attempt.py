"""Tries one way to place a network.

A way says how the input arrives, how many layers stream, and which processors may work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, Operation, Place
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, Device
from mace_target_max78000.encode.bias_memory import place_bias
from mace_target_max78000.encode.hardware_layers import Unit
from mace_target_max78000.encode.streaming import streams
from mace_target_max78000.encode.weight_runs import place_runs
from mace_target_max78000.options import Options
from mace_target_max78000.place.adjacency import Arrangement, group_by_cluster
from mace_target_max78000.place.allocate import (
    AllowedOverlap,
    FixedGroups,
    GroupDemand,
    Lifetime,
    MemoryCapacity,
    Region,
    RegionPacker,
    SlotAim,
    choose_slots,
    find_overlap_distance,
)
from mace_target_max78000.place.values import StoredValue, contiguous_slots, find_readers, make_units

SMALLER = "use fewer rows, columns or channels, or pool earlier"

WORD = 4
"""Bytes."""
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
        """The input's slots where not the ones side by side: one of each data memory, or four of each FIFO's quadrant."""
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

    places: tuple[Place, ...]
    options: Options
    touched: int = 0
    highest: int = 0
    faults: tuple[str, ...] = ()
    idle: int = 0


class PlacementAttempt:
    """An arranged network that is being placed in one way.

    Times are numbers of layers; layers that stream run at one time.
    """

    def __init__(self, arrangement: Arrangement, way: PlacementWay, device: Device, options: Options) -> None:
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
        buffers = self._buffers(units)
        found = list(buffers.values())
        too_large = self._data_faults(found)
        packing = None
        if self.way.overlap or not too_large:
            packing = RegionPacker(found, self.device.data_bytes, self._over(units, list(buffers))).pack()
        if packing is None:
            fragments = (
                f"data memory: the layers' data do not pack into {self.device.data_bytes} bytes; {SMALLER}"
            )
            return PlacementResult(places, self.options, faults=tuple(too_large or [fragments]))
        options = replace(self.options, overlap_data=True) if packing.overlapping else self.options
        places = self._places(dict(zip(buffers, packing.offsets, strict=True)))
        return PlacementResult(places, options, packing.touched(found), packing.highest(found))

    def _input(self, value: StoredValue) -> StoredValue:
        """The input as it arrives; channel by channel it takes a quarter of the words."""
        if self.way.chw or self.way.fifo:
            return StoredValue(
                self.way.input_pattern(value.pattern.bit_count()),
                -(-value.words // 4) if self.way.chw else value.words,
            )
        return value

    def _time(self, layer: int) -> int:
        return max(layer, self.way.streaming - 1, 0)

    def _life(self, value: int) -> tuple[int, int]:
        """The first and last time at which a value is needed; results stay."""
        first = self._time(value)
        last = max((self._time(r) for r in self.readers[value]), default=first)
        stays = value != INPUT and (self.layers[value].output or value == len(self.layers) - 1)
        return first, len(self.layers) if stays else last

    def _mask(self, values: Sequence[int], starts: Mapping[int, int]) -> int:
        """The slots of values together.  starts: the slot from which each group counts its own."""
        mask = 0
        for value in values:
            group, shift = self.groups[value]
            mask |= self.values[value].pattern << starts[group] + shift
        return mask

    def _starts(self) -> dict[int, int]:
        groups: dict[int, list[int]] = {}
        for value, (group, _) in self.groups.items():
            groups.setdefault(group, []).append(value)
        origin = {g: -min(self.groups[v][1] for v in members) for g, members in groups.items()}
        capacity = MemoryCapacity(
            self.way.quadrants, self.device.kernel_words, self.device.data_bytes, len(self.layers)
        )
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
            GroupDemand(self._mask((v,), origin), 0, 4 * self.values[v].words, *self._life(v))
            for v in members
        ]

    def _weights(self, members: Sequence[int], origin: Mapping[int, int]) -> list[GroupDemand]:
        weighted = [
            i
            for i, layer in enumerate(self.layers)
            if layer.weights is not None and layer.inputs[0] in members
        ]
        return [GroupDemand(self._mask(self.layers[i].inputs, origin), self.words[i]) for i in weighted]

    def _places(self, offsets: Mapping[int, int]) -> tuple[Place, ...]:
        """All places.  offsets: by cluster; where it has none, the lowest."""
        return tuple(self._place(i, layer, offsets) for i, layer in enumerate(self.layers))

    def _place(self, index: int, layer: Layer, offsets: Mapping[int, int]) -> Place:
        source, own = self.lanes[layer.inputs[0]], self.lanes[index]
        alone = len(layer.inputs) == 1
        return Place(
            processors=self._mask(layer.inputs, self.starts),
            output_processors=self._mask((index,), self.starts),
            in_offset=offsets.get(source.cluster, 0) + (4 * source.position if alone else 0),
            out_offset=offsets.get(own.cluster, 4 * self.values[index].lead) + 4 * own.position,
            write_gap=own.gap - 1,
            read_gap=source.gap - 1 if alone else 0,
            streaming=index < self.way.streaming,
            chw=index == 0 and self.way.chw,
        )

    def _memory_faults(self, units: Sequence[Unit]) -> list[str]:
        """What does not fit into weight and bias memory."""
        quadrants = sorted({p // PER_QUADRANT for unit in units for p in unit.processors})
        checks = (
            lambda: place_runs(units, self.device, self.options.deduplicate_weights),
            lambda: place_bias(units, quadrants, self.device, self.options.ignore_bias_groups),
        )
        return [fault for check in checks for fault in _collect_faults(check)]

    def _buffers(self, units: Sequence[Unit]) -> dict[int, Region]:
        """What lies in data memory, by cluster.

        Of a value that streams, only what its reader has not yet passed.
        """
        rings, found = self._rings(units), {}
        for cluster, members in group_by_cluster(self.lanes).items():
            size = WORD * max(
                rings.get(v, self.values[v].words - self.values[v].lead) * self.lanes[v].gap for v in members
            )
            found[cluster] = Region(
                lead=WORD * max(self.values[v].lead for v in members),
                size=size,
                lives=tuple(life for v in members for life in self._lives(v)),
                apart=max(self._apart(units, v, size) for v in members),
            )
        return found

    def _lives(self, value: int) -> Iterator[Lifetime]:
        """Where and how long a value lives.

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
            self.device.pipelined
            and averages
            and value > 0
            and self.layers[value - 1].operands > 1
            and not mask & 0xFFFF
        ):
            yield Lifetime(1, self._time(value - 1), self._time(value))

    def _rings(self, units: Sequence[Unit]) -> dict[int, int]:
        """Words of each value that streams."""
        if not self.way.streaming:
            return {}
        found = streams(units, self.options, self.device)
        return {self.layers[i].inputs[0]: found[i].rollover for i in range(self.way.streaming)}

    def _apart(self, units: Sequence[Unit], value: int, size: int) -> int:
        """Bytes that stay free behind a value that a streaming layer reads or writes.

        The vendor's rules (`check.streaming`) count the end of a buffer as a part of it, hence a word more; and
        they want a layer's output as far before its own buffer as that is long, hence no output counts as
        shorter.
        """
        if value >= self.way.streaming or not self.way.streaming:
            return 0
        found = streams(units, self.options, self.device)
        return WORD * SPARE_WORDS + (max(0, WORD * found[value].rollover - size) if value >= 0 else 0)

    def _over(self, units: Sequence[Unit], numbers: Sequence[int]) -> dict[tuple[int, int], AllowedOverlap]:
        """Where a layer's output may lie over its input, by the numbers of their buffers."""
        if not self.way.overlap:
            return {}
        found = {}
        for unit in units[self.way.streaming :]:
            source, own = self.lanes[unit.layer.inputs[0]], self.lanes[unit.index]
            if _writes_in_read_order(unit) and source.cluster != own.cluster:
                step_in = unit.in_passes * unit.layer.operands * (unit.place.read_gap + 1)
                step_out = unit.out_passes * unit.write_step * unit.layer.width // 8
                pair = numbers.index(source.cluster), numbers.index(own.cluster)
                found[pair] = AllowedOverlap(
                    self._time(unit.index), find_overlap_distance(unit.layer, step_in, step_out)
                )
        return found

    def _data_faults(self, buffers: Sequence[Region]) -> list[str]:
        """Each layer at which more bytes are needed than a data memory has."""
        capacity, found = self.device.data_bytes, []
        for time, layer in enumerate(self.layers):
            need = max(
                sum(b.lead + b.size for b in buffers if _is_alive(b, time, m))
                for m in range(PROCESSORS // PER_MEMORY)
            )
            if need > capacity:
                problem = f"what it reads and writes, and what later layers need, takes {need} bytes of a data memory, {capacity} are there"
                found.append(f"layer {layer.name}: {problem}; {SMALLER}")
        return found


def _writes_in_read_order(unit: Unit) -> bool:
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


def _find_idle_quadrants(units: Sequence[Unit]) -> int:
    """Quadrants that hold results without being in use, and the first one, which always must be; as bits."""
    used = {p // PER_QUADRANT for unit in units for p in unit.processors} | {
        s // PER_QUADRANT for s in units[-1].slots
    }
    needed = {s // PER_QUADRANT for unit in units for s in unit.slots} | {0}
    return sum(1 << q for q in needed - used)


def _describe_idle(idle: int) -> str:
    numbers = ", ".join(str(q) for q in range(QUADRANTS) if idle >> q & 1)
    return f"network: quadrants {numbers} would hold 32-bit results and not work; let the layer with the most results be the last one"


def _is_alive(buffer: Region, time: int, memory: int) -> bool:
    return any(life.memories >> memory & 1 and life.first <= time <= life.last for life in buffer.lives)


def _memories_of(mask: int) -> int:
    """The data memories that slots lie in."""
    return sum(1 << m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF)


def _collect_faults(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except MaceError as error:
        return [str(error)]
    return []
