"""Levels that multiply bytes have the bits of the CPU target's levels, which those of the references hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as product_of
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import BuiltForArm, assert_equal_on_arm, name_levels
from quantized_graphs import I8, I16, U8, conv, graph, product, storage
from quantized_networks import random_network

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.testing.compiled import case, merge

# All extensions came with ARMv8.2 and later; the Cortex-A53 has none, the A76 dot products and halves.
PROCESSORS = {
    "cortex-a53": {"neon"},
    "cortex-a76": {"neon", "dotprod", "fp16"},
    "max,sme=off": {"neon", "dotprod", "fp16", "fp16fml", "i8mm"},
    "max": {"neon", "dotprod", "fp16", "fp16fml", "i8mm", "sme"},
}
"""By QEMU's processor, the levels that it has."""

BORDER = {"pads_before": (1, 1), "pads_after": (1, 1)}
NONE = {"pads_before": (0, 0), "pads_after": (0, 0)}


def draw_inputs(graph: Graph) -> dict[str, Array]:
    """Integers of the whole range of each input."""
    rng = np.random.default_rng(7)
    limits = {name: np.iinfo(graph.tensors[name].dtype.numpy) for name in graph.inputs}
    return {
        name: rng.integers(limit.min, limit.max + 1, graph.tensors[name].shape).astype(limit.dtype)
        for name, limit in limits.items()
    }


def convolutions() -> Sequence[Graph]:
    """Tiles of all heights and widths, rows left over, depths with and without whole vectors of quads."""
    graphs = []
    kinds = {"i8": (I8, DType.I8, I8), "u8": (U8, DType.U8, U8), "u8_i8": (U8, DType.I8, I8)}
    # Of 3 x 3 x 3 a piece of a strip is three quads, an odd number.
    for number, (depth, columns, side) in enumerate(
        [(1, 1, 1), (3, 8, 5), (4, 5, 3), (16, 16, 4), (17, 19, 3), (24, 44, 5), (40, 30, 2), (64, 7, 7)]
    ):
        for kernel in (1, 3):
            border = BORDER if kernel == 3 else NONE
            for name, kind in kinds.items():
                shape = (2, side, side + 1, depth)
                filters = (columns, kernel, kernel, depth)
                graphs.append(conv(f"c{number}_{kernel}_{name}", shape, filters, kind, **border))
    graphs.append(conv("apart", (1, 9, 8, 6), (10, 3, 3, 6), kinds["i8"], **{**BORDER, "dilations": (2, 2)}))
    graphs.append(conv("grouped", (1, 5, 6, 12), (8, 3, 3, 6), kinds["u8"], group=2, **BORDER))
    graphs.append(conv("deep", (1, 6, 6, 20), (20, 3, 3, 1), kinds["i8"], group=20, **BORDER))
    graphs.append(conv("sixteen", (1, 4, 4, 6), (7, 3, 3, 6), (I16, DType.I8, I16), **BORDER))
    graphs.append(
        conv("sums", (1, 4, 4, 6), (7, 3, 3, 6), (I8, DType.I8, storage(DType.I16, 0.01)), **BORDER)
    )
    return graphs


def products() -> Sequence[Graph]:
    """Products with constant and computed factors, and those of integers without scales."""
    rng = np.random.default_rng(3)
    graphs = [product(DType.I8).with_name("dense_i8"), product(DType.U8).with_name("dense_u8")]
    graphs.append(graph("computed", "MatMul", [(I8, (3, 5, 21)), (U8, (3, 21, 18))], {}, I8))
    for dtype in (np.int8, np.uint8):
        for weights in (np.int8, np.uint8):
            low, high = np.iinfo(weights).min, np.iinfo(weights).max
            a = np.zeros((7, 37), dtype)
            b = rng.integers(low, high + 1, (37, 22)).astype(weights)
            zeros = [np.array([3], dtype), np.array([5], weights)]
            name = f"integer_{np.dtype(dtype)}_{np.dtype(weights)}"
            graphs.append(case(name, "MatMulInteger", [a, b, *zeros], constants=(1, 3)))
    return graphs


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64"), ("gnu", "armhf")], ids="-".join)
def test_products_have_the_bits_of_the_cpu(tools: tuple[str, str], tmp_path: Path) -> None:
    merged = merge("products", [*convolutions(), *products()])
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, tools)


