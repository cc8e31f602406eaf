"""The references and shape inferences of the normalising ops, against ONNX's own test data where it has some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from mace_core.ir import DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError
from mace_core.ops.softmax import LpNormAttributes, SoftmaxAttributes

ONNX_NAMES: Mapping[str, str] = {
    "Softmax": "Softmax",
    "LogSoftmax": "LogSoftmax",
    "Hardmax": "Hardmax",
    "LpNormalization": "LpNorm",
    "LayerNormalization": "LayerNorm",
    "BatchNormalization": "BatchNorm",
    "InstanceNormalization": "InstanceNorm",
    "GroupNormalization": "GroupNorm",
    "LRN": "LRN",
    "MeanVarianceNormalization": "MeanVarianceNorm",
}
CHANNELS_FIRST = ("BatchNorm", "InstanceNorm", "GroupNorm", "LRN")


def attributes(node: Any, op: Op) -> dict[str, Any]:
    get_attribute_value = pytest.importorskip("onnx.helper").get_attribute_value
    given = {a.name.replace("num_groups", "groups"): get_attribute_value(a) for a in node.attribute}
    return {"axes": (0, 2, 3)} | given if op.name == "MeanVarianceNorm" else given


def infer(op: Op, arrays: list[Any], attrs: Mapping[str, Any]) -> list[tuple[DType, tuple[int, ...]]]:
    tensors = [None if a is None else Tensor(f"t{i}", DType.of(a), a.shape) for i, a in enumerate(arrays)]
    return list(op.infer(tensors, attrs))


def test_onnx_cases(onnx_cases: Callable[..., list[Any]]) -> None:
    cases = [case for case in onnx_cases(ONNX_NAMES) if "training" not in case.name]
    assert len(cases) > 50
    assert {c.model.graph.node[0].op_type for c in cases} == set(ONNX_NAMES)
    for case in cases:
        node = case.model.graph.node[0]
        op = core_ops()[ONNX_NAMES[node.op_type]]
        attrs = op.complete(attributes(node, op))
        for given, expected in case.data_sets:
            x, *rest = given
            swap = op.name in CHANNELS_FIRST
            arrays = [np.moveaxis(x, 1, -1) if swap else x, *rest]
            (found,) = op.compute(arrays, attrs)
            assert infer(op, arrays, attrs) == [(DType.of(found), found.shape)]
            found = np.moveaxis(found, -1, 1) if swap else found
            np.testing.assert_allclose(found, expected[0], rtol=2e-5, atol=2e-6, err_msg=case.name)


MOVABLE: tuple[tuple[str, dict[str, Any], list[tuple[int, ...]]], ...] = (
    ("Softmax", {"axis": 1}, []),
    ("LogSoftmax", {"axis": -1}, []),
    ("Hardmax", {"axis": 0}, []),
    ("LpNorm", {"axis": -2, "p": 1}, []),
    ("MeanVarianceNorm", {"axes": (0, -1)}, []),
    ("LayerNorm", {"axis": 2}, [(4, 5)]),
    ("BatchNorm", {}, [(5,)] * 4),
    ("InstanceNorm", {}, [(5,)] * 2),
    ("GroupNorm", {"groups": 5}, [(5,)] * 2),
    ("LRN", {"size": 3}, []),
)


@pytest.mark.parametrize(("name", "given", "vectors"), MOVABLE, ids=[m[0] for m in MOVABLE])
def test_move_rules(name: str, given: dict[str, Any], vectors: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    op = core_ops()[name]
    attrs = op.complete(given)
    rest = [rng.uniform(0.5, 2, v).astype(np.float32) for v in vectors]
    moved = 0
    for perm in permutations(range(4)):
        shape = tuple((2, 3, 4, 5)[perm.index(i)] for i in range(4))
        inner = rng.standard_normal(shape).astype(np.float32)
        assert op.move is not None
        rule = op.move(attrs, perm)
        if rule is None:
            continue
        moved += 1
        (expected,) = op.compute([np.transpose(inner, perm), *rest], attrs)
        (found,) = op.compute([inner, *rest], op.complete(rule[0]))
        np.testing.assert_allclose(np.transpose(found, rule[1]), expected, rtol=1e-6, atol=1e-6)
    assert moved >= (24 if not vectors and name != "LRN" else 2)


def test_softmax_of_huge_values_stays_finite() -> None:
    x = np.array([[1e30, -1e30, 3e38]], np.float32)
    assert core_ops()["Softmax"].compute([x], SoftmaxAttributes(-1))[0].tolist() == [[0, 0, 1]]


def test_lp_norm_of_zeros_is_zero() -> None:
    x = np.zeros((2, 3), np.float32)
    assert core_ops()["LpNorm"].compute([x], LpNormAttributes(-1, p=2))[0].tolist() == x.tolist()


def test_hardmax_takes_the_first_of_equals() -> None:
    x = np.array([[1, 7, 7]], np.float32)
    assert core_ops()["Hardmax"].compute([x], SoftmaxAttributes(1))[0].tolist() == [[0, 1, 0]]


def test_layer_norm_scale_broadcasts() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    op = core_ops()["LayerNorm"]
    full, one = (
        op.compute([x, np.full(s, 2, np.float32)], op.complete({"axis": 1}))[0] for s in ((3, 4), (3, 1))
    )
    np.testing.assert_array_equal(full, one)


ZEROS: Callable[..., Any] = np.zeros
WRONG: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("Softmax", [ZEROS((2, 3), np.float32)], {"axis": 2}, "axis 2"),
    ("Softmax", [ZEROS((2, 3), np.int32)], {}, "i32"),
    ("LpNorm", [ZEROS((2, 3), np.float32)], {"p": 3}, "p is 3"),
    ("MeanVarianceNorm", [ZEROS((2, 3), np.float32)], {"axes": (0, -2)}, "each once"),
    ("MeanVarianceNorm", [ZEROS((2, 3), np.float32)], {"axes": ()}, "at least one"),
    ("MeanVarianceNorm", [ZEROS((2, 3), np.float32)], {"axes": 1}, "tuple"),
    ("LayerNorm", [ZEROS((2, 3), np.float32), ZEROS(2, np.float32)], {}, r"normalized axes are \[3\]"),
    ("LayerNorm", [ZEROS((2, 1), np.float32), ZEROS(2, np.float32)], {}, r"normalized axes are \[1\]"),
    ("LayerNorm", [ZEROS((2, 3), np.float32), ZEROS(3, np.float64)], {}, "must be the same"),
    ("LayerNorm", [ZEROS((2, 3), np.float32), ZEROS(3, np.float32)], {"epsilon": -1.0}, "negative"),
    (
        "BatchNorm",
        [ZEROS((2, 3), np.float32), *[ZEROS(3, np.float32)] * 3, ZEROS(2, np.float32)],
        {},
        "3 channels",
    ),
    ("BatchNorm", [ZEROS((2, 3), np.int32), *[ZEROS(3, np.int32)] * 4], {}, "must be of a float type"),
    ("BatchNorm", [ZEROS(3, np.float32), *[ZEROS(3, np.float32)] * 4], {}, "rank"),
    ("InstanceNorm", [ZEROS((2, 3), np.float32), *[ZEROS(3, np.float32)] * 2], {}, "rank"),
    ("GroupNorm", [ZEROS((2, 4, 6), np.float32), *[ZEROS(6, np.float32)] * 2], {"groups": 4}, "4 groups"),
    ("GroupNorm", [ZEROS((2, 4, 6), np.float32), *[ZEROS(6, np.float32)] * 2], {"groups": 0}, "positive"),
    ("LRN", [ZEROS((2, 4, 6), np.float32)], {"size": 0}, "positive"),
)


@pytest.mark.parametrize(("name", "arrays", "given", "text"), WRONG, ids=[f"{w[0]}: {w[3]}" for w in WRONG])
def test_inference_refuses(name: str, arrays: list[Any], given: dict[str, Any], text: str) -> None:
    op = core_ops()[name]
    with pytest.raises(OpError, match=text):
        infer(op, arrays, op.complete(given))


def test_the_axis_of_a_dft_moves_and_that_of_real_and_imaginary_part_stays_last() -> None:
    op = core_ops()["DFT"]
    assert op.move is not None
    attrs = op.complete({"length": 4, "axis": 1})
    assert op.move(attrs, (1, 0, 2)) == (op.complete({"length": 4, "axis": 0}), (1, 0, 2))
    assert op.move(attrs, (0, 2, 1)) is None


def test_a_bias_does_not_give_a_product_of_vectors_an_axis() -> None:
    op = core_ops()["MatMul"]
    two, three, bias = (np.full(shape, 2, np.float32) for shape in ((3,), (3,), (1,)))
    (product,) = op.compute([two, three, bias], op.complete({}))
    assert (product.shape, product.item()) == ((), 14)


def test_a_norm_of_groups_without_an_image_has_none() -> None:
    op = core_ops()["GroupNorm"]
    vectors = [np.ones(4, np.float32)] * 2
    (result,) = op.compute([np.ones((0, 3, 4), np.float32), *vectors], op.complete({"groups": 2}))
    assert result.shape == (0, 3, 4)


def test_a_local_norm_of_no_channels_has_none() -> None:
    op = core_ops()["LRN"]
    (result,) = op.compute([np.ones((2, 3, 0), np.float32)], op.complete({"size": 3}))
    assert result.shape == (2, 3, 0)
