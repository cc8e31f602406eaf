"""Tensors of half precision: what processors compute on them has the bits of the CPU target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import assert_equal_on_arm

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.testing.compiled import case, merge
from mace_target_arm import Arm


def convert(dtype: DType, result: DType, shape: tuple[int, ...]) -> Graph:
    """A Cast."""
    new = Builder(f"to_{result.value}")
    return new.finish([new.one("Cast", [new.input("x", dtype, shape)], {"to": result.value})])


def list_halves() -> Array:
    """Every number of half precision, and NaNs that are quiet."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    is_signaling = np.isnan(bits.view(np.float16)) & (bits & 0x200 == 0)
    return bits[~is_signaling].view(np.float16)


def list_floats() -> Array:
    """Every half, what lies just beside each and in the middle of two, and the ends of floats."""
    halves = list_halves().astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    middles = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([finite, middles])
    ends = np.array([65519.996, 65520.0, 3.4e38, -3.4e38, 1e-45, -1e-45, 2.9e-8, 2.98e-8, 3e-8], np.float32)
    beside = [np.nextafter(near, np.float32(limit)) for limit in (-np.inf, np.inf)]
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    return np.concatenate([halves, near, *beside, ends, nans])


@pytest.mark.exhaustive
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a"), ("gnu", "armhf")], ids="-".join)
def test_every_number_is_converted_as_on_the_cpu(tools: tuple[str, str], tmp_path: Path) -> None:
    for number, (x, result) in enumerate(((list_halves(), DType.F32), (list_floats(), DType.F16))):
        for count in (x.size, 5):
            some = x[:: x.size // count][:count]
            folder = tmp_path / f"{number}_{count}"
            folder.mkdir()
            graph = convert(DType.of(x), result, some.shape)
            assert_equal_on_arm(graph, {"x": some.view()}, folder, tools)


WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


@dataclass(frozen=True)
class Convolution:
    """Shapes of an input and of filters, and what differs from WINDOW."""

    shape: tuple[int, ...]
    filters: tuple[int, ...]
    attrs: Mapping[str, Attribute]


NO_BORDER = {"pads_before": (0, 0), "pads_after": (0, 0)}
CONVOLUTIONS = {
    "pixels": Convolution((2, 5, 7, 21), (37, 1, 1, 21), NO_BORDER),
    "one_pixel": Convolution((1, 1, 1, 64), (16, 1, 1, 64), NO_BORDER),
    "windows": Convolution((1, 6, 9, 5), (19, 3, 3, 5), {}),
    "clamped": Convolution((1, 7, 5, 16), (24, 3, 3, 16), {"low": 0.0, "high": 1.5, "strides": (2, 2)}),
    "apart": Convolution((1, 8, 9, 4), (5, 3, 3, 4), {"dilations": (2, 2)}),
    "groups": Convolution((1, 5, 6, 12), (8, 3, 3, 6), {"group": 2}),
    "line": Convolution(
        (1, 9, 8),
        (12, 3, 8),
        dict.fromkeys(WINDOW, (1,)),
    ),
    "depthwise": Convolution((1, 7, 9, 20), (20, 3, 3, 1), {"group": 20}),
    "depthwise_strides": Convolution(
        (2, 9, 12, 11), (11, 5, 5, 1), {"group": 11, "strides": (2, 2), "low": 0.0}
    ),
    "depthwise_apart": Convolution((1, 9, 9, 6), (6, 3, 3, 1), {"group": 6, "dilations": (2, 2)}),
    "depthwise_few": Convolution((1, 6, 7, 3), (3, 3, 3, 1), {"group": 3}),
}


def draw(*shape: int) -> Array:
    """Numbers of half precision, of about one."""
    values: Array = np.random.default_rng(shape).standard_normal(shape).astype(np.float16)
    return values


def convolutions() -> Sequence[Graph]:
    """Each with a bias."""
    return [
        case(
            name,
            "Conv",
            [draw(*c.shape), draw(*c.filters) / 2, draw(c.filters[0])],
            {**WINDOW, **c.attrs},
            constants=(1, 2),
        )
        for name, c in CONVOLUTIONS.items()
    ]


def products() -> Sequence[Graph]:
    """Tiles of all heights and widths, depths with what is left of a register, with a bias and without."""
    graphs = []
    for rows, depth, columns in ((1, 5, 3), (2, 64, 40), (5, 8, 8), (6, 7, 16), (7, 19, 24), (13, 33, 50)):
        factors = [draw(rows, depth), draw(depth, columns), draw(columns) if rows % 2 else None]
        constants = (1, 2) if rows % 2 else (1,)
        graphs.append(case(f"product_{rows}", "MatMul", factors, {}, constants=constants))
    graphs.append(case("computed", "MatMul", [draw(3, 9), draw(9, 4)], {}))
    graphs.append(case("batch", "MatMul", [draw(2, 3, 5), draw(5, 4)], {}, constants=(1,)))
    return graphs


def elementwise() -> Sequence[Graph]:
    """Ops that IEEE 754 defines, over whole registers and what is left, broadcast from either side."""
    graphs = []
    shapes = {"same": ((3, 13), (3, 13)), "right": ((3, 13), (13,)), "left": ((3, 1), (3, 13))}
    for op in ("Add", "Sub", "Mul", "Div", "Minimum", "Maximum"):
        for name, (x, y) in shapes.items():
            graphs.append(case(f"{op.lower()}_{name}", op, [draw(*x), draw(*y)], {}))
    graphs.append(case("prelu", "PRelu", [draw(3, 13), draw(13)], {}))
    attributes = {"Clip": {"min": -0.5, "max": 0.75}, "LeakyRelu": {"alpha": 0.1}}
    for op in ("Abs", "Neg", "Relu", "Reciprocal", "Clip", "LeakyRelu"):
        graphs.append(case(op.lower(), op, [draw(3, 13)], attributes.get(op, {})))
    return graphs


def draw_inputs(graph: Graph) -> dict[str, Array]:
    """Numbers for each input of a graph."""
    return {name: draw(*graph.tensors[name].shape) for name in graph.inputs}


def test_processors_of_64_bits_compute_without_conversions() -> None:
    for graph in (*convolutions(), *products(), *elementwise()):
        kernels = [call.kernel.name for call in Arm().lower(graph, "arm64").calls]
        # Weights that are computed cannot be packed before.
        assert (len(kernels) > 1) == (graph.name == "computed"), (graph.name, kernels)
        assert Arm().lower(graph, "armhf").calls[0].kernel.name == "cast_f16_f32"


def test_a_product_without_depth_is_taken() -> None:
    graph = case("no_depth", "MatMul", [draw(3, 0), draw(0, 4), draw(4)], {}, constants=(1, 2))
    (call,) = Arm().lower(graph, "arm64").calls
    assert (call.kernel.name, call.args["out"], call.args["results"]) == ("conv_f16", (1, 1, 3), 4)


@pytest.mark.slow
def test_small_convolutions_have_the_bits_of_floats(tmp_path: Path) -> None:
    """A small case of the test below."""
    small = ("windows", "depthwise", "depthwise_apart")
    merged = merge("small", [graph for graph in convolutions() if graph.name in small])
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, ("gnu", "arm64"))


@pytest.mark.exhaustive
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a")], ids="-".join)
def test_halves_have_the_bits_of_floats_between_conversions(tools: tuple[str, str], tmp_path: Path) -> None:
    """At each level, whether it multiplies halves or widens them first: docs/kernels.md says why."""
    merged = merge("halves", [*convolutions(), *products(), *elementwise()])
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, tools)
