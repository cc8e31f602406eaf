"""Quantised graphs for the tests of the automatic way, written so that the IR's rounding (halves to even) and the hardware's (up) agree.

An accumulator is a whole number of its least steps; half a step of bias keeps every sum off the halves
between two results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import numpy as np

from mace_core.attributes import Attribute, AttributeValues
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.run.reference import execute
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import LayerPlacement, Network
from mace_target_max78000.device import Chip
from mace_target_max78000.legalize.pipeline import LegalizedGraph, legalize_graph
from mace_target_max78000.legalize.tensors import find_exponent, make_storage
from mace_target_max78000.options import Options


class WeightOptions(TypedDict, total=False):
    """What a random layer may state about its weights and its result.

    bits: of each weight. power: the exponent of the result's step, None for sums of 32 bits. gain: the larger, the
    larger the weights' step.
    """

    bits: int
    power: int | None
    gain: int


class ConvOptions(WeightOptions, total=False):
    """The same, and attributes of Conv and ConvTranspose that are not as in `plain_window`."""

    group: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[int, ...]
    pads_after: tuple[int, ...]
    output_padding: tuple[int, ...]
    low: float
    high: float


@dataclass
class Writer:
    """Adds ops over bytes in steps of powers of two; random weights by a seed."""

    seed: int = 0
    build: Builder = field(default_factory=lambda: Builder("graph"))

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def input(self, *shape: int, power: int = -7) -> str:
        return self.build.input("x", DType.I8, (1, *shape), make_storage(power).quant)

    def power(self, x: str) -> int:
        result = find_exponent(self.build.tensors[x].quant)
        assert result is not None
        return result

    def shape(self, x: str) -> tuple[int, ...]:
        return self.build.shape(x)

    def conv(
        self, x: str, channels: int, kernel: Sequence[int], op: str = "Conv", **options: Unpack[ConvOptions]
    ) -> str:
        """Add a convolution; its weights and biases are random."""
        rank, group = len(kernel), options.get("group", 1)
        bits, power = options.pop("bits", 8), options.pop("power", self.power(x))
        width = self.shape(x)[-1] // group
        w = self.weights((channels, *kernel, width), bits)
        least = -(bits - 1) - int(np.ceil(np.log2(width * np.prod(kernel)) / 2)) + options.pop("gain", 1)
        complete: dict[str, object] = {**plain_window(rank), **options}
        if op == "ConvTranspose":
            complete.setdefault("output_padding", (0,) * rank)
        return self._main(op, x, w, (least, power), complete)

    def dense(self, x: str, outputs: int, **options: Unpack[WeightOptions]) -> str:
        """Add a linear layer, which flattens what it reads."""
        elements = int(np.prod(self.shape(x)))
        flat = x if len(self.shape(x)) == 2 else self.build.one("Reshape", [x], {"shape": (1, elements)})
        bits, power = options.pop("bits", 8), options.pop("power", self.power(x))
        w = self.weights((outputs, elements), bits).T
        return self._main(
            "MatMul", flat, w, (-(bits - 1) - int(np.ceil(np.log2(elements) / 2)) + 1, power), options
        )

    def weights(self, shape: tuple[int, ...], bits: int) -> Array:
        return self.random.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(np.int8)

    def _main(
        self, op: str, x: str, w: Array, powers: tuple[int, int | None], attrs: Mapping[str, object]
    ) -> str:
        unit, power = powers
        count = w.shape[-1] if op == "MatMul" else w.shape[0]
        step = self.power(x) + unit
        half = int(power is not None and power > step)
        bias = (2 * 128 * self.random.integers(-128, 128, count) + half).astype(np.int32)
        weight = self.build.weight("w", w, Quant.of(2.0**unit))
        name = self.build.reserve_output("y", make_storage(power) if power is not None else None)
        return self.build.one(
            op, [x, weight, self.build.weight("b", bias, Quant.of(2.0 ** (step - 1)))], attrs, outputs=[name]
        )

    def pool(
        self, x: str, size: Sequence[int], stride: int, average: bool = False, **attrs: Attribute
    ) -> str:
        rank = len(size)
        window = {**plain_window(rank), "kernel": tuple(size), "strides": (stride,) * rank}
        return self.one("AveragePool" if average else "MaxPool", [x], {**window, **attrs})

    def one(self, op: str, inputs: Sequence[str], attrs: AttributeValues | None = None) -> str:
        """Add an op whose result has the storage of its first operand."""
        return self.build.one(
            op,
            inputs,
            attrs or {},
            outputs=[self.build.reserve_output("y", self.build.tensors[inputs[0]].storage)],
        )

    def graph(self, *outputs_: str) -> Graph:
        return self.build.finish(outputs_)


def plain_window(axes: int) -> dict[str, tuple[int, ...]]:
    """Return the attributes of a window of this rank that moves by one and has no padding."""
    ones, zeros = (1,) * axes, (0,) * axes
    return {"strides": ones, "dilations": ones, "pads_before": zeros, "pads_after": zeros}


def sample_of(graph: Graph, seed: int = 0) -> Array:
    """Random bytes for the graph's one input."""
    tensor = graph.tensors[graph.inputs[0]]
    return np.random.default_rng(seed).integers(-128, 128, tensor.shape).astype(np.int8)


def compute_layers(
    formed: LegalizedGraph, x: Array, device: Chip, options: Options | None = None
) -> tuple[Array, ...]:
    """What every layer computes: [channels, rows, columns]."""
    places = (LayerPlacement(1, 1),) * len(formed.layers)
    return outputs(
        Network("formed", formed.layers, places, formed.network_input.apply(x)), options or Options()
    )


def assert_same(graph: Graph, device: Chip, seed: int = 0) -> LegalizedGraph:
    """Every layer's result that is a tensor of the graph equals the IR's reference bit for bit."""
    formed, x = legalize_graph(graph, device), sample_of(graph, seed)
    expected = execute(graph, {graph.inputs[0]: x})
    compared = 0
    for layer, tensor, found in zip(
        formed.layers, formed.tensors, compute_layers(formed, x, device), strict=True
    ):
        assert found.shape == (layer.out_channels, *layer.out_dim), (layer.name, found.shape, layer.out_dim)
        if tensor in expected:
            want = expected[tensor]
            if want.dtype.kind == "f":
                want = np.rint(want / 2.0 ** (_step(graph, tensor)))
            # A layer may make channels of zeros besides.
            want = np.moveaxis(want.reshape(*layer.out_dim, -1), -1, 0)
            assert np.array_equal(want.astype(np.int64), found[: len(want)]), layer.name
            assert not found[len(want) :].any()
            compared += 1
    assert compared
    return formed


def _step(graph: Graph, tensor: str) -> int:
    node = next(n for n in graph.nodes if tensor in n.outputs)
    powers = [find_exponent(graph.tensors[i].quant) for i in node.inputs[:2]]
    assert powers[0] is not None
    assert powers[1] is not None
    return powers[0] + powers[1]
