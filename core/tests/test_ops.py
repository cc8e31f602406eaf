"""Every operator of the core: inference, reference, arity and attributes agree with one another."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mace_core.attributes import fields_of
from mace_core.ir import DType, Graph
from mace_core.offers import mace_ops
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.testing.samples import sample
from mace_core.verify import verify

TYPES = (DType.F32, DType.I32, DType.I8, DType.BOOL, DType.F64)
WITHOUT_SAMPLE = frozenset(op for op in core_ops() if not any(sample(op, dtype) for dtype in TYPES))


def graphs(op: str) -> list[Graph]:
    return [graph for dtype in TYPES if (graph := sample(op, dtype))]


def test_the_core_offers_all_its_operators() -> None:
    assert {op.name for op in mace_ops()} == set(core_ops())
    assert {op for op in WITHOUT_SAMPLE if not op.startswith("ml::")} == set(), (
        "testing/samples.py has no example"
    )


@pytest.mark.parametrize("op", sorted(set(core_ops()) - WITHOUT_SAMPLE))
def test_the_reference_gives_what_inference_announces(op: str) -> None:
    for graph in graphs(op):
        values = execute(verify(graph), random_inputs(graph))
        for name in graph.outputs:
            tensor = graph.tensors[name]
            assert (DType.of(values[name]), values[name].shape) == (tensor.dtype, tensor.shape)


@pytest.mark.parametrize(
    "op", sorted(name for name, op in core_ops().items() if op.moves and name not in WITHOUT_SAMPLE)
)
def test_an_op_that_moves_makes_no_new_numbers(op: str) -> None:
    for graph in graphs(op):
        inputs = random_inputs(graph)
        data = np.concatenate(
            [
                np.zeros(1),
                *(a.astype(np.float64).ravel() for a in (*inputs.values(), *graph.weights.values())),
            ]
        )
        moved, *_ = graph.outputs  # further ones are places
        assert np.isin(execute(graph, inputs)[moved].astype(np.float64), data).all(), "a padding is 0"


def test_the_ops_that_only_move_data() -> None:
    """Eight bits go through these as they are stored; through all others a kernel that knows the scale is needed."""
    assert sorted(name for name, op in core_ops().items() if op.moves) == [
        *("Concat", "DepthToSpace", "Expand", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool"),
        *("MaxPoolIndices", "Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Tile"),
        *("TopK", "Transpose"),
    ]


@pytest.mark.parametrize("op", core_ops().values(), ids=lambda op: op.name)
def test_arity_is_bounded_from_below_and_above(op: Op) -> None:
    least = sum(name[-1] not in "?*" for name in op.inputs)
    outputs = max(1, sum(name[-1] not in "?*" for name in op.outputs))
    op.check_arity(max(least, 1), outputs)
    if least:
        with pytest.raises(OpError, match="inputs, expected"):
            op.check_arity(least - 1, outputs)
    if not op.inputs[-1].endswith("*"):
        with pytest.raises(OpError, match="inputs, expected"):
            op.check_arity(len(op.inputs) + 1, outputs)


@pytest.mark.parametrize("op", core_ops().values(), ids=lambda op: op.name)
def test_attributes_are_completed_once_and_checked(op: Op) -> None:
    with pytest.raises(OpError, match="no attribute 'no_such'"):
        op.complete({"no_such": 1})
    required = [field.name for field in fields_of(op.attrs).values() if field.is_required]
    if required:
        with pytest.raises(OpError, match=f"attribute '{required[0]}' is required"):
            op.complete({})
        return
    complete = op.complete({})
    assert op.complete(complete) == complete
    for name, field in fields_of(op.attrs).items():
        with pytest.raises(OpError, match=re.escape(f"attribute '{name}' is None, expected {field.text}")):
            op.complete({name: None})


def test_numbers_of_numpy_and_lists_become_plain() -> None:
    attrs = core_ops()["Transpose"].complete({"perm": np.array([1, 0])})
    assert attrs.perm == (1, 0)
    assert all(type(value) is int for value in attrs.perm)


def test_a_truth_is_no_number() -> None:
    with pytest.raises(OpError, match="attribute 'alpha' is True, expected a number"):
        core_ops()["LeakyRelu"].complete({"alpha": True})


def test_absent_operands_are_told_by_name() -> None:
    conv = core_ops()["Conv"]
    conv.check_present(["x", "w", ""])
    with pytest.raises(OpError, match=r"operand 'w' \(input 1\) is absent"):
        conv.check_present(["x", ""])
    assert repr(conv) == "<op Conv>"
