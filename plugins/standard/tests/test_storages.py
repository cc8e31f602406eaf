"""Roundings stay: a Transpose or Reshape may store its result otherwise than its operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.verify import verify
from mace_transform_standard.cleanup.merge_axes import merge_axes
from mace_transform_standard.cleanup.merge_transposes import merge_transposes
from mace_transform_standard.cleanup.transposes_to_views import transposes_to_views
from mace_transform_standard.cleanup.transposes_to_weights import transposes_to_weights
from mace_transform_standard.fuse.sink_reshapes import sink_reshapes
from mace_transform_standard.layout.layout import layout
from mace_transform_standard.quantize.fuse_quantize import fuse_quantize

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


FINE, COARSE = Storage(DType.I8, Quant.of(0.05, 3)), Storage(DType.I8, Quant.of(1.0))
Step = tuple[str, dict[str, Attribute]]


@pytest.mark.parametrize(
    ("transform", "first", "second", "last"),
    [
        (
            merge_transposes,
            ("Transpose", {"perm": (0, 2, 1)}),
            ("Reshape", {"shape": (2, 2, 2, 3)}),
            ("Transpose", {"perm": (0, 3, 1, 2)}),
        ),
        (
            merge_axes,
            ("Reshape", {"shape": (1, 2, 1, 3, 2, 2)}),
            ("Transpose", {"perm": (0, 1, 2, 4, 5, 3)}),
            ("Reshape", {"shape": (2, 12)}),
        ),
        (
            transposes_to_weights,
            ("Transpose", {"perm": (0, 2, 1)}),
            ("Reshape", {"shape": (2, 12)}),
            ("MatMul", {}),
        ),
    ],
)
def test_the_rounding_of_the_first_of_three_moves_stays(
    transform: Callable[[Graph], Graph], first: Step, second: Step, last: Step
) -> None:
    new = Builder("moves")
    tensor = new.input("x", FINE.dtype, (2, 3, 4), FINE.quant)
    for (op, attrs), storage in zip((first, second, last), (COARSE, COARSE, FINE), strict=True):
        operands = [tensor, new.weight("w", np.eye(12, dtype=np.float32))] if op == "MatMul" else [tensor]
        tensor = new.one(op, operands, attrs, outputs=[new.reserve_output("t", storage)])
    graph = verify(new.finish([tensor]))
    x = {"x": np.arange(-100, 100, dtype=np.int8)[:: 200 // 24][:24].reshape(2, 3, 4)}
    expected, actual = (execute(g, x)[tensor] for g in (graph, verify(transform(graph))))
    np.testing.assert_array_equal(actual, expected)


def test_scales_along_an_axis_stay_with_it() -> None:
    new = Builder("axis")
    moved = new.one(
        "Relu", [new.one("Transpose", [new.input("x", DType.F32, (2, 3, 4))], {"perm": (0, 2, 1)})]
    )
    each = Storage(DType.I8, Quant((0.1, 0.2, 0.3, 0.4), (0,) * 4, 1))
    stored = new.one("Quantize", [moved], outputs=[new.reserve_output("q", each)])
    wide = new.one("MatMul", [moved, new.weight("w", np.eye(3, dtype=np.float32))])
    flat = new.one("Reshape", [wide], {"shape": (4, 6)})
    rows = Storage(DType.I8, Quant((0.1, 0.2, 0.3, 0.4), (0,) * 4, 0))
    limited = new.one("Relu", [flat], outputs=[new.reserve_output("r", rows)])
    graph = verify(new.finish([stored, limited]))
    inputs = random_inputs(graph)
    expected, after = execute(graph, inputs), graph
    for transform in (layout, sink_reshapes, fuse_quantize):
        after = verify(transform(after))
        actual = execute(after, inputs)
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[name], expected[name])


def test_indices_of_stored_numbers_are_no_stored_numbers() -> None:
    new = Builder("top")
    real = new.one("Dequantize", [new.input("x", FINE.dtype, (2, 8), FINE.quant)])
    graph = verify(new.finish(new.add("TopK", [real], {"axis": 1, "k": 3}, outputs=2)))
    inputs = random_inputs(graph)
    expected, actual = execute(graph, inputs), execute(verify(fuse_quantize(graph)), inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(actual[name], expected[name])


def test_a_maximum_of_no_stored_numbers_is_minus_infinity() -> None:
    new = Builder("nothing")
    real = new.one("Dequantize", [new.input("x", FINE.dtype, (1, 2, 2, 1), FINE.quant)])
    window = {
        "kernel": (1, 1),
        "strides": (1, 1),
        "pads_before": (1, 1),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    graph = verify(new.finish([new.one("MaxPool", [real], window)]))
    inputs = random_inputs(graph)
    expected, actual = (execute(g, inputs)[graph.outputs[0]] for g in (graph, verify(fuse_quantize(graph))))
    assert np.isneginf(expected).any()
    np.testing.assert_array_equal(actual, expected)


def test_sparse_windows_without_padding_move_stored_numbers() -> None:
    new = Builder("sparse")
    real = new.one("Dequantize", [new.input("x", FINE.dtype, (1, 9, 9, 2), FINE.quant)])
    window = {
        "kernel": (3, 3),
        "strides": (3, 3),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (2, 2),
    }
    graph = verify(new.finish([new.one("MaxPool", [real], window)]))
    assert [node.op.name for node in verify(fuse_quantize(graph)).nodes] == ["MaxPool", "Dequantize"]
