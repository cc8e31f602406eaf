"""Kernels over quantized tensors against the exact meaning: real numbers, rounded once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86

pytestmark = pytest.mark.slow

I8 = Storage(DType.I8, Quant.of(0.05, 3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))
I16 = Storage(DType.I16, Quant.of(0.001))
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
POOL = {**WINDOW, "kernel": (3, 3)}


def storage(dtype: DType, scale: float, zero: int = 0) -> Storage:
    return Storage(dtype, Quant.of(scale, zero))


Operands = Sequence[tuple[Storage | None, tuple[int, ...]]]


def graph(name: str, op: str, inputs: Operands, attrs: Mapping[str, object], out: Storage | None) -> Graph:
    new = Builder(name)
    names = [
        new.input(f"x{i}", s.dtype if s else DType.F32, shape, s and s.quant)
        for i, (s, shape) in enumerate(inputs)
    ]
    return new.finish(new.add(op, names, attrs, outputs=[new.reserve_output("y", out)]))


def conv(
    name: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    kinds: tuple[Storage, DType, Storage | None],
    **how: object,
) -> Graph:
    """A convolution with random weights: i8 with a scale for each filter, u8 with one for all.

    op: another than Conv.
    """
    op = str(how.pop("op", "Conv"))
    x, kind, out = kinds
    rng = np.random.default_rng(len(name))
    new = Builder(name)
    if kind is DType.I8:
        scale = tuple(rng.uniform(0.002, 0.02, filters[0]).tolist())
        w = new.weight(
            "w", rng.integers(-127, 128, filters).astype(np.int8), Quant(scale, (0,) * filters[0], 0)
        )
        bias_quant = Quant(tuple(s * x.quant.scale[0] for s in scale), (0,) * filters[0], 0)
    else:
        w = new.weight("w", rng.integers(0, 256, filters).astype(np.uint8), Quant.of(0.01, 131))
        bias_quant = Quant.of(0.01 * x.quant.scale[0])
    b = new.weight("b", rng.integers(-2000, 2000, filters[0]).astype(np.int32), bias_quant)
    y = new.add(
        op,
        [new.input("x", x.dtype, shape, x.quant), w, b],
        {**WINDOW, **how},
        outputs=[new.reserve_output("y", out)],
    )
    return new.finish(y)


def inputs_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    made = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        if t.dtype is DType.BOOL:
            made[name] = rng.integers(0, 2, t.shape).astype(bool)
        elif t.dtype is DType.F32:
            made[name] = rng.standard_normal(t.shape).astype(np.float32)
        else:
            limits = np.iinfo(t.dtype.numpy)
            made[name] = rng.integers(limits.min, limits.max + 1, t.shape).astype(t.dtype.numpy)
    return made


def check(graphs: Sequence[Graph], folder: Path, levels: Sequence[Level] | None = None) -> dict[str, str]:
    """Assert that the C rounds the exact real numbers once, up to what float32 leaves open.

    levels: all of this machine if None. Returns the kernels by graph.
    """
    inputs = {g.name: inputs_of(g) for g in graphs}
    results = run_merged(Cpu(), graphs, folder, inputs, levels)
    for g in graphs:
        given, found = inputs[g.name], results[g.name]
        exact = execute(
            replace(g, tensors={n: t.real if n in g.outputs else t for n, t in g.tensors.items()}), given
        )
        for name in g.outputs:
            quant = g.tensors[name].quant
            if quant is None:
                np.testing.assert_allclose(found[name], exact[name], rtol=2e-6, atol=1e-5, err_msg=g.name)
                continue
            limits = np.iinfo(found[name].dtype)
            steps = exact[name].astype(np.float64) / quant.scale[0] + quant.zero_point[0]
            off = np.abs(np.clip(steps, limits.min, limits.max) - found[name])
            assert off.max(initial=0) <= 0.5 + (int(limits.max) - int(limits.min)) / 2**20, g.name
    return {g.name: " ".join(c.kernel.name for c in Cpu().lower(g).calls) for g in graphs}


def test_convolutions(tmp_path: Path) -> None:
    graphs = [
        conv("square", (1, 9, 7, 5), (19, 3, 3, 5), (I8, DType.I8, I8)),
        conv(
            "pixel", (2, 5, 6, 12), (33, 1, 1, 12), (I8, DType.I8, I8), pads_before=(0, 0), pads_after=(0, 0)
        ),
        conv("legacy", (1, 9, 8, 6), (17, 3, 3, 6), (U8, DType.U8, storage(DType.U8, 0.3, 100))),
        conv("strided", (1, 12, 12, 3), (8, 5, 5, 3), (U8, DType.I8, I8), strides=(2, 2)),
        conv("groups", (1, 8, 8, 8), (12, 3, 3, 4), (I8, DType.I8, U8), group=2),
        conv("deep", (1, 8, 8, 21), (21, 3, 3, 1), (I8, DType.I8, I8), group=21),
        conv(
            "deep_legacy",
            (1, 8, 8, 16),
            (16, 3, 3, 1),
            (U8, DType.U8, storage(DType.U8, 0.0437, 120)),
            group=16,
        ),
        conv("relu", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, I8), low=0.0, high=6.0),
        conv("floats", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, None)),
        conv("wide", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, I16)),
        conv("sixteen", (1, 9, 7, 5), (19, 3, 3, 5), (I16, DType.I8, I16), strides=(2, 1)),
        conv(
            "sixteen_pixel",
            (2, 5, 6, 12),
            (33, 1, 1, 12),
            (I16, DType.I8, I16),
            pads_before=(0, 0),
            pads_after=(0, 0),
            high=20.0,
        ),
        conv("sixteen_groups", (1, 8, 8, 8), (12, 3, 3, 4), (I16, DType.I8, I8), group=2),
        conv("sixteen_deep", (1, 8, 8, 21), (21, 3, 3, 1), (I16, DType.I8, I16), group=21),
    ]
    kernels = check(graphs, tmp_path)
    assert all(name.startswith("conv_") and " " not in name for name in kernels.values()), kernels


UNEVEN = {"strides": (2, 1), "pads_before": (1, 2), "pads_after": (2, 0), "dilations": (1, 2)}
CUBE = {
    "strides": (1, 2, 2),
    "pads_before": (1, 0, 2),
    "pads_after": (2, 2, 1),
    "dilations": (2, 1, 2),
}
LINE = {"strides": (2,), "pads_before": (3,), "pads_after": (1,), "dilations": (2,)}
OUTSIDE = {"strides": (3, 3), "pads_before": (4, 4), "pads_after": (4, 4), "dilations": (1, 1)}


def windows() -> list[tuple[str, tuple[int, ...], tuple[int, ...], Mapping[str, object]]]:
    """Sizes on either side of four vectors of eight channels, and windows that differ along every axis."""
    return [
        ("plane", (2, 9, 8, 77), (3, 2), UNEVEN),
        ("volume", (2, 5, 6, 7, 33), (2, 3, 2), CUBE),
        ("sequence", (3, 20, 32), (4,), LINE),
        ("one", (1, 5, 4, 1), (2, 3), UNEVEN),
        ("outside", (1, 3, 4, 9), (3, 3), OUTSIDE),
    ]


def test_windows_that_differ_along_every_axis(tmp_path: Path) -> None:
    graphs = []
    for (name, shape, kernel, how), (x, y) in itertools.product(windows(), ((I8, I8), (U8, I16), (I16, U8))):
        kinds, channels, stem = (x, DType.I8, y), shape[-1], f"{name}_{x.dtype.value}"
        graphs.append(conv(f"{stem}_deep", shape, (channels, *kernel, 1), kinds, group=channels, **how))
        graphs.append(conv(f"{stem}_full", shape, (19, *kernel, channels), kinds, **how))
        pool = {**how, "kernel": kernel}
        for count_pad in (False, True):
            attrs = {**pool, "count_pad": count_pad, "ceil": True}
            graphs.append(graph(f"{stem}_mean{count_pad}", "AveragePool", [(x, shape)], attrs, y))
    kernels = check(graphs, tmp_path, levels_here(Cpu().levels("host"))[:1])
    assert not [name for name in kernels.values() if "dequantize" in name]


def test_a_channel_without_weight_and_a_bias_of_all_bits_is_no_reason_for_floats(tmp_path: Path) -> None:
    new = Builder("dead")
    w = new.weight("w", np.full((2, 1, 1, 4), 127, np.int8), Quant((0.01, 1e-15), (0, 0), 0))
    b = new.weight("b", np.array([50, -(2**31)], np.int32), Quant((0.0005, 5e-17), (0, 0), 0))
    how = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
    x = new.input("x", DType.I8, (1, 3, 3, 4), I8.quant)
    assert check(
        [new.finish(new.add("Conv", [x, w, b], how, outputs=[new.reserve_output("y", I8)]))], tmp_path
    ) == {"dead": "conv_quantized"}


def test_transposed_convolutions(tmp_path: Path) -> None:
    how = {"op": "ConvTranspose", "strides": (2, 2), "output_padding": (0, 0)}
    graphs = [
        conv("twice", (1, 5, 6, 5), (9, 4, 4, 5), (I8, DType.I8, I8), **how),
        conv(
            "legacy", (2, 4, 5, 6), (7, 3, 3, 6), (U8, DType.U8, storage(DType.U8, 0.3, 100)), **how, high=9.0
        ),
        conv("groups", (1, 4, 4, 6), (8, 3, 3, 3), (I8, DType.I8, U8), **how, group=2),
        conv("sixteen", (1, 4, 4, 5), (6, 3, 3, 5), (I16, DType.I8, I16), **how),
    ]
    kernels = check(graphs, tmp_path)
    assert all(name.startswith("conv_") and "quantize_" not in name for name in kernels.values()), kernels


def test_products_of_computed_factors(tmp_path: Path) -> None:
    graphs = [
        graph("heads", "MatMul", [(I8, (3, 37, 11)), (I8, (3, 11, 21))], {}, storage(DType.I8, 0.3, 2)),
        graph(
            "legacy",
            "MatMul",
            [(U8, (2, 5, 8)), (U8, (2, 8, 33))],
            {"low": 0.0},
            storage(DType.U8, 0.25, 128),
        ),
        graph("mixed", "MatMul", [(I8, (2, 5, 9)), (U8, (9, 16))], {}, storage(DType.I8, 0.4)),
    ]
    kernels = check(graphs, tmp_path)
    assert set(kernels.values()) == {"matmul_quantized"}


def test_numbers_that_are_stored_alike_stay_as_they_are(tmp_path: Path) -> None:
    shape = (3, 7)
    pair = [(I8, shape), (I8, (7,))]
    graphs = [
        *(
            graph(op.lower(), op, pair, {}, None)
            for op in ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")
        ),
        graph("apart", "Less", [(I8, shape), (U8, shape)], {}, None),
        graph("max_pool_16", "MaxPool", [(I16, (1, 6, 7, 5))], POOL, I16),
    ]
    new = Builder("where")
    names = [
        new.input("c", DType.BOOL, shape),
        *(new.input(f"x{i}", DType.I8, shape, I8.quant) for i in range(2)),
    ]
    graphs.append(new.finish(new.add("Where", names, outputs=[new.reserve_output("y", I8)])))
    kernels = check(graphs, tmp_path)
    assert {n for n, k in kernels.items() if "quantize" in k} == {"apart"}


def test_resizes(tmp_path: Path) -> None:
    image = (2, 6, 7, 11)
    twice = {"sizes": (2, 12, 13, 11), "scales": (1.0, 2.0, 13 / 7, 1.0)}
    tall = {"sizes": (2, 9, 7, 11), "scales": (1.0, 1.5, 1.0, 1.0)}
    wider = storage(DType.I8, 0.07, -9)
    graphs = [
        graph("nearest", "Resize", [(I8, image)], {**twice, "mode": "nearest"}, I8),
        graph("linear", "Resize", [(I8, image)], {**twice, "mode": "linear"}, I8),
        graph(
            "linear_u8",
            "Resize",
            [(U8, (1, 5, 4, 1))],
            {"sizes": (1, 10, 8, 1), "scales": (1.0, 2.0, 2.0, 1.0), "mode": "linear"},
            U8,
        ),
        graph("cubic", "Resize", [(U8, image)], {**twice, "mode": "cubic"}, storage(DType.U8, 0.05, 100)),
        graph(
            "line", "Resize", [(I8, image)], {**tall, "mode": "linear", "coordinates": "align_corners"}, wider
        ),
        graph("sixteen", "Resize", [(I16, image)], {**twice, "mode": "linear"}, I16),
        graph(
            "cut",
            "Resize",
            [(I8, image)],
            {
                **twice,
                "mode": "linear",
                "coordinates": "tf_crop_and_resize",
                "extrapolation": 1.0,
                "roi": (0.0, -0.2, 0.1, 0.0, 1.0, 1.2, 0.9, 1.0),
            },
            I8,
        ),
    ]
    kernels = check(graphs, tmp_path)
    assert all("quantize_" not in name for name in kernels.values()), kernels


def test_elementwise(tmp_path: Path) -> None:
    shapes = [(1, 5, 37), (37,)]
    graphs = [
        graph(
            "add",
            "Add",
            [(I8, shapes[0]), (storage(DType.I8, 0.0311, -5), shapes[1])],
            {},
            storage(DType.I8, 0.0817, 1),
        ),
        graph("mul", "Mul", [(U8, shapes[0]), (U8, shapes[0])], {}, storage(DType.U8, 0.2, 30)),
        graph("sub", "Sub", [(I8, shapes[1]), (I8, shapes[0])], {}, I8),
        graph("wide", "Add", [(I16, shapes[0]), (I16, shapes[0])], {}, storage(DType.I16, 0.002)),
        graph("mixed", "Mul", [(None, shapes[0]), (I8, (1,))], {}, None),
        graph("tanh", "Tanh", [(I8, shapes[0])], {}, storage(DType.I8, 1 / 128)),
        graph("sigmoid", "Sigmoid", [(U8, shapes[0])], {}, storage(DType.U8, 1 / 256)),
        graph("leaky", "LeakyRelu", [(I8, shapes[0])], {"alpha": 0.1}, I8),
    ]
    kernels = check(graphs, tmp_path)
    assert kernels["tanh"] == "table_8"


GATE = storage(DType.I16, 2.0**-12)
UNIT = storage(DType.I16, 2.0**-15)


def test_curves_of_sixteen_bits_are_less_than_a_step_off(tmp_path: Path) -> None:
    """Of every value there is."""
    every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    shape = every.shape
    graphs = [
        graph("tanh", "Tanh", [(GATE, shape)], {}, UNIT),
        graph("sigmoid", "Sigmoid", [(GATE, shape)], {}, UNIT),
        graph("narrow", "Sigmoid", [(GATE, shape)], {}, storage(DType.U8, 1 / 256)),
        graph("elu", "Elu", [(I16, shape)], {}, I16),
        graph("gelu", "Gelu", [(I16, shape)], {}, I16),
        graph("sharp", "Sigmoid", [(storage(DType.I16, 1.0), shape)], {}, UNIT),
        graph("root", "Sqrt", [(I16, shape)], {}, I16),
    ]
    results = run_merged(Cpu(), graphs, tmp_path, {g.name: {"x0": every} for g in graphs})
    for g in graphs:
        calls = [c.kernel.name for c in Cpu().lower(g).calls]
        assert (calls[0][:6] == "curve_") == (g.name not in ("sharp", "root")), calls
        if g.name == "root":
            continue  # none of negative numbers
        exact = execute(
            replace(g, tensors={n: t.real if n in g.outputs else t for n, t in g.tensors.items()}),
            {"x0": every},
        )["y"]
        made, found = g.tensors["y"].quant, results[g.name]["y"]
        assert made is not None
        limits = np.iinfo(found.dtype)
        steps = np.clip(exact.astype(np.float64) / made.scale[0] + made.zero_point[0], limits.min, limits.max)
        assert np.abs(found - steps).max() < 1.001, g.name  # float32 has no more of a step


def test_conversions(tmp_path: Path) -> None:
    shape = (3, 77)
    graphs = [
        graph("to_i8", "Quantize", [(None, shape)], {}, I8),
        graph("to_u8", "Quantize", [(None, shape)], {}, U8),
        graph("to_i16", "Quantize", [(None, shape)], {}, I16),
        graph("to_i32", "Quantize", [(None, shape)], {}, storage(DType.I32, 1e-8)),
        graph("again", "Quantize", [(I8, shape)], {}, U8),
        graph("narrow", "Quantize", [(I16, shape)], {}, I8),
        graph("back", "Dequantize", [(U8, shape)], {}, None),
        graph("back_wide", "Dequantize", [(I16, shape)], {}, None),
        graph("back_i32", "Dequantize", [(storage(DType.I32, 1e-9), shape)], {}, None),
    ]
    check(graphs, tmp_path)


def test_reductions_pools_and_softmax(tmp_path: Path) -> None:
    image = (2, 6, 7, 11)
    graphs = [
        graph("mean", "ReduceMean", [(I8, image)], {"axes": (1, 2)}, storage(DType.I8, 0.02, -4)),
        graph(
            "sum", "ReduceSum", [(U8, image)], {"axes": (3,), "keepdims": False}, storage(DType.U8, 0.3, 90)
        ),
        graph("max", "ReduceMax", [(I8, image)], {"axes": (1, 2)}, I8),
        graph("arg", "ArgMax", [(U8, image)], {"axis": 3}, None),
        graph("average", "AveragePool", [(I8, image)], POOL, I8),
        graph("average_16", "AveragePool", [(I16, image)], POOL, I16),
        graph("mean_16", "ReduceMean", [(I16, image)], {"axes": (1, 2)}, I16),
        graph("softmax_16", "Softmax", [(I16, (5, 10))], {}, storage(DType.I16, 1 / 32768)),
        graph(
            "average_all",
            "AveragePool",
            [(U8, image)],
            {**POOL, "count_pad": True},
            storage(DType.I8, 0.05, 0),
        ),
        graph("max_pool", "MaxPool", [(I8, image)], POOL, I8),
        graph("softmax", "Softmax", [(I8, (5, 10))], {}, storage(DType.I8, 1 / 256, -128)),
        graph("softmax_inner", "Softmax", [(I8, (5, 10, 3))], {"axis": 1}, storage(DType.U8, 1 / 256)),
        graph("layer_norm", "LpNorm", [(I8, (5, 10))], {}, storage(DType.I8, 1 / 128)),
    ]
    check(graphs, tmp_path)


def test_movement(tmp_path: Path) -> None:
    shape = (2, 3, 4)
    other = storage(DType.I8, 0.1, -7)
    graphs = [
        graph("pad", "Pad", [(U8, shape)], {"before": (0, 1, 2), "after": (1, 0, 1)}, U8),
        graph("concat", "Concat", [(I8, shape), (other, shape)], {"axis": 1}, I8),
        graph("concat_same", "Concat", [(I8, shape), (I8, shape)], {"axis": 1}, I8),
        graph("transpose", "Transpose", [(I8, shape)], {"perm": (2, 0, 1)}, I8),
        graph(
            "slice", "Slice", [(I8, shape)], {"starts": (0, 1, 0), "sizes": (2, 2, 2), "steps": (1, 1, 2)}, I8
        ),
    ]
    check(graphs, tmp_path)


SCALAR = replace(GENERIC[0], name="scalar", flags=("-U__SSE2__", "-U__ARM_NEON"))
"""The plain C of processors for which the integer kernels have no instructions of their own."""


@pytest.mark.sampled(cases="scalar")  # the other tests of this file run at the best level
@pytest.mark.parametrize("level", [*levels_here((*X86, *GENERIC)), SCALAR], ids=lambda level: str(level.name))
def test_products_on_every_level(level: Level, tmp_path: Path) -> None:
    # An odd depth leaves half of the last pair of vi_dot empty.
    graphs = [product(DType.I8), conv("square", (1, 5, 4, 5), (19, 3, 3, 5), (I8, DType.I8, I8))]
    assert check(graphs, tmp_path, [level])["dense"] == "conv_quantized"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [DType.I8, DType.U8])
def test_products(kind: DType, tmp_path: Path) -> None:
    assert check([product(kind)], tmp_path) == {"dense": "conv_quantized"}


def product(kind: DType) -> Graph:
    """A product with constant weights of a type, with a bias and a limit."""
    rng = np.random.default_rng(0)
    new = Builder("dense")
    x = new.input("x", DType.I8, (5, 33), I8.quant)
    limits, zero = np.iinfo(kind.numpy), 0 if kind is DType.I8 else 117
    w = new.weight(
        "w", rng.integers(limits.min, limits.max + 1, (33, 21)).astype(kind.numpy), Quant.of(0.01, zero)
    )
    b = new.weight("b", rng.integers(-900, 900, 21).astype(np.int32), Quant.of(0.01 * 0.05))
    y = new.add(
        "MatMul", [x, w, b], {"low": 0.0}, outputs=[new.reserve_output("y", storage(DType.I8, 0.1, -100))]
    )
    return new.finish(y)
