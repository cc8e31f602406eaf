"""Windows of random sizes, strides and paddings over batches of lines, images and volumes: no two axes alike.

An axis that is taken for another one changes a result only where the two differ, and a batch counts only where it is
larger than 1: cases written by hand are often square, and of one image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, U8, check, conv, graph

from mace_core.attributes import Attribute
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level, with_levels
from mace_core.testing.compiled import case, check_graphs
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86

pytestmark = pytest.mark.slow

LEVELS = levels_here(X86)
COUNT = 14
CHANNELS = (1, 3, 5, 16, 35, 70)
"""One, fewer than a vector, whole vectors and parts of them."""

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A window over a tensor [batch, *spatial, channels], with as many places along each axis as `places` says."""

    batch: int
    kernel: Ints
    strides: Ints
    dilations: Ints
    before: Ints
    after: Ints
    places: Ints

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Window:
        """Draw one: of one axis, two or three, small enough for a reference in numpy."""
        rank = int(rng.choice([1, 2, 2, 2, 3]))
        kernel = draw(rng, 1, 5, rank)
        # Different lengths along each axis, so that none can stand for another.
        places = tuple(int(n) for n in rng.permutation([2, 3, 5, 7, 9])[:rank])
        # A window that sees padding alone has no maximum.
        before, after = (tuple(int(rng.integers(0, size)) for size in kernel) for _ in range(2))
        return cls(
            int(rng.integers(1, 4)),
            kernel,
            draw(rng, 1, 4, rank),
            draw(rng, 1, 3, rank),
            before,
            after,
            places,
        )

    @property
    def extent(self) -> Ints:
        """Elements from the first to the last one that a window sees, along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether every axis has at least one element, and no window lies in the padding alone."""
        inside = zip(self.spatial, self.before, self.after, self.extent, strict=True)
        return all(n >= 1 and max(b, a) < e and n > max(b, a) for n, b, a, e in inside)

    @property
    def spatial(self) -> Ints:
        """Elements of the input along each axis."""
        axes = zip(self.places, self.strides, self.extent, self.before, self.after, strict=True)
        return tuple((o - 1) * s + e - b - a for o, s, e, b, a in axes)

    @property
    def attrs(self) -> dict[str, Attribute]:
        """The attributes that convolutions and pools share."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads_before": self.before,
            "pads_after": self.after,
        }


def draw(rng: np.random.Generator, low: int, high: int, count: int) -> Ints:
    return tuple(int(n) for n in rng.integers(low, high, count))


def windows(seed: int) -> list[tuple[Window, int, np.random.Generator]]:
    """Return windows with a number of channels each, and the source of further choices."""
    rng = np.random.default_rng(seed)
    drawn = (Window.draw(rng) for _ in range(40 * COUNT))
    whole = [window for window in drawn if window.is_whole][:COUNT]
    assert len(whole) == COUNT
    return [(window, int(rng.choice(CHANNELS)), rng) for window in whole]


def draw_filters(window: Window, channels: int, rng: np.random.Generator) -> tuple[Ints, int]:
    """Return the shape of filters and the number of groups: one group, one for each channel, or two."""
    group = int(rng.choice([1, channels, 2 - channels % 2]))
    results = group * int(rng.choice([1, 1, 2, 9])) if group > 1 else int(rng.choice(CHANNELS))
    return (results, *window.kernel, channels // group), group


def draw_eighths(shape: Ints, rng: np.random.Generator) -> Array:
    """Return random multiples of 1/8; float32 represents their products and sums exactly, in any order."""
    return (rng.integers(-16, 17, shape) / 8).astype(np.float32)


def float_convolutions(op: str, seed: int) -> list[Graph]:
    graphs = []
    for number, (window, channels, rng) in enumerate(windows(seed)):
        filters, group = draw_filters(window, channels, rng)
        attrs = window.attrs | {"group": group}
        size = window.spatial if op == "Conv" else window.places
        if op == "ConvTranspose":
            attrs["output_padding"] = tuple(0 for _ in window.places)
        shapes = ((window.batch, *size, channels), filters, filters[:1])
        arrays = [draw_eighths(shape, rng) for shape in shapes]
        graphs.append(case(f"{op.lower()}{number}", op, arrays, attrs, constants=(1, 2)))
    return graphs


def pools(op: str, seed: int) -> list[Graph]:
    graphs = []
    for number, (window, channels, rng) in enumerate(windows(seed)):
        x = draw_eighths((window.batch, *window.spatial, channels), rng)
        graphs.append(case(f"{op.lower()}{number}", op, [x], window.attrs | {"kernel": window.kernel}))
    return graphs


@pytest.mark.sampled(cases=str(LEVELS[0].name))
@pytest.mark.parametrize("level", LEVELS, ids=[str(level.name) for level in LEVELS])
def test_of_floats(level: Level, tmp_path: Path) -> None:
    graphs = [*float_convolutions("Conv", 1), *float_convolutions("ConvTranspose", 2)]
    graphs += [*pools("MaxPool", 3), *pools("AveragePool", 4)]
    inputs = {
        graph.name: {
            name: draw_eighths(graph.tensors[name].shape, np.random.default_rng(6)) for name in graph.inputs
        }
        for graph in graphs
    }
    check_graphs(with_levels(Cpu(), [level]), graphs, tmp_path, inputs)


@pytest.mark.sampled(cases=str(LEVELS[0].name))
@pytest.mark.parametrize("level", LEVELS, ids=[str(level.name) for level in LEVELS])
def test_of_stored_integers(level: Level, tmp_path: Path) -> None:
    graphs = []
    for number, (window, channels, rng) in enumerate(windows(5)):
        filters, group = draw_filters(window, channels, rng)
        storage, kind = ((I8, DType.I8), (U8, DType.U8), (U8, DType.I8))[number % 3]
        shape = (window.batch, *window.spatial, channels)
        graphs.append(
            conv(f"conv{number}", shape, filters, (storage, kind, storage), group=group, **window.attrs)
        )
        attrs = window.attrs | {"kernel": window.kernel}
        op = ("MaxPool", "AveragePool")[number % 2]
        graphs.append(graph(f"pool{number}", op, [(storage, shape)], attrs, storage))
    check(graphs, tmp_path, (level,))
