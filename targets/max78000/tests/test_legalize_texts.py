"""Graphs beside the layers that they become, or the text of their refusal: each limit of a rule from both sides.

Of every graph that becomes layers, each layer equals the IR's reference bit for bit as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, Unpack

import numpy as np
import pytest
from automatic_graphs import ConvOptions, Writer, assert_same, plain_window

import mace_core.ir
from mace_core.attributes import Attribute
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Quant
from mace_frontend_ai8x.network import Layer
from mace_target_max78000.device import MAX78000
from mace_target_max78000.legalize.tensors import make_storage
from mace_target_max78002.device import MAX78002

Value = TypeVar("Value")
Result = TypeVar("Result")

pytestmark = pytest.mark.slow  # five seconds together

DEVICES = {device.name: device for device in (MAX78000, MAX78002)}
BOTH = "MAX78000 MAX78002"


class Words(Writer):
    """What the table's graphs are written with."""

    def data(self, *shape: int) -> str:
        """Random data that a layer has made, as it has negative values too."""
        x = self.input(*shape)
        return self.conv(x, shape[-1], (1,) * (len(shape) - 1))

    def store(self, op: str, inputs: Sequence[str], power: int, **attrs: Attribute) -> str:
        name = self.build.reserve_output("y", make_storage(power))
        return self.build.one(op, inputs, attrs, outputs=[name])

    def copy(self, x: str, unit: int = 0, power: int = -7, **attrs: Attribute) -> str:
        """A convolution whose weights are one step of 2 ** unit."""
        axes, channels = len(self.shape(x)) - 2, self.shape(x)[-1]
        return self.store(
            "Conv", [x, self.weight(eye(channels, axes), 2.0**unit)], power, **plain_window(axes), **attrs
        )

    def weight(self, values: Array, step: float) -> str:
        return self.build.weight("w", values.astype(np.int8), Quant.of(step))

    def sums(self, x: str, unit: int = -3) -> str:
        """Each channel times 2 ** unit, neither rounded nor limited."""
        axes, channels = len(self.shape(x)) - 2, self.shape(x)[-1]
        return self.build.one("Conv", [x, self.weight(eye(channels, axes), 2.0**unit)], plain_window(axes))

    def constant(self, *values: float, shape: tuple[int, ...] = (-1,)) -> str:
        """Real numbers that move a sum of steps of 1/8 off the halves between two results."""
        return self.build.weight("c", (np.float32(values) + np.float32(2.0**-11)).reshape(shape))

    def up(self, x: str, kernel: Sequence[int], **options: Unpack[ConvOptions]) -> str:
        full: ConvOptions = {"strides": (2, 2), "output_padding": (0, 0), **options}
        return self.conv(x, 4, kernel, op="ConvTranspose", **full)

    def pooled(self, x: str, size: tuple[int, int], strides: tuple[int, int], **attrs: Attribute) -> str:
        return self.one("MaxPool", [x], {"kernel": size, **plain_window(2), "strides": strides, **attrs})

    def resize(self, x: str, rows: int, columns: int, mode: str = "nearest") -> str:
        _, height, width, channels = self.shape(x)
        attrs = {
            "sizes": (1, rows, columns, channels),
            "scales": (1.0, rows / height, columns / width, 1.0),
            "coordinates": "asymmetric",
            "nearest": "floor",
            "mode": mode,
        }
        return self.one("Resize", [x], attrs)

    def pad(
        self, x: str, before: Sequence[int], after: Sequence[int], mode: str = "constant", value: float = 0.0
    ) -> str:
        return self.one(
            "Pad", [x], {"before": (0, *before, 0), "after": (0, *after, 0), "mode": mode, "value": value}
        )

    def split(self, x: str, axis: int, *sizes: int) -> tuple[str, ...]:
        storage = self.build.tensors[x].storage
        names = [self.build.reserve_output(f"part{i}", storage) for i in range(len(sizes))]
        return self.build.add("Split", [x], {"axis": axis, "sizes": sizes}, outputs=names)

    def last(self, *tensors: str) -> Graph:
        """The graph, a 1x1 convolution or a linear layer behind each tensor."""
        ends = []
        for x in tensors:
            axes = len(self.shape(x)) - 2
            ends.append(self.conv(x, 4, (1,) * axes) if axes else self.dense(x, 3))
        return self.graph(*ends)


def eye(channels: int, axes: int = 2) -> Array:
    return np.eye(channels, dtype=np.int8).reshape(channels, *(1,) * axes, channels)


def pad_evenly(pad: int) -> dict[str, tuple[int, int]]:
    return {"pads_before": (pad, pad), "pads_after": (pad, pad)}


def use(value: Value, function: Callable[[Value], Result]) -> Result:
    """Pass a value to a function, so that an expression can read it twice."""
    return function(value)


def summary(layer: Layer) -> str:
    """A layer in one word."""
    parts = [f"{layer.operation.value}{_size(layer.kernel)}"]
    parts += [f"pad{_size(layer.pad)}"] if any(layer.pad) else []
    parts += [f"dilated{layer.dilation[0]}"] if max(layer.dilation) > 1 else []
    parts += [f"groups{layer.groups}"] if layer.groups > 1 else []
    parts += [f"{layer.eltwise.name.lower()}{layer.operands}"] if layer.eltwise else []
    size, _, stride = layer.window
    parts += [f"{'mean' if layer.pool and layer.pool.average else 'max'}{_size(size)}"] if layer.pool else []
    parts += [f"every{stride}"] if stride > 1 else []
    parts += [f"shift{layer.shift}"] if layer.shift else []
    parts += [layer.activation.value] if layer.activation.value != "none" else []
    parts += [f"{layer.weights.bits}bits"] if layer.weights and layer.weights.bits < 8 else []
    parts += ["wide"] if layer.wide else []
    return f"{'.'.join(parts)}:{layer.out_channels}x{_size(layer.out_dim)}"


def _size(pair: tuple[int, int]) -> str:
    return "x".join(map(str, pair))


def read_cases() -> list[tuple[str, str, str]]:
    """Graph, parts, and layers or refusal, of each case of `legalize_texts.txt`."""
    cases: list[tuple[str, str, str]] = []
    graph = ""
    for line in (Path(__file__).parent / "legalize_texts.txt").read_text().splitlines():
        if line.startswith("> "):
            graph = line[2:]
        elif not line.startswith("#"):
            parts, _, expected = line.partition(": ")
            cases.append((graph, parts, expected))
    return cases


CASES = read_cases()

SHARES = 20
"""Tests among which the cases are divided: a test of its own for each takes longer than the case."""


def become(graph: str, part: str) -> str:
    """What a graph of the table becomes on a part."""
    result = eval(graph, {**vars(mace_core.ir), **globals(), "w": Words(3)})  # our own table
    try:
        formed = assert_same(result, DEVICES[part])
    except MaceError as refusal:
        return str(refusal).replace("\n", " / ")
    notes = [note for note in formed.notes if "loaded as signed bytes" not in note]
    return "; ".join([" ".join(map(summary, formed.layers)), *notes])


@pytest.mark.parametrize("share", range(SHARES))
def test_texts(share: int) -> None:
    cases = CASES[share::SHARES]
    expected = [(graph, part, text) for graph, parts, text in cases for part in parts.split()]
    assert [(graph, part, become(graph, part)) for graph, part, _ in expected] == expected
