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
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Operation
from mace_target_max78000.device import (
    FIFO_CHANNELS,
    MAX_STREAMING_LAYERS,
    PER_MEMORY,
    PER_QUADRANT,
    PROCESSORS,
    QUADRANTS,
    Chip,
)
from mace_target_max78000.options import Options
from mace_target_max78000.place.adjacency import Arrangement, arrange_values
from mace_target_max78000.place.allocate import SlotAim
from mace_target_max78000.place.attempt import PlacementAttempt, PlacementResult, PlacementWay
from mace_target_max78000.place.inserted_layers import add_visits, split_unsupported
from mace_target_max78000.place.values import count_passes, describe_source, find_readers, runs_as_image


@dataclass(frozen=True, eq=False)
class PlacedNetwork:
    """Layers in the order of their execution, with those that the hardware needs between, and their places.

    options: those given, with what the places rely on: a FIFO where layers stream, overlapping data where
    nothing else fits.
    touched, highest: bytes of all data memories that are in use, and the first byte that is not in any.
    """

    layers: tuple[Layer, ...]
    places: tuple[LayerPlacement, ...]
    options: Options
    touched: int
    highest: int


def place_layers(
    layers: Sequence[Layer], sample_shape: tuple[int, ...] | None, device: Chip, options: Options
) -> PlacedNetwork:
    """Place layers; what they compute stays as it is.

    sample_shape: of the network's input, [channels, rows, columns] or [channels, length]; None where the
    layers say it. Raises one MaceError with every layer that cannot fit.
    """
    source = describe_source(layers, sample_shape)
    supported = split_unsupported(layers, source, device)
    arrangement = arrange_values(supported, source, device)
    attempts = _try_ways(arrangement, device, options)
    # Results alone do not make a quadrant work. Copies that read them do, at the cost of a layer each, so
    # they are the last resort.
    if all(attempt.faults for attempt in attempts) and any(attempt.idle for attempt in attempts):
        arrangement = arrange_values(add_visits(supported), source, device)
        attempts = _try_ways(arrangement, device, options)
    fitting = [attempt for attempt in attempts if not attempt.faults]
    if not fitting:
        raise _refuse(attempts, device)
    best = min(fitting, key=lambda a: (a.touched, a.highest))
    return PlacedNetwork(arrangement.layers, best.places, best.options, best.touched, best.highest)


def _try_ways(arrangement: Arrangement, device: Chip, options: Options) -> list[PlacementResult]:
    """Try groups of ways until any fits; return what came of that group, or of the last one."""
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


def _list_rounds(arrangement: Arrangement, device: Chip, options: Options) -> Iterator[list[PlacementWay]]:
    """List groups of ways to compare, those that ask least of the hardware first.

    Where the user asks for FIFOs, any number of layers may as well stream; where not, only as many as must.
    """
    arrivals = list(_list_arrivals(arrangement, device, options))
    # Streaming asks more of the application, which feeds the FIFO; so it is tried where nothing else fits,
    # unless FIFOs are asked for.
    choices = [arrivals] if options.fifo or options.fast_fifo else [[arrival] for arrival in arrivals]
    widest, channels = _widest_group(arrangement), arrangement.values[INPUT].pattern.bit_count()
    overlaps = (True,) if options.overlap_data else (False, True)
    for choice, overlap, quadrants in product(choices, overlaps, range(1, QUADRANTS + 1)):
        ways = [
            PlacementWay(chw, fifo, streaming, quadrants, aim, overlap)
            for (chw, fifo, streaming), aim in product(choice, SlotAim)
        ]
        # Fewer quadrants take less current, because those that are not used have no clock.
        fitting = [
            w for w in ways if max(widest, w.input_pattern(channels).bit_length()) <= quadrants * PER_QUADRANT
        ]
        if fitting:
            yield fitting


def _widest_group(arrangement: Arrangement) -> int:
    """Return the slots of the widest group of values whose slots follow from each other."""
    spans: dict[int, tuple[int, int]] = {}
    for value, (group, shift) in arrangement.groups.items():
        low, high = spans.get(group, (shift, shift))
        spans[group] = min(low, shift), max(high, shift + arrangement.values[value].extent)
    return min(PROCESSORS, max(high - low for low, high in spans.values()))


def _list_arrivals(
    arrangement: Arrangement, device: Chip, options: Options
) -> Iterator[tuple[bool, bool, int]]:
    """List how the input may arrive: channel by channel, through FIFOs, and how many layers stream then."""
    first = arrangement.layers[0]
    channels = first.channels
    convolves = first.weights is not None and first.groups == 1 and not runs_as_image(first)
    is_sole = convolves and first.inputs == (INPUT,) and find_readers(arrangement.layers)[INPUT] == (0,)
    # In planes each channel has a data memory of its own, of which there are 16.
    fits_planes = channels <= PROCESSORS // PER_MEMORY and first.operands == 1
    by_channel = is_sole and fits_planes and not first.flatten
    fifo = options.fifo or options.fast_fifo
    # One channel takes a quarter of the memory in planes, where a word holds four of its positions.
    if not fifo:
        yield by_channel and channels == 1, False, 0
        if by_channel and channels > 1:
            yield True, False, 0
    if is_sole and channels <= FIFO_CHANNELS:
        if fifo:
            yield False, True, 0
        yield from ((False, True, count) for count in _list_stream_lengths(arrangement, device))


def _list_stream_lengths(arrangement: Arrangement, device: Chip) -> Iterator[int]:
    """List how many layers may stream: convolutions one after another from the first on."""
    users = find_readers(arrangement.layers)
    for index, layer in enumerate(arrangement.layers[:MAX_STREAMING_LAYERS]):
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
        # A buffer holds rows without gaps; the first generation needs padding in the last streaming layer.
        if arrangement.lanes[index].gap == 1 and (device.features.streaming_unpadded or min(layer.pad) > 0):
            yield index + 1
        if layer.output:
            return


def _refuse(attempts: Sequence[PlacementResult], device: Chip) -> MaceError:
    """Return all that keeps the network from fitting, of the attempt that lacks least."""
    if not attempts:
        fifos = f"the FIFOs of the {device.name}, which feed one convolution of the first layer"
        problem = f"its input does not fit {fifos}"
        return MaceError(
            "network", problem, f"let one layer read it, and use {FIFO_CHANNELS} channels or fewer"
        )
    lacking = min(attempts, key=lambda attempt: len(attempt.faults))
    return MaceError.of(lacking.faults)
