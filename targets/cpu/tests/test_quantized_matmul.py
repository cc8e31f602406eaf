"""Products of quantized matrices against the exact meaning, on every level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import SEEN
from quantized_graphs import I8, I16, U8, check, conv, graph, inputs_of, product, storage

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.levels import Level, with_levels
from mace_core.testing.compiled import plan_graph, run_merged
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86

pytestmark = pytest.mark.slow


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


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [DType.I8, DType.U8])
def test_products(kind: DType, tmp_path: Path) -> None:
    assert check([product(kind)], tmp_path) == {"dense": "conv_quantized"}


SCALAR = replace(GENERIC[0], name="scalar", flags=("-U__SSE2__", "-U__ARM_NEON"))
"""The plain C of processors for which the integer kernels have no instructions of their own."""


@pytest.mark.exhaustive  # the other tests of this file run at the best level
@pytest.mark.parametrize("level", [*levels_here((*X86, *GENERIC)), SCALAR], ids=lambda level: str(level.name))
def test_products_on_every_level(level: Level, tmp_path: Path) -> None:
    # A depth of 33 or 45 leaves some of the last quad of vi_dot empty.
    graphs = [product(DType.I8), conv("square", (1, 5, 4, 5), (19, 3, 3, 5), (I8, DType.I8, I8))]
    assert check(graphs, tmp_path, [level])["dense"] == "conv_quantized"


PIXEL = {"pads_before": (0, 0), "pads_after": (0, 0)}


def shapes_of_tiles() -> list[Graph]:
    """Products on either side of the sizes of tiles: whole and broken quads, rows and vectors of columns."""
    narrow, legacy = (I8, DType.I8, I8), (U8, DType.U8, storage(DType.U8, 0.3, 100))
    graphs = [
        conv(f"{kind}_{rows}_{depth}_{columns}", (1, 1, rows, depth), (columns, 1, 1, depth), kinds, **PIXEL)
        for kind, kinds in (("i8", narrow), ("u8", legacy))
        for rows, depth, columns in (
            (1, 3, 70),
            (7, 8, 16),
            (21, 64, 33),
            (11, 66, 48),
            (13, 4, 100),
            (2, 130, 143),
            (32, 68, 64),
            (49, 272, 100),
            (100, 64, 17),
        )
    ]
    return [
        *graphs,
        # Windows whose pieces and chunks of quads end at different places.
        conv("pieces", (1, 12, 12, 28), (40, 5, 5, 28), (I8, DType.I8, I8), pads_before=(2, 2)),
        conv("stem_seven", (1, 24, 24, 3), (64, 7, 7, 3), (U8, DType.I8, U8), strides=(2, 2)),
        conv("floats", (1, 5, 5, 9), (40, 3, 3, 9), (U8, DType.I8, None)),
        conv("wide", (1, 5, 5, 9), (40, 3, 3, 9), (I8, DType.U8, I16)),
        conv("sixteen", (1, 5, 5, 9), (40, 3, 3, 9), (I16, DType.I8, I8)),
        conv("groups", (1, 6, 6, 10), (34, 3, 2, 5), (I8, DType.I8, I8), group=2, high=3.0, low=-2.0),
        conv("strip", (2, 32, 32, 16), (16, 3, 3, 16), (I8, DType.I8, I8)),
        conv("stem", (1, 21, 20, 3), (32, 3, 3, 3), (U8, DType.U8, U8), strides=(2, 2)),
        conv("strip_groups", (2, 9, 9, 6), (20, 3, 3, 3), (I8, DType.I8, I8), group=2),
        conv(
            "apart", (1, 30, 30, 5), (16, 5, 5, 5), (I8, DType.I8, I8), dilations=(2, 2), pads_before=(4, 3)
        ),
        *(
            conv(f"channels_{kind.dtype.value}_{n}", (1, 4, 5, n), (n, 3, 3, 1), (kind, weight, y), group=n)
            for n in (3, 32, 33, 64, 100)
            for kind, weight, y in ((I8, DType.I8, U8), (U8, DType.U8, I8))
        ),
    ]


def largest_product(element: DType, weight: DType, value: int) -> Graph:
    """A product with constant weights of one value, its sums as they are."""
    new = Builder(f"{element.value}_{weight.value}_{value}")
    x = new.input("x", element, (3, 66), Quant.of(1.0))
    w = new.weight("w", np.full((66, 20), value, weight.numpy), Quant.of(1.0))
    return new.finish(new.add("MatMul", [x, w], outputs=[new.reserve_output("y", storage(DType.I32, 1.0))]))


LARGEST = [
    (element, weight, value)
    for element in (DType.I8, DType.U8, DType.I16)
    for weight in (DType.I8, DType.U8)
    for value in (np.iinfo(weight.numpy).min, np.iinfo(weight.numpy).max)
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "level",
    [SEEN[str(level.name)] for level in X86 if level.name in SEEN],
    ids=lambda level: str(level.name),
)
def test_tiles_read_nothing_beside_their_tensors(level: Level, tmp_path: Path) -> None:
    graphs = shapes_of_tiles()
    plans = {g.name: plan_graph(with_levels(Cpu(), [level]), g) for g in graphs}
    library = Sanitized(plans, [level], tmp_path / "sanitized")
    inputs = {g.name: inputs_of(g) for g in graphs}
    expected = run_merged(Cpu(), graphs, tmp_path / "plain", inputs, [SCALAR])
    for g in graphs:
        actual = library.run(g.name, inputs[g.name])
        assert np.array_equal(actual["y"], expected[g.name]["y"]), g.name


@pytest.mark.exhaustive
def test_every_level_gives_the_same_bits(tmp_path: Path) -> None:
    graphs = shapes_of_tiles()
    largest = [largest_product(*kinds) for kinds in LARGEST]
    expected: dict[str, Array] = {}
    for level in (SCALAR, *levels_here(X86)):
        inputs = {g.name: inputs_of(g) for g in (*graphs, *largest)}
        for g in largest:
            limits = np.iinfo(g.tensors["x"].dtype.numpy)
            inputs[g.name]["x"][0], inputs[g.name]["x"][1] = limits.min, limits.max
        results = run_merged(Cpu(), [*graphs, *largest], tmp_path / level.name, inputs, [level])
        for g, (_, _, value) in zip(largest, LARGEST, strict=True):
            sums = inputs[g.name]["x"].astype(np.int64).sum(1, keepdims=True) * value
            assert (results[g.name]["y"] == sums).all(), f"{level.name}: {g.name}"
        for g in graphs:
            bits = results[g.name]["y"]
            assert np.array_equal(bits, expected.setdefault(g.name, bits)), f"{level.name}: {g.name}"
