"""Searches a placement for the layers of a network: processors, output slots and offsets.

Ways are tried from the one that asks least of the hardware on: with the fewest quadrants and data that never
overlap; with more quadrants; with outputs over inputs that are no longer needed; with an input that lies
channel by channel; with layers that stream. Of those that ask alike, the one that takes the least data memory
is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, Operation, Place
from mace_target_max78000.device import PER_QUADRANT, PROCESSORS, QUADRANTS, Device
from mace_target_max78000.options import Options
from mace_target_max78000.place.adjacency import Arrangement, arrange_values
from mace_target_max78000.place.allocate import SlotAim
from mace_target_max78000.place.attempt import PlacementAttempt, PlacementResult, PlacementWay
from mace_target_max78000.place.inserted_layers import add_visits, split_unsupported
from mace_target_max78000.place.values import count_passes, describe_source, find_readers, runs_as_image

MAX_STREAMING = 8
"""Layers that may stream; source: the maker's limits."""
FIFO_CHANNELS = 16
"""Channels that the FIFOs carry, four each."""


@dataclass(frozen=True, eq=False)
class PlacedNetwork:
    """Layers in the order of their execution, with those that the hardware needs between them, and their places.

    options: those given, with what the places rely on: a FIFO where layers stream, overlapping data where
    nothing else fits.
    touched, highest: bytes of all data memories that are in use, and the first byte that is not in any.
    """

    layers: tuple[Layer, ...]
    places: tuple[Place, ...]
    options: Options
    touched: int
    highest: int


def place_layers(
    layers: Sequence[Layer], sample_shape: tuple[int, ...] | None, device: Device, options: Options
) -> PlacedNetwork:
    """Place layers; what they compute stays as it is.

    sample_shape: of the network's input, [channels, rows, columns] or [channels, length]; None where the
    layers say it. Raises one MaceError with every layer that cannot fit.
    """
    source = describe_source(layers, sample_shape)
    whole = split_unsupported(layers, source, device)
    arrangement = arrange_values(whole, source, device)
    attempts = _try_ways(arrangement, device, options)
    if all(attempt.faults for attempt in attempts) and any(attempt.idle for attempt in attempts):
        arrangement = arrange_values(add_visits(whole), source, device)
        attempts = _try_ways(arrangement, device, options)
    fitting = [attempt for attempt in attempts if not attempt.faults]
    if not fitting:
        raise _refuse(attempts, device)
    best = min(fitting, key=lambda a: (a.touched, a.highest))
    return PlacedNetwork(arrangement.layers, best.places, best.options, best.touched, best.highest)


def _try_ways(arrangement: Arrangement, device: Device, options: Options) -> list[PlacementResult]:
    """What comes of the first group of ways that any of fits; where none does, of the last group."""
    if len(arrangement.layers) > device.layers:
        problem = f"{len(arrangement.layers)} layers are needed, the {device.name} runs {device.layers}"
        raise MaceError(
            "network",
            problem,
            "leave layers out; residual and joined inputs that other layers read too cost one more each",
        )
    last: list[PlacementResult] = []
    for ways in _list_rounds(arrangement, device, options):
        last = [PlacementAttempt(arrangement, way, device, options).attempt() for way in ways]
        if any(not a.faults or a.idle for a in last):
            break
    return last


def _list_rounds(arrangement: Arrangement, device: Device, options: Options) -> Iterator[list[PlacementWay]]:
    """Groups of ways to compare, those that ask least of the hardware first.

    Where the user asks for FIFOs, any number of layers may as well stream; where not, only as many as must.
    """
    arrivals = list(_list_arrivals(arrangement, device, options))
    choices = [arrivals] if options.fifo or options.fast_fifo else [[arrival] for arrival in arrivals]
    widest, channels = _widest_group(arrangement), arrangement.values[INPUT].pattern.bit_count()
    for choice, overlap, quadrants in product(
        choices, (True,) if options.overlap_data else (False, True), range(1, QUADRANTS + 1)
    ):
        ways = [
            PlacementWay(chw, fifo, streaming, quadrants, aim, overlap)
            for chw, fifo, streaming in choice
            for aim in SlotAim
        ]
        fitting = [
            w for w in ways if max(widest, w.input_pattern(channels).bit_length()) <= quadrants * PER_QUADRANT
        ]
        if fitting:
            yield fitting


def _widest_group(arrangement: Arrangement) -> int:
    """Slots of the widest group of values whose slots follow from each other."""
    spans: dict[int, tuple[int, int]] = {}
    for value, (group, shift) in arrangement.groups.items():
        low, high = spans.get(group, (shift, shift))
        spans[group] = min(low, shift), max(high, shift + arrangement.values[value].extent)
    return min(PROCESSORS, max(high - low for low, high in spans.values()))


def _list_arrivals(
    arrangement: Arrangement, device: Device, options: Options
) -> Iterator[tuple[bool, bool, int]]:
    """How the input may arrive: channel by channel, through FIFOs, and how many layers may stream then."""
    first = arrangement.layers[0]
    channels = first.channels
    convolves = first.weights is not None and first.groups == 1 and not runs_as_image(first)
    alone = convolves and first.inputs == (INPUT,) and find_readers(arrangement.layers)[INPUT] == (0,)
    by_channel = alone and channels <= PROCESSORS // 4 and first.operands == 1 and not first.flatten
    fifo = options.fifo or options.fast_fifo
    if not fifo:
        yield by_channel and channels == 1, False, 0
        if by_channel and channels > 1:
            yield True, False, 0
    if alone and channels <= FIFO_CHANNELS:
        if fifo:
            yield False, True, 0
        yield from ((False, True, count) for count in _list_stream_lengths(arrangement, device))


def _list_stream_lengths(arrangement: Arrangement, device: Device) -> Iterator[int]:
    """How many layers may stream: convolutions one after another from the first on, the last one padded on the first generation."""
    users = find_readers(arrangement.layers)
    for index, layer in enumerate(arrangement.layers[:MAX_STREAMING]):
        chain = (
            layer.inputs == (index - 1,)
            and users[index - 1] == (index,)
            and layer.operands == 1
            and layer.groups == 1
        )
        # Rows of another length: no stream of the same rows.
        recounted = index > 0 and arrangement.layers[index - 1].out_dim != layer.dim
        if (
            not chain
            or recounted
            or layer.operation is not Operation.CONV2D
            or count_passes(layer.channels) > 1
            or layer.flatten
        ):
            return
        if arrangement.lanes[index].gap == 1 and (device.pipelined or min(layer.pad) > 0):
            yield index + 1
        if layer.output:
            return


def _refuse(attempts: Sequence[PlacementResult], device: Device) -> MaceError:
    """All that keeps the network from fitting, of the attempt that lacks least."""
    if not attempts:
        problem = f"its input does not fit the FIFOs of the {device.name}, which feed one convolution of the first layer"
        return MaceError(
            "network", problem, f"let one layer read it, and use {FIFO_CHANNELS} channels or fewer"
        )
    lacking = min(attempts, key=lambda attempt: len(attempt.faults))
    return MaceError.of(lacking.faults)
