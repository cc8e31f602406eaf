"""fuse-quantize on graphs as exporters write them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_transform_standard.quantize.fuse_quantize import fuse_quantize

X = Storage(DType.I8, Quant.of(0.05, 3))
Y = Storage(DType.I8, Quant.of(0.11, -9))
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def through_floats(*, reads_twice: bool = False) -> Graph:
    """Quantize, Dequantize, Conv with dequantized weights, Quantize, Dequantize."""
    rng = np.random.default_rng(0)
    new = Builder("qdq")
    x = new.add("Quantize", [new.input("x", DType.F32, (1, 5, 5, 3))], outputs=[new.reserve_output("q", X)])[
        0
    ]
    w = new.weight(
        "w",
        rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        Quant((0.01, 0.02, 0.03, 0.04), (0,) * 4, 0),
    )
    conv = new.one("Conv", [new.one("Dequantize", [x]), new.one("Dequantize", [w])], WINDOW)
    y = new.add("Quantize", [conv], outputs=[new.reserve_output("r", Y)])[0]
    outputs = [new.one("Dequantize", [y]), *([conv] if reads_twice else [])]
    return new.finish(outputs)


def same_numbers(before: Graph, after: Graph) -> None:
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 5, 5, 3)).astype(np.float32)}
    expected, actual = execute(before, inputs), execute(after, inputs)
    for name in before.outputs:
        np.testing.assert_allclose(actual[name], expected[name], atol=1e-5, err_msg=name)


def test_an_op_between_them_reads_and_stores_integers() -> None:
    before = through_floats()
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes] == ["Quantize", "Conv", "Dequantize"]
    conv = after.nodes[1]
    assert [t.quant is not None for t in (*after.inputs_of(conv), *after.outputs_of(conv)) if t] == [
        True,
        True,
        True,
    ]
    same_numbers(before, after)


@pytest.mark.parametrize("is_constant", [True, False])
def test_an_operand_of_floats_beside_integers_must_be_a_constant(is_constant: bool) -> None:
    new = Builder("sum")
    x = new.add("Quantize", [new.input("x", DType.F32, (1, 5, 5, 3))], outputs=[new.reserve_output("q", X)])[
        0
    ]
    other = new.weight("c", np.float32([1, 2, 3])) if is_constant else new.input("f", DType.F32, (3,))
    total = new.one("Add", [new.one("Dequantize", [x]), other])
    y = new.add("Quantize", [total], outputs=[new.reserve_output("r", Y)])[0]
    ops = [n.op.name for n in fuse_quantize(new.finish([new.one("Dequantize", [y])])).nodes]
    expected = ["Add", "Dequantize"] if is_constant else ["Dequantize", "Add", "Quantize", "Dequantize"]
    assert ops == ["Quantize", *expected]


def test_a_result_that_is_read_as_floats_too_stays_so() -> None:
    before = through_floats(reads_twice=True)
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes if n.op.name == "Conv"] == ["Conv"]
    same_numbers(before, after)


def test_constants_that_nothing_reads_as_integers_become_floats() -> None:
    new = Builder("weights")
    w = new.weight("w", np.arange(-6, 6, dtype=np.int8).reshape(3, 4), Quant((0.5, 1.0, 2.0), (0, 0, 0), 0))
    y = new.one("Add", [new.input("x", DType.F32, (3, 4)), new.one("Dequantize", [w])])
    before = new.finish([y])
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes] == ["Add"]
    inputs = {"x": np.zeros((3, 4), np.float32)}
    np.testing.assert_array_equal(
        execute(after, inputs)[after.outputs[0]], execute(before, inputs)[before.outputs[0]]
    )


def build_moves(*, other: bool = False, padded: bool = False) -> Graph:
    """Stored numbers dequantized, moved twice, and convolved with dequantized weights; or stored again."""
    new = Builder("moved")
    x = new.add("Quantize", [new.input("x", DType.F32, (1, 5, 5, 3))], outputs=[new.reserve_output("q", X)])[
        0
    ]
    y = new.one("MaxPool", [new.one("Dequantize", [x])], {**WINDOW, "kernel": (3, 3)})
    if padded:
        y = new.one("Pad", [y], {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0)})
    both = new.one("Concat", [y, y], {"axis": 3})
    if other:
        return new.finish(new.add("Quantize", [both], outputs=[new.reserve_output("r", Y)]))
    w = new.weight("w", np.arange(-54, 54).astype(np.int8).reshape(2, 3, 3, 6), Quant.of(0.01))
    return new.finish([new.one("Conv", [both, new.one("Dequantize", [w])], WINDOW)])


def test_what_is_only_moved_stays_stored() -> None:
    after = fuse_quantize(build_moves())
    assert [n.op.name for n in after.nodes] == ["Quantize", "MaxPool", "Concat", "Conv"]
    assert all(t.quant for t in after.inputs_of(after.nodes[-1]) if t)
    same_numbers(build_moves(), after)


def test_what_puts_other_numbers_beside_them_reads_floats() -> None:
    after = fuse_quantize(build_moves(padded=True))
    assert [n.op.name for n in after.nodes][:4] == ["Quantize", "MaxPool", "Dequantize", "Pad"]
    same_numbers(build_moves(padded=True), after)


def test_what_is_stored_again_is_rounded_once_from_integers() -> None:
    after = fuse_quantize(build_moves(other=True))
    assert [n.op.name for n in after.nodes] == ["Quantize", "MaxPool", "Concat", "Quantize"]
    same_numbers(build_moves(other=True), after)


def test_storing_as_before_is_nothing() -> None:
    new = Builder("again")
    x = new.add("Quantize", [new.input("x", DType.F32, (4, 3))], outputs=[new.reserve_output("q", X)])[0]
    turned = new.one("Transpose", [new.one("Dequantize", [x])], {"perm": (1, 0)})
    before = new.finish(new.add("Quantize", [turned], outputs=[new.reserve_output("r", X)]))
    assert [n.op.name for n in fuse_quantize(before).nodes] == ["Quantize", "Transpose"]


def stored_behind(*moves: tuple[str, Mapping[str, Attribute]], source: str, read: int = -1) -> Graph:
    """A source of real numbers, moves behind it, and a Quantize; result `read` is an output as well."""
    new = Builder("behind")
    x = new.input("x", DType.F32, (1, 5, 5, 3))
    results = [x]
    if source != "x":
        q = new.add("Quantize", [x], outputs=[new.reserve_output("q", X)])[0]
        results = [new.one(source, [new.one("Dequantize", [q])])]
    for op, attrs in moves:
        results.append(new.one(op, [results[-1]], attrs))
    y = new.add("Quantize", [results[-1]], outputs=[new.reserve_output("r", Y)])
    return new.finish([*y, *([results[read]] if read >= 0 else [])])


TURN = ("Transpose", {"perm": (0, 3, 1, 2)})
FLAT = ("Reshape", {"shape": (1, 75)})
FRAME = ("Pad", {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0)})


@pytest.mark.parametrize(
    ("graph", "ops"),
    [
        # Rounded where it is made, then moved as integers.
        (stored_behind(TURN, source="Sigmoid"), ["Quantize", "Sigmoid", "Transpose"]),
        (stored_behind(TURN, FLAT, source="Sigmoid"), ["Quantize", "Sigmoid", "Transpose", "Reshape"]),
        (stored_behind(source="Sigmoid"), ["Quantize", "Sigmoid"]),
        # Of real numbers of floats: the Quantize goes before what moves them.
        (stored_behind(TURN, source="x"), ["Quantize", "Transpose"]),
        (stored_behind(TURN, FLAT, source="x"), ["Quantize", "Transpose", "Reshape"]),
        (stored_behind(source="x"), ["Quantize"]),
        # A Pad puts numbers beside them, which the Quantize must see.
        (stored_behind(FRAME, source="x"), ["Pad", "Quantize"]),
        (stored_behind(FRAME, TURN, source="x"), ["Pad", "Quantize", "Transpose"]),
        # What is read as floats too is not stored there.
        (
            stored_behind(TURN, source="Sigmoid", read=0),
            ["Quantize", "Dequantize", "Sigmoid", "Quantize", "Transpose"],
        ),
        (
            stored_behind(TURN, FLAT, source="Sigmoid", read=1),
            ["Quantize", "Dequantize", "Sigmoid", "Transpose", "Quantize", "Reshape"],
        ),
        (
            stored_behind(TURN, source="Sigmoid", read=1),
            ["Quantize", "Dequantize", "Sigmoid", "Transpose", "Quantize"],
        ),
    ],
    ids=str,
)
def test_numbers_are_stored_before_they_are_moved(graph: Graph, ops: list[str]) -> None:
    after = fuse_quantize(graph)
    results = [node.op.name for node in after.nodes]
    assert sorted(results) == sorted(ops)
    assert results[:2] == ops[:2]
    same_numbers(graph, after)


def test_a_move_with_constants_keeps_them_behind_the_quantize() -> None:
    new = Builder("picked")
    real = new.one("Relu", [new.input("x", DType.F32, (1, 5, 5, 3))])
    picked = new.one("Gather", [real, new.weight("indices", np.array([4, 0], np.int32))], {"axis": 1})
    before = new.finish(new.add("Quantize", [picked], outputs=[new.reserve_output("r", Y)]))
    after = fuse_quantize(before)
    assert [node.op.name for node in after.nodes] == ["Relu", "Quantize", "Gather"]
    same_numbers(before, after)


def test_a_scale_along_an_axis_does_not_move() -> None:
    new = Builder("axis")
    x = new.input("x", DType.I8, (3, 4), Quant((0.1, 0.2, 0.3), (0, 0, 0), 0))
    graph = new.finish([new.one("Transpose", [new.one("Dequantize", [x])], {"perm": (1, 0)})])
    assert [node.op.name for node in fuse_quantize(graph).nodes] == ["Dequantize", "Transpose"]


def test_the_axis_of_the_scales_of_transposed_filters_moves_with_them() -> None:
    # So ONNX Runtime writes convolutions quantized by filter: filters first, which a frontend transposes.
    rng = np.random.default_rng(0)
    new = Builder("filters")
    x = new.add("Quantize", [new.input("x", DType.F32, (1, 5, 5, 3))], outputs=[new.reserve_output("q", X)])[
        0
    ]
    scales = Quant((0.011, 0.023, 0.031, 0.043), (0,) * 4, 1)
    w = new.weight("w", rng.integers(-127, 128, (3, 4, 3, 3)).astype(np.int8), scales)
    filters = new.one("Transpose", [new.one("Dequantize", [w])], {"perm": (1, 2, 3, 0)})
    conv = new.one("Conv", [new.one("Dequantize", [x]), filters], WINDOW)
    y = new.add("Quantize", [conv], outputs=[new.reserve_output("r", Y)])[0]
    before = new.finish([new.one("Dequantize", [y])])
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes] == ["Quantize", "Conv", "Dequantize"]
    (node,) = (n for n in after.nodes if n.op.name == "Conv")
    stored = after.tensors[node.inputs[1]]
    assert stored.quant is not None
    assert (stored.dtype, stored.shape, stored.quant.axis) == (DType.I8, (4, 3, 3, 3), 0)
    same_numbers(before, after)


@pytest.mark.parametrize(("other", "moved"), [(X, True), (Y, False), (None, False)])
def test_operands_move_as_integers_where_all_are_stored_alike(other: Storage | None, moved: bool) -> None:
    new = Builder("alike")
    x = new.one("Dequantize", [new.input("x", DType.I8, (3, 4), X.quant)])
    second = new.input("y", DType.I8 if other else DType.F32, (3, 4), other and other.quant)
    y = new.one("Dequantize", [second]) if other else second
    graph = new.finish([new.one("Concat", [x, y], {"axis": 0})])
    ops = [node.op.name for node in fuse_quantize(graph).nodes]
    assert (ops == ["Concat", "Dequantize"]) == moved
    assert ops[-1] == ("Dequantize" if moved else "Concat")
