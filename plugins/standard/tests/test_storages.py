"""Roundings stay: a Transpose or Reshape may store its result otherwise than its operand."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.verify import verify
from mace_transform_standard.cleanup.merge_transposes import merge_transposes
from mace_transform_standard.cleanup.transposes_to_views import transposes_to_views
from mace_transform_standard.cleanup.transposes_to_weights import transposes_to_weights
from mace_transform_standard.layout.layout import layout

STORAGES = (
    None,
    Storage(DType.I8, Quant.of(0.05, 3)),
    Storage(DType.I8, Quant.of(0.11, -4)),
    Storage(DType.U8, Quant.of(0.04, 100)),
)
SHAPES = ((2, 3, 4), (6, 4), (4, 6), (2, 12), (1, 24), (4, 3, 2))


def chain(seed: int) -> Graph:
    """Moves and arithmetic, each stored in its own way.

    What is stored stays so where it is moved, and floats stay floats.
    """
    rng, new = np.random.default_rng(seed), Builder("chain")
    storage = STORAGES[rng.integers(4)]
    tensor = new.input("x", storage.dtype if storage else DType.F32, (2, 3, 4), storage and storage.quant)
    for _ in range(rng.integers(2, 7)):
        op, storage = (
            str(rng.choice(["Transpose", "Reshape", "Relu", "Add", "Neg"])),
            STORAGES[rng.integers(4)],
        )
        if op in ("Transpose", "Reshape") and (storage is None) != (new.tensors[tensor].quant is None):
            storage = new.tensors[tensor].storage
        attrs = {
            "Transpose": {"perm": tuple(int(i) for i in rng.permutation(len(new.shape(tensor))))},
            "Reshape": {"shape": SHAPES[rng.integers(len(SHAPES))]},
        }.get(op, {})
        tensor = new.one(
            op, [tensor] * (2 if op == "Add" else 1), attrs, outputs=[new.reserve_output("t", storage)]
        )
    return verify(new.finish([tensor]))


@pytest.mark.parametrize("seed", range(200))
def test_every_rounding_stays(seed: int) -> None:
    graph = chain(seed)
    inputs, (name,) = random_inputs(graph), graph.outputs
    expected, tensor = execute(graph, inputs)[name], graph.tensors[name]
    for transform in (layout, merge_transposes, transposes_to_weights, transposes_to_views):
        graph = verify(transform(graph))
        assert graph.tensors[name].storage == tensor.storage
        np.testing.assert_allclose(
            execute(graph, inputs)[name], expected, rtol=0, atol=0 if tensor.quant else 1e-5
        )
