"""Random networks, placed, synthesised and run on the simulator: its memory must hold what the arithmetic says.

`uv run targets/max78000/benchmarks/random_networks.py --device max78002 --count 10000 --seed 1` tells how
many were equal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import log2, prod
from typing import TypeVar

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.network import (
    INPUT,
    Eltwise,
    Layer,
    LayerActivation,
    Network,
    Operation,
    Pool,
    Weights,
)
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.options import Options
from mace_target_max78000.place.search import PlacedNetwork, place_layers
from mace_target_max78000.place.values import runs_as_image
from mace_target_max78000.simulate import SimulationError, find_mismatches, replay
from mace_target_max78002.device import MAX78002

T = TypeVar("T")
Pick = Callable[[Sequence[T]], T]

CHANNELS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 32, 48, 60, 63, 64, 65, 72, 96, 100, 128, 130, 192)
SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 11, 16)
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 33, 50)
LARGE = {1: range(90, 120), 2: range(150, 180)}
"""Sides beyond what data memory holds, by the generation; there the channels are few."""
FEW = (1, 2, 3, 4, 8, 12, 16)
PASS = 64
"""Channels of one pass."""


@dataclass(frozen=True)
class Shape:
    """What an operation may start from: a layer's output, or the network's input."""

    source: int
    channels: int
    dim: tuple[int, int]
    flat: bool


@dataclass
class Draft:
    """A network that grows.

    pick: chooses one of several; random: fills weights.  channels: to choose from; flat: one-dimensional.
    """

    device: Chip
    pick: Pick
    random: np.random.Generator
    flat: bool
    channels: Sequence[int]
    layers: list[Layer] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    def chance(self, percent: int) -> bool:
        """True as often as that."""
        return self.pick(range(100)) < percent

    def add(self, layer: Layer, flat: bool | None = None) -> Shape:
        """Append a layer under a name of its own."""
        self.layers.append(replace(layer, name=f"{layer.name}{len(self.layers)}"))
        shape = Shape(
            len(self.layers) - 1, layer.out_channels, layer.out_dim, self.flat if flat is None else flat
        )
        self.shapes.append(shape)
        return shape

    def latest(self) -> Shape:
        """Mostly the value made last, else any."""
        return self.shapes[-1] if self.chance(75) else self.pick(self.shapes)


def random_network(device: Chip, pick: Pick, random: np.random.Generator) -> tuple[tuple[Layer, ...], Array]:
    """Layers that the part can run, and a sample: convolutions, pooling, residual and joined inputs, one or two dimensions."""
    large = pick(range(100)) < 2
    flat = not large and pick(range(100)) < 30
    sides = LARGE[device.generation] if large else SIDES
    dim = (pick(LENGTHS), 1) if flat else (pick(sides), pick(sides))
    draft = Draft(device, pick, random, flat, FEW if large else CHANNELS)
    channels = pick(draft.channels)
    draft.shapes.append(Shape(INPUT, channels, dim, flat))
    kinds = (
        (convolution,)
        if large
        else (convolution, convolution, convolution, residual, joined, pooling, transposed, depthwise)
    )
    for _ in range(pick(range(1, 6))):
        pick(kinds)(draft)
    if not draft.layers:
        convolution(draft)
    if draft.chance(40):
        linear(draft)
    return finished(draft), random.integers(-128, 128, (channels, dim[0], dim[1]))


def finished(draft: Draft) -> tuple[Layer, ...]:
    """The layers.

    What nobody reads is a result, sometimes something else as well, sometimes the last as 32-bit sums.
    """
    read = {source for layer in draft.layers for source in layer.inputs}
    layers = [
        replace(layer, output=i not in read or draft.chance(10)) for i, layer in enumerate(draft.layers)
    ]
    last = layers[-1]
    if last.weights is not None and last.groups == 1 and not runs_as_image(last) and draft.chance(30):
        layers[-1] = replace(last, wide=True, shift=0, activation=LayerActivation.NONE)
    return tuple(layers)


def convolution(draft: Draft, shape: Shape | None = None, out: int | None = None, **given: object) -> Shape:
    """Conv1d or Conv2d, perhaps with a pool before it."""
    shape = shape or draft.latest()
    pool = pool_of(draft, shape) if "eltwise" not in given and draft.chance(35) else given.pop("pool", None)
    layer = Layer("conv", Operation.CONV1D if shape.flat else Operation.CONV2D, (shape.source,), shape.channels, shape.dim,
                  out or draft.pick(draft.channels), pool=pool)  # fmt: skip
    layer = replace(layer, **given)
    kernel, pad, dilation = window_of(draft, layer)
    return draft.add(weighted(draft, replace(layer, kernel=kernel, pad=pad, dilation=dilation)), shape.flat)


def window_of(draft: Draft, layer: Layer) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Kernel, padding and dilation that leave some output."""
    rows, columns = layer.pooled
    if layer.one_dimensional:
        many = draft.device.features.wide_operands and layer.channels > PASS
        pads = (0,) if many else (0, 1, 2)
        choices = [
            ((k, 1), (p, 0), (1, 1)) for k in range(1, 10) for p in pads if p < k and rows + 2 * p >= k
        ]
        choices += [
            ((k, 1), (0, 0), (d, 1))
            for k in (2, 3)
            for d in (2, 3, 5, 7)
            if rows > (k - 1) * d and layer.eltwise is layer.pool is None
        ]
        return draft.pick(choices)
    choices = [((3, 3), (p, p), (1, 1)) for p in (0, 1, 2) if min(rows, columns) + 2 * p > 2]
    return draft.pick([((1, 1), (0, 0), (1, 1)), *choices, *choices])