def matrices() -> Sequence[Graph]:
    """Products that the kernel of smmla takes, and products just outside of its limits of rows, columns and depth."""
    kinds = {"i8": (I8, DType.I8, I8), "u8": (U8, DType.U8, U8), "u8_i8": (U8, DType.I8, I8)}
    sums = (U8, DType.I8, storage(DType.I16, 0.01))
    graphs = [
        conv(
            f"{name}_{depth}_{columns}_{side}",
            (1, side, side + 1, depth),
            (columns, 1, 1, depth),
            kind,
            **NONE,
        )
        for name, kind in {**kinds, "sums": sums}.items()
        for depth, columns, side in ((96, 32, 3), (104, 45, 2), (136, 33, 5), (100, 40, 4), (4160, 37, 3))
    ]
    for name, kind in kinds.items():
        graphs.append(conv(f"windows_{name}", (1, 7, 6, 16), (44, 3, 3, 16), kind, **BORDER))
        graphs.append(conv(f"odd_runs_{name}", (1, 5, 6, 12), (36, 3, 3, 12), kind, **BORDER))
    graphs.append(conv("few", (1, 4, 4, 128), (6, 1, 1, 128), kinds["u8_i8"], **NONE))
    graphs.append(conv("deepest", (1, 3, 3, 12296), (34, 1, 1, 12296), kinds["i8"], **NONE))
    return graphs


@pytest.mark.exhaustive
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a")], ids="-".join)
def test_products_of_matrices_have_the_bits_of_the_cpu(tools: tuple[str, str], tmp_path: Path) -> None:
    merged = merge("matrices", matrices())
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, tools, [("i8mm", "max")])


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("abi", ["arm64", "armhf"])
def test_random_networks_have_the_bits_of_the_cpu(abi: str, tmp_path: Path) -> None:
    merged = merge("networks", [random_network(seed) for seed in range(24)])
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, ("gnu", abi))


def multiply_lowest(rows: int, shape: tuple[int, int], lowest: Sequence[tuple[int, int]]) -> Graph:
    """A product with weights from -127 on but for some places [depth, column], stored in 32 bits."""
    builder = Builder(f"lowest_{rows}_{shape[0]}_{shape[1]}_{len(lowest)}_{lowest[0][0]}")
    values = np.random.default_rng(5).integers(-127, 128, shape).astype(np.int8)
    for place in lowest:
        values[place] = -128
    w = builder.weight("w", values, Quant.of(0.01))
    y = builder.reserve_output("y", storage(DType.I32, 0.05 * 0.01))
    x = builder.input("x", DType.I8, (rows, shape[0]), I8.quant)
    return builder.finish(builder.add("MatMul", [x, w], outputs=[y]))


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize(
    "tools", [("zig", "arm64-v8a"), ("gnu", "armhf"), ("zig", "armeabi-v7a")], ids="-".join
)
def test_products_of_the_lowest_bytes_do_not_wrap(tools: tuple[str, str], tmp_path: Path) -> None:
    """Two products of -128 by -128 are 2^15, one more than 16 bits hold."""
    graphs = []
    for rows, depth, columns in product_of((16, 37), (8, 21, 64), (4, 23)):
        everywhere = [*product_of(range(depth), range(columns))]
        for lowest in (everywhere, [(1, 3), (5, 3)], [(2, 3), (5, 3)]):
            graphs.append(multiply_lowest(rows, (depth, columns), lowest))
    merged = merge("lowest", graphs)
    inputs = {name: np.full_like(array, -128) for name, array in draw_inputs(merged).items()}
    assert_equal_on_arm(merged, inputs, tmp_path, tools)


@pytest.mark.exhaustive
def test_the_environment_chooses_a_level_for_bytes(tmp_path: Path) -> None:
    """A small case of the tests above, and what a library says of a level that it lacks."""
    small = conv("small", (1, 3, 3, 5), (6, 1, 1, 5), (I8, DType.I8, I8), **NONE)
    inputs = draw_inputs(small)
    built = BuiltForArm.from_graph(small, tmp_path, "gnu", "arm64")
    levels = name_levels("arm64")
    results = [built.run([inputs["x"]], level)["y"] for level in ("", *levels)]
    assert all((result == results[-1]).all() for result in results)
    assert len(np.unique(results[-1])) > 5
    refused = built.execute([inputs["x"]], "sve9")
    assert refused.returncode
    assert "no such level" in refused.stderr
    assert ", ".join(levels) in refused.stderr
    for processor, there in PROCESSORS.items():
        runs = {level for level in levels if built.execute([inputs["x"]], level, processor).returncode == 0}
        assert runs == there, processor
        assert built.execute([inputs["x"]], "", processor).returncode == 0
