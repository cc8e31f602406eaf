"""Which convolutions of a model that says nothing of Winograd's tiles take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_conv import conv

from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.numerics import Numerics
from mace_core.program import Program
from mace_target_cpu import Cpu


def sided(name: str, shape: tuple[int, int, int, int], results: int) -> Graph:
    """A convolution of 3 x 3 windows with as many results as pixels."""
    return conv(name, shape, (results, 3, 3, shape[-1]), pads_before=(1, 1), pads_after=(1, 1))


def lower(graph: Graph, abi: str = "x86_64", **keys: object) -> Program:
    target = Cpu(takes_default_tiles=True).configure(Model("m", (), keys=keys))
    assert isinstance(target, Cpu)
    return target.lower(graph, abi)


def list_kernels(program: Program) -> list[str]:
    return [str(call.kernel.name) for call in program.calls]


def with_filters(graph: Graph, filters: Array) -> Graph:
    (name,) = (name for name, array in graph.weights.items() if array.ndim == 4)
    filters.setflags(write=False)
    return replace(graph, weights={**graph.weights, name: filters})


IMAGE = sided("image", (1, 28, 28, 64), 64)


@pytest.mark.parametrize(
    ("size", "channels", "results"), [(56, 64, 64), (28, 128, 128), (16, 32, 32), (8, 64, 64)]
)
def test_tiles_of_2_are_taken_at_every_level(size: int, channels: int, results: int) -> None:
    """By one call, so that a library holds filters once."""
    program = lower(sided("taken", (1, size, size, channels), results))
    assert [(str(call.kernel.name), call.levels) for call in program.calls] == [("conv_winograd2_f32", ())]
    (selection,) = program.selections
    assert {choice.level for choice in selection.choices} == {"avx512vnni", "avx2", "sse2"}
    assert all([*choice.costs] == ["winograd", "direct"] for choice in selection.choices)


@pytest.mark.parametrize(
    ("shape", "results", "reason"),
    [
        ((1, 7, 7, 64), 64, "longer than the direct sum"),
        ((1, 32, 32, 16), 16, "longer than the direct sum"),
        ((1, 56, 56, 8), 64, "from 16 channels of both sides on"),
    ],
)
def test_other_convolutions_say_why_they_are_direct(
    shape: tuple[int, int, int, int], results: int, reason: str
) -> None:
    program = lower(sided("direct", shape, results))
    assert list_kernels(program) == ["conv_f32"]
    (selection,) = program.selections
    assert reason in selection.refused["winograd"]


FILTERS = 256 * 9 * 256 * 4
"""Bytes of the filters of 256 x 256 channels."""

ADDED = FILTERS * 7 // 9
"""Bytes that they add when they are transformed: 1,835,008."""


def layers(sizes: list[int], other_bytes: int = 0) -> Graph:
    """Convolutions of 256 x 256 channels, each of an image of its own, beside other weights."""
    rng, builder = np.random.default_rng(0), Builder("layers")
    outputs = []
    for place, size in enumerate(sizes):
        image = builder.input(f"image{place}", DType.F32, (1, size, size, 256))
        filters = builder.weight(f"filters{place}", rng.standard_normal((256, 3, 3, 256), np.float32))
        attrs = dict.fromkeys(("strides", "pads_before", "pads_after", "dilations"), (1, 1))
        outputs += builder.add("Conv", [image, filters], attrs)
    if other_bytes:
        row = builder.input("row", DType.F32, (other_bytes // 4,))
        outputs += builder.add("Add", [row, builder.weight("other", np.ones(other_bytes // 4, np.float32))])
    return builder.finish(outputs)


@pytest.mark.parametrize(
    ("sizes", "other_bytes", "is_taken"),
    [
        ([14], 0, True),  # adds less than two MiB
        ([14, 14], 0, False),
        ([14, 14], 6 * 2 * ADDED - 2 * FILTERS, True),  # adds a sixth of all weights
        ([14, 14], 6 * 2 * ADDED - 2 * FILTERS - 4, False),
    ],
)
def test_filters_may_add_a_sixth_to_the_weights(sizes: list[int], other_bytes: int, is_taken: bool) -> None:
    kernels = list_kernels(lower(layers(sizes, other_bytes)))
    kernel = "conv_winograd2_f32" if is_taken else "conv_f32"
    assert kernels[: len(sizes)] == [kernel] * len(sizes)


def test_layers_of_more_pixels_come_first() -> None:
    """Tiles spare more there for each byte that they add."""
    program = lower(layers([14, 28, 14]))
    assert list_kernels(program) == ["conv_f32", "conv_winograd2_f32", "conv_f32"]
    reason = "transformed filters of all layers of 196 pixels and more would add 5505024 bytes to 7077888 of"
    assert [reason in selection.refused.get("winograd", "") for selection in program.selections] == [
        True,
        False,
        True,
    ]


def test_filters_whose_errors_would_grow_are_direct() -> None:
    corners = np.zeros((64, 3, 3, 64), np.float32)
    corners[:, 0, 0] = np.random.default_rng(4).standard_normal((64, 64))
    program = lower(with_filters(IMAGE, corners))
    assert list_kernels(program) == ["conv_f32"]
    reason = "the errors of Winograd's tiles are above those of the direct sum"
    assert program.selections[0].refused["winograd"] == reason


@pytest.mark.parametrize("keys", [{"winograd": 0}, {"weights": "as-stored"}])
def test_whoever_says_so_gets_no_tiles(keys: dict[str, object]) -> None:
    program = lower(IMAGE, **keys)
    assert list_kernels(program) == ["conv_f32"]
    assert program.selections == ()


def test_reproducible_results_take_none() -> None:
    """Their bits are those of processors which take no tiles unless a model says so."""
    assert list_kernels(lower(replace(IMAGE, numerics=Numerics.REPRODUCIBLE))) == ["conv_f32"]


def test_other_processors_take_none() -> None:
    assert list_kernels(lower(IMAGE, "riscv64")) == ["conv_f32"]


def test_a_target_keeps_the_tiles_that_its_maker_gave_it() -> None:
    target = Cpu(takes_default_tiles=True)
    target.winograd = 4
    assert target.configure(Model("m", ())) is target


def test_a_class_that_derives_from_the_cpu_gets_none() -> None:
    target = Cpu()
    assert target.configure(Model("m", ())) is target