def weighted(draft: Draft, layer: Layer) -> Layer:
    """The layer with weights, bias, shift and activation; the shift keeps most results inside eight bits."""
    bits = draft.pick((8, 8, 8, 4, 2, 1))
    inputs = layer.channels // layer.groups * (prod(layer.pooled) if layer.flatten else 1)
    shape: tuple[int, ...] = (layer.out_channels, inputs)
    if layer.operation is Operation.CONV_TRANSPOSE2D:
        shape = (inputs, layer.out_channels, *layer.kernel)
    elif layer.operation is not Operation.LINEAR:
        shape = (*shape, *layer.kernel[: 1 if layer.one_dimensional else 2])
    values = draft.random.integers(-(1 << bits - 1), max(1, 1 << bits - 1), shape)
    spread = 74 * max(0.5, 0.58 * 2 ** (bits - 1)) * (inputs * prod(layer.kernel)) ** 0.5
    shift = max(-15, min(15, round(log2(5000 / spread)) + draft.pick((-1, 0, 0, 1))))
    bias = (
        draft.random.integers(-128, 128, layer.out_channels)
        if draft.chance(50) and layer.out_channels <= 512
        else None
    )
    return replace(
        layer,
        weights=Weights(values, bits),
        bias=bias,
        shift=shift,
        activation=draft.pick(tuple(LayerActivation)),
    )


def pool_of(draft: Draft, shape: Shape) -> Pool | None:
    """A pool that fits the shape; dilated on the second generation."""
    rows, columns = (draft.pick([n for n in (1, 2, 3, 4) if n <= side]) for side in shape.dim)
    stride = draft.pick((1, 2, 2, 3))
    dilated = (
        draft.device.features.dilated_pools
        and not shape.flat
        and max(rows, columns) == 2
        and draft.chance(30)
    )
    fits = all((s - 1) * 2 < n for s, n in zip((rows, columns), shape.dim, strict=True))
    dilation = (1 + (rows > 1), 1 + (columns > 1)) if dilated and fits else (1, 1)
    return Pool(draft.chance(40), (rows, 1 if shape.flat else columns), stride, dilation)


def pooling(draft: Draft) -> None:
    """A pool by itself, up to 64 channels."""
    shape = draft.latest()
    if shape.channels <= PASS:
        pool = pool_of(draft, shape)
        draft.add(
            Layer(
                "pool",
                Operation.PASSTHROUGH,
                (shape.source,),
                shape.channels,
                shape.dim,
                shape.channels,
                pool=pool,
            ),
            shape.flat,
        )


def transposed(draft: Draft) -> None:
    """A transposed convolution."""
    shape = draft.latest()
    if not shape.flat and max(shape.dim) <= 8:
        pads = [p for p in (0, 1, 2) if min(shape.dim) * 2 + 2 - 2 * p > 0]
        layer = Layer("up", Operation.CONV_TRANSPOSE2D, (shape.source,), shape.channels, shape.dim, draft.pick(draft.channels),
                      kernel=(3, 3), pad=(draft.pick(pads),) * 2)  # fmt: skip
        draft.add(weighted(draft, layer), flat=False)


def depthwise(draft: Draft) -> None:
    """A kernel for each channel, on the second generation."""
    shape = draft.latest()
    if draft.device.features.depthwise and not shape.flat and shape.channels > 1 and min(shape.dim) > 1:
        layer = Layer(
            "depthwise",
            Operation.CONV2D,
            (shape.source,),
            shape.channels,
            shape.dim,
            shape.channels,
            groups=shape.channels,
        )
        draft.add(weighted(draft, replace(layer, kernel=(3, 3), pad=(1, 1))), flat=False)


