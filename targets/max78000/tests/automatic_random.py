"""Random quantized graphs of the ops that the automatic way takes: any legal network, and more than the hardware has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from automatic_graphs import Writer

from mace_core.ir import Graph

MOST_FLATTENED = 3000
"""Inputs of a linear layer: more, of the 70 outputs that it may have, fill weight memory."""

MOST_POSITIONS = 256
"""Rows and columns that a linear layer joins."""

Step = Callable[["Maker", str], str]


class Maker:
    """A random graph by its number: images or lines, grown op by op from a random tensor that exists."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.writer = Writer(seed)
        self.line = bool(self.random.random() < 0.25)
        wide = bool(self.random.random() < 0.15)
        channels = self.pick(65, 70, 96, 130) if wide else self.pick(1, 2, 3, 4, 5, 8, 16, 21)
        sizes = [self.pick(5, 8, 9, 12, 13, 16) for _ in range(1 if self.line else 2)]
        self.tensors = [self.writer.input(*sizes, channels)]

    def pick(self, *values: int) -> int:
        return int(self.random.choice(values))

    def graph(self) -> Graph:
        for _ in range(self.pick(1, 2, 3, 4, 5)):
            x = (
                self.tensors[-1]
                if self.random.random() < 0.75
                else self.tensors[self.random.integers(len(self.tensors))]
            )
            steps: tuple[Step, ...] = (conv, conv, conv, pooled, summed, concat_alike, doubled, grouped)
            result = steps[self.random.integers(len(steps))](self, x)
            if result != x:
                self.tensors.append(result)
        last = self.tensors[-1]
        if last in self.writer.build.inputs or self.random.random() < 0.4:
            last = self.end(last)
        return self.writer.graph(last)

    def end(self, x: str) -> str:
        positions = int(np.prod(self.spatial(x)))
        if (
            positions <= MOST_POSITIONS
            and np.prod(self.writer.shape(x)) <= MOST_FLATTENED
            and self.random.random() < 0.7
        ):
            outputs = self.pick(2, 5, 10, 70 if positions <= MOST_FLATTENED // 70 else 10)
            return self.writer.dense(x, outputs, power=None if self.random.random() < 0.5 else -7)
        return conv(self, x, sums=self.random.random() < 0.5)

    def spatial(self, x: str) -> tuple[int, ...]:
        return self.writer.shape(x)[1:-1]

    def room(self, x: str, least: int) -> bool:
        return min(self.spatial(x)) >= least


def conv(maker: Maker, x: str, sums: bool = False) -> str:
    rank = len(maker.spatial(x))
    k = maker.pick(1, 2, 3, 3, 3, 5) if rank == 2 else maker.pick(1, 2, 3, 5, 7, 9)
    if maker.writer.shape(x)[-1] > 64:  # of which copies would fill weight memory
        k = min(k, 3) if k % 2 else 1
    if not maker.room(x, k) or (sums and k % 2 == 0):
        k = 1
    pad = maker.pick(0, (k - 1) // 2)
    stride = maker.pick(1, 1, 1, 2) if not sums and maker.writer.shape(x)[-1] <= 64 else 1
    after = (
        pad
        if stride == 1 and k % 2
        else maker.pick(pad, min(pad + 1, k - 1))
        if k % 2 and stride == 2
        else pad
    )
    attrs = {"strides": (stride,) * rank, "pads_before": (pad,) * rank, "pads_after": (after,) * rank}
    if not sums:
        attrs |= {"low": 0.0} if maker.random.random() < 0.5 else {}
    wide = maker.random.random() < 0.1 and maker.writer.shape(x)[-1] <= 64
    channels = maker.pick(65, 80, 128) if wide else maker.pick(1, 3, 4, 8, 12, 16, 33, 64)
    power = None if sums else maker.writer.power(x)
    return maker.writer.conv(
        x, channels, (k,) * rank, bits=maker.pick(1, 2, 4, 8, 8, 8), power=power, **attrs
    )


def grouped(maker: Maker, x: str) -> str:
    channels, rank = maker.writer.shape(x)[-1], len(maker.spatial(x))
    if not maker.room(x, 3) or channels > 64:
        return x
    return maker.writer.conv(
        x, channels, (3,) * rank, group=channels, pads_before=(1,) * rank, pads_after=(1,) * rank
    )


def pooled(maker: Maker, x: str) -> str:
    size = [maker.pick(1, 2, 2, 3) for _ in maker.spatial(x)]
    return maker.writer.pool(x, size, maker.pick(1, 2, 2, 3)) if maker.room(x, 4) else x


def summed(maker: Maker, x: str) -> str:
    alike = [t for t in maker.tensors if maker.writer.shape(t) == maker.writer.shape(x) and t != x]
    if not alike:
        rank = len(maker.spatial(x))
        if not maker.room(x, 3):
            return x
        alike = [
            maker.writer.conv(
                x, maker.writer.shape(x)[-1], (3,) * rank, pads_before=(1,) * rank, pads_after=(1,) * rank
            )
        ]
    result = maker.writer.one("Add" if maker.random.random() < 0.7 else "Sub", [x, alike[0]])
    return maker.writer.one("Relu", [result]) if maker.random.random() < 0.3 else result


def concat_alike(maker: Maker, x: str) -> str:
    alike = [t for t in maker.tensors if maker.spatial(t) == maker.spatial(x) and t != x]
    other = alike[-1] if alike else maker.writer.conv(x, maker.pick(4, 8, 5), (1,) * len(maker.spatial(x)))
    result = maker.writer.one("Concat", [x, other], {"axis": len(maker.writer.shape(x)) - 1})
    return conv(maker, result)


def doubled(maker: Maker, x: str) -> str:
    if len(maker.spatial(x)) != 2 or max(maker.spatial(x)) > 10 or maker.writer.shape(x)[-1] > 32:
        return x
    k, pads = ((3, (1, 1)), (2, (0, 0)))[maker.pick(0, 1)]
    extra = (1, 1) if k == 3 else (0, 0)
    attrs = {"strides": (2, 2), "pads_before": pads, "pads_after": pads, "output_padding": extra}
    return maker.writer.conv(x, maker.pick(4, 8, 16), (k, k), "ConvTranspose", **attrs)


def random_graph(seed: int) -> Graph:
    """The graph of a number."""
    return Maker(seed).graph()
