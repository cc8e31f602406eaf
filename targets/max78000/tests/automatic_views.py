"""Random quantized graphs whose layers read views of each other: lines as images and back, parts, sums and joins of these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from automatic_random import Maker, concat_alike, conv, doubled, grouped, pooled, summed

from mace_core.ir import Graph
from mace_target_max78000.legalize.tensors import make_storage

LEAST = 3
"""Rows or columns that an image made of a line has at least."""


class ViewMaker(Maker):
    """A random graph by its number, in which every other op changes how positions are counted or which of them are there."""

    def graph(self) -> Graph:
        for _ in range(self.pick(2, 3, 4, 5, 6)):
            x = (
                self.tensors[-1]
                if self.random.random() < 0.75
                else self.tensors[self.random.integers(len(self.tensors))]
            )
            step = STEPS[self.random.integers(len(STEPS))]
            result = step(self, x)
            if result != x:
                self.tensors.append(result)
        last = self.tensors[-1]
        if not self.is_computed(last) or self.random.random() < 0.3:
            last = self.end(last)
        others = [t for t in self.tensors if self.is_computed(t) and t != last]
        if others and self.random.random() < 0.3:
            return self.writer.graph(last, others[self.random.integers(len(others))])
        return self.writer.graph(last)

    def is_computed(self, tensor: str) -> bool:
        """Whether a tensor is more than the input counted anew, which cannot be a result."""
        nodes = {o: n for n in self.writer.build.nodes for o in n.outputs}
        while tensor in nodes and nodes[tensor].op.name == "Reshape":
            tensor = nodes[tensor].inputs[0]
        return tensor in nodes


def recounted(maker: Maker, x: str) -> str:
    """The same positions as a line, or as an image of other rows and columns."""
    *_, channels = maker.writer.shape(x)
    count = int(np.prod(maker.spatial(x)))
    rows = [n for n in range(LEAST, count // LEAST + 1) if count % n == 0]
    if len(maker.spatial(x)) == 2 and maker.random.random() < 0.7:
        return maker.writer.one("Reshape", [x], {"shape": (1, count, channels)})
    if not rows:
        return x
    chosen = maker.pick(*rows)
    return maker.writer.one("Reshape", [x], {"shape": (1, chosen, count // chosen, channels)})


def parted(maker: Maker, x: str) -> str:
    """Some of the channels, rows or columns: the second part of a Split."""
    shape = maker.writer.shape(x)
    axis = maker.pick(*range(1, len(shape)))
    if shape[axis] < 4 or (axis < len(shape) - 1 and shape[axis] % 2):
        return x
    first = 2 * maker.pick(*range(1, shape[axis] // 2))
    kept = maker.writer.build.tensors[x].storage
    names = [maker.writer.build.reserve_output(f"{x}.part{i}", kept) for i in range(2)]
    result = maker.writer.build.add(
        "Split", [x], {"axis": axis, "sizes": (first, shape[axis] - first)}, outputs=names
    )
    maker.tensors.append(result[0])
    return result[1]


def averaged(maker: Maker, x: str) -> str:
    size = [maker.pick(2, 3) for _ in maker.spatial(x)]
    return maker.writer.pool(x, size, maker.pick(1, 2, 3), average=True) if maker.room(x, 4) else x


def restored(maker: Maker, x: str) -> str:
    """The same numbers in other steps."""
    power = maker.writer.power(x) + maker.pick(-2, -1, 1, 2)
    return maker.writer.build.one(
        "Quantize", [x], {}, outputs=[maker.writer.build.reserve_output("y", make_storage(power))]
    )


def limited(maker: Maker, x: str) -> str:
    return maker.writer.one("Relu" if maker.random.random() < 0.5 else "Abs", [x])


STEPS: tuple[Callable[[Maker, str], str], ...] = (
    *(conv, conv, conv, pooled, summed, concat_alike, doubled, grouped),
    *(recounted, recounted, recounted, recounted, parted, averaged, restored, limited),
)


def random_views(seed: int) -> Graph:
    """The graph of a number."""
    return ViewMaker(seed).graph()
