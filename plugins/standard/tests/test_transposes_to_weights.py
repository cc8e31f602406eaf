"""Transposes before constant matrices."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_transform_standard.cleanup.transposes_to_weights import transposes_to_weights

Shape = tuple[int, ...]


def product(x: Shape, perm: Shape, flat: Shape, quantized: bool = False) -> Graph:
    """A tensor turned, flattened, and multiplied with a matrix."""
    rng, new = np.random.default_rng(0), Builder("product")
    how = Storage(DType.I8, Quant.of(0.1, 3)) if quantized else None
    given = new.input("x", how.dtype if how else DType.F32, x, how and how.quant)
    rows = new.one("Reshape", [new.one("Transpose", [given], {"perm": perm})], {"shape": flat})
    if how:
        quant = Quant((0.1, 0.2, 0.3), (0, 0, 0), 1)
        matrix = new.weight("w", rng.integers(-127, 128, (flat[-1], 3)).astype(np.int8), quant)
    else:
        matrix = new.weight("w", rng.standard_normal((flat[-1], 3)).astype(np.float32))
    y = new.add("MatMul", [rows, matrix], outputs=[new.reserve_output("y", how)])
    return new.finish(y)


@pytest.mark.parametrize(
    ("x", "perm", "flat"),
    [
        ((2, 3, 4, 5), (0, 3, 1, 2), (2, 60)),
        ((2, 3, 4, 5), (0, 3, 1, 2), (1, 2, 60)),
        ((2, 3, 4, 5), (0, 1, 3, 2), (6, 20)),
        ((4, 5, 2), (1, 2, 0), (40,)),
    ],
)
@pytest.mark.parametrize("quantized", [False, True])
def test_the_rows_are_turned_instead(x: Shape, perm: Shape, flat: Shape, quantized: bool) -> None:
    graph = product(x, perm, flat, quantized)
    turned = transposes_to_weights(graph)
    assert [n.op.name for n in turned.nodes] == ["Reshape", "MatMul"]
    tensor = graph.tensors["x"]
    inputs = {"x": np.random.default_rng(1).integers(-128, 128, x).astype(tensor.dtype.numpy)}
    np.testing.assert_allclose(
        execute(turned, inputs)["y"], execute(graph, inputs)["y"], rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize(
    ("x", "perm", "flat"),
    [
        ((2, 3, 4, 5), (3, 0, 1, 2), (5, 24)),  # what is kept is turned too
        ((2, 3, 4, 5), (1, 0, 2, 3), (6, 20)),
        ((4, 6), (1, 0), (12, 2)),  # rows across axes
    ],
)
def test_what_cannot_be_told_by_rows_stays(x: Shape, perm: Shape, flat: Shape) -> None:
    graph = product(x, perm, flat)
    assert [n.op.name for n in transposes_to_weights(graph).nodes] == ["Transpose", "Reshape", "MatMul"]