def residual(draft: Draft) -> None:
    """Values of one shape combined element by element, by a layer of its own or before a convolution."""
    first = draft.latest()
    operands = [first]
    for _ in range(draft.pick((1, 1, 2, 3))):
        alike = [s for s in draft.shapes if (s.channels, s.dim) == (first.channels, first.dim)]
        operands.append(draft.pick(alike) if draft.chance(40) else alike_of(draft, first))
    turn = draft.pick(range(len(operands)))
    operands = operands[turn:] + operands[:turn]
    given = {
        "inputs": tuple(s.source for s in operands),
        "eltwise": draft.pick(tuple(Eltwise)),
        "operands": len(operands),
    }
    single = first.channels <= PASS
    if single and draft.chance(30):
        given |= {"pool": pool_of(draft, first), "pool_first": draft.chance(50)}
    if draft.chance(50):
        convolution(draft, first, None, **given)
    else:
        layer = Layer("combine", Operation.PASSTHROUGH, (), first.channels, first.dim, first.channels)
        draft.add(replace(layer, **given), first.flat)


def alike_of(draft: Draft, shape: Shape) -> Shape:
    """Another value of the same shape."""
    kernel, pad = ((1, 1), (0, 0)) if min(shape.dim) == 1 or draft.chance(50) else ((3, 3), (1, 1))
    operation = Operation.CONV1D if shape.flat else Operation.CONV2D
    layer = Layer(
        "branch",
        operation,
        (shape.source,),
        shape.channels,
        shape.dim,
        shape.channels,
        kernel=kernel,
        pad=pad,
    )
    return draft.add(weighted(draft, layer), shape.flat)


def joined(draft: Draft) -> None:
    """Values side by side, whose channels need be multiples of four only in several passes, and there not the last one's."""
    first = draft.latest()
    parts = [first]
    layer = Layer(
        "part",
        Operation.CONV1D if first.flat else Operation.CONV2D,
        (first.source,),
        first.channels,
        first.dim,
        1,
    )
    for _ in range(draft.pick((1, 2, 3))):
        alike = [s for s in draft.shapes if s.dim == first.dim and s.flat == first.flat]
        out = draft.pick((3, 4, 8, 12, 16, 18, 32, 64, 80))
        parts.append(
            draft.pick(alike)
            if draft.chance(30)
            else draft.add(weighted(draft, replace(layer, out_channels=out)))
        )
    channels = [p.channels for p in parts]
    words = sum(-(-c // 4) for c in channels)
    several = sum(channels) > PASS and all(c % 4 == 0 for c in channels[:-1])
    if sum(channels) <= 256 and (several or words <= PASS // 4):
        convolution(
            draft, replace(first, channels=sum(channels)), None, inputs=tuple(p.source for p in parts)
        )


def linear(draft: Draft) -> None:
    """A fully connected layer on everything, flattened first where that is more than one position."""
    shape = draft.shapes[-1]
    positions = prod(shape.dim)
    if positions * -(-shape.channels // PASS) <= 256:
        layer = Layer(
            "linear",
            Operation.LINEAR,
            (shape.source,),
            shape.channels,
            shape.dim,
            draft.pick((1, 2, 5, 10, 17, 64, 100)),
        )
        draft.add(weighted(draft, replace(layer, flatten=positions > 1)), flat=False)


def random_options(layers: Sequence[Layer], pick: Pick) -> Options:
    """Sometimes FIFOs, where the input goes to one convolution; overlapping data; rounding."""
    readers = [layer for layer in layers if INPUT in layer.inputs]
    first = layers[0]
    convolves = first.weights is not None and first.groups == 1 and not runs_as_image(first)
    fits = len(readers) == 1 and first.inputs == (INPUT,) and convolves and first.channels <= 16
    return Options(
        fifo=fits and pick(range(100)) < 40,
        overlap_data=pick((False, True)),
        avg_pool_rounding=pick((False, False, True)),
    )


def different(placed: PlacedNetwork, sample: Array, device: Chip) -> list[str]:
    """Each word in which the simulator differs from the arithmetic, or what the simulator refuses."""
    network = Network("random", placed.layers, placed.places, sample)
    image = synthesize(network, placed.options, device).image
    try:
        return list(find_mismatches(replay(image), image))
    except SimulationError as error:
        return [str(error)]


def choice(random: np.random.Generator, of: Sequence[T]) -> T:
    """One of several."""
    return of[int(random.integers(len(of)))]


def main() -> int:
    """Count what became of each network; 1 where any differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("max78000", "max78002"), default="max78000")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device = MAX78002 if arguments.device == "max78002" else MAX78000
    counts: Counter[str] = Counter()
    begun = time.process_time()
    for number in range(arguments.count):
        random = np.random.default_rng((arguments.seed, number))
        pick = partial(choice, random)
        layers, sample = random_network(device, pick, random)
        try:
            found = different(
                place_layers(layers, sample.shape, device, random_options(layers, pick)), sample, device
            )
            result = "different" if found else "equal"
        except MaceError as error:
            found, result = [str(error)], "refused"
        counts[result] += 1
        if result != "equal":
            print(f"network {number}: {result}: {found[0][:300]}")  # noqa: T201
    print(dict(counts), f"{time.process_time() - begun:.1f} s")  # noqa: T201
    return int(bool(counts["different"]))


if __name__ == "__main__":
    sys.exit(main())
