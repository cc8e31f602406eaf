"""Ops that move elements: facts about their references, what they refuse, and how they follow a change of layout."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute, values_of
from mace_core.ir import Array, DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.gather import positions
from mace_core.ops.op import OpError

OPS = core_ops()


def run(op: str, inputs: Sequence[Array], **attrs: Attribute) -> tuple[Array, ...]:
    """The reference's outputs, which must be what inference announces."""
    complete = OPS[op].complete(attrs)
    specs = OPS[op].infer([Tensor(f"t{i}", DType.of(a), a.shape) for i, a in enumerate(inputs)], complete)
    outputs = OPS[op].compute(inputs, complete)
    assert [(DType.of(o), o.shape) for o in outputs] == [(d, tuple(s)) for d, s in specs]
    return outputs


def one(op: str, inputs: Sequence[Array], **attrs: Attribute) -> list[Any]:
    return run(op, inputs, **attrs)[0].tolist()  # type: ignore[no-any-return]


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def test_slice_steps_either_way() -> None:
    x = floats(4, 5)
    assert one("Slice", [x], starts=(3, 0), sizes=(2, 2), steps=(-2, 3)) == x[3::-2, 0:5:3].tolist()
    assert one("Slice", [x], starts=(9, 9), sizes=(0, 0), steps=(1, 1)) == []


def test_concat_and_split_undo_each_other() -> None:
    x = floats(2, 7, 3)
    parts = run("Split", [x], axis=-2, sizes=(3, 0, 4))
    assert [p.shape for p in parts] == [(2, 3, 3), (2, 0, 3), (2, 4, 3)]
    assert one("Concat", list(parts), axis=1) == x.tolist()


def test_pad_modes() -> None:
    x = floats(3)
    assert one("Pad", [x], before=(2,), after=(1,), value=9.0) == [9, 9, 0, 1, 2, 9]
    assert one("Pad", [x], before=(2,), after=(1,), mode="edge") == [0, 0, 0, 1, 2, 2]
    assert one("Pad", [x], before=(2,), after=(1,), mode="reflect") == [2, 1, 0, 1, 2, 1]
    assert one("Pad", [x], before=(2,), after=(1,), mode="wrap") == [1, 2, 0, 1, 2, 0]


def test_tile_and_expand() -> None:
    assert one("Tile", [floats(2, 1)], repeats=(2, 2)) == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert one("Expand", [floats(2, 1)], shape=(1, 2, 3)) == [[[0, 0, 0], [1, 1, 1]]]


def test_indices_count_from_the_end_and_stay_inside() -> None:
    x, at = floats(4), np.array([-1, 4, -9, 2], np.int64)
    assert one("Gather", [x, at]) == [3, 3, 0, 2]
    assert one("GatherElements", [x, at]) == [3, 3, 0, 2]
    assert one("GatherND", [x, at[:, None]]) == [3, 3, 0, 2]
    assert one("ScatterElements", [x, at, x + 10]) == [12, 1, 13, 11]
    assert one("ScatterND", [x, at[:, None], x + 10], reduction="add") == [12, 1, 15, 24]


def test_gather_along_axes() -> None:
    x, at = floats(2, 3, 4), np.array([[2, 0]], np.int32)
    assert one("Gather", [x, at], axis=1) == np.take(x, at, 1).tolist()
    assert one("GatherElements", [x[0], np.array([[0, 2], [1, 1]])], axis=1) == [[0, 2], [5, 5]]
    assert one("GatherND", [x, np.array([[1], [0]])], batch_dims=1) == [x[0, 1].tolist(), x[1, 0].tolist()]
    (nothing,) = run("GatherND", [floats(2, 3, 0), np.array([[1], [0]])], batch_dims=1)
    assert nothing.shape == (2, 0)
    assert one("GatherND", [floats(2, 2), np.array([[1, 0]])]) == [2]


def test_scatter_reductions_meet_in_order() -> None:
    x, at, u = np.array([2, 5], np.int32), np.array([0, 0, 1]), np.array([3, 1, 4], np.int32)
    results = {
        r: one("ScatterElements", [x, at, u], reduction=r) for r in ("none", "add", "mul", "max", "min")
    }
    assert results == {"none": [1, 4], "add": [6, 9], "mul": [6, 20], "max": [3, 5], "min": [1, 4]}
    assert one("ScatterND", [floats(2, 2), np.array([[1]]), np.array([[7, 8]], np.float32)]) == [
        [0, 1],
        [7, 8],
    ]


def test_depth_to_space_orders_of_channels() -> None:
    x = np.arange(8, dtype=np.int8).reshape(1, 1, 1, 8)
    assert one("DepthToSpace", [x], block=2) == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    assert one("DepthToSpace", [x], block=2, mode="CRD") == [[[[0, 4], [1, 5]], [[2, 6], [3, 7]]]]


@pytest.mark.parametrize("spatial", [(4,), (4, 6), (2, 4, 6)])
def test_space_to_depth_is_the_way_back(spatial: tuple[int, ...]) -> None:
    x = floats(2, *spatial, 3)
    (deep,) = run("SpaceToDepth", [x], block=2)
    assert deep.shape == (2, *(s // 2 for s in spatial), 3 * 2 ** len(spatial))
    assert one("DepthToSpace", [deep], block=2) == x.tolist()


def test_topk_keeps_the_order_of_equals_and_puts_nan_on_top() -> None:
    x = np.array([1, 3, np.nan, 3, 0], np.float32)
    values, indices = run("TopK", [x], k=4)
    assert np.isnan(values[0])
    assert (values[1:].tolist(), indices.tolist()) == ([3, 3, 1], [2, 1, 3, 0])
    values, indices = run("TopK", [x], k=4, largest=False)
    assert (values.tolist(), indices.tolist()) == ([0, 1, 3, 3], [4, 0, 1, 3])


def test_onehot_trilu_reverse_sequence() -> None:
    pair = np.array([5, 6], np.int8)
    assert one("OneHot", [np.array([1, -1, 7, -4]), pair], depth=3) == [
        [5, 6, 5],
        [5, 5, 6],
        [5, 5, 5],
        [5, 5, 5],
    ]
    assert one("OneHot", [np.array([1, 0]), pair], depth=2, axis=0) == [[5, 6], [6, 5]]
    assert one("Trilu", [floats(2, 3)], k=1) == [[0, 1, 2], [0, 0, 5]]
    assert one("Trilu", [floats(2, 3)], upper=False) == [[0, 0, 0], [3, 4, 0]]
    x = floats(3, 2)
    assert one("ReverseSequence", [x, np.array([2, 9])]) == [[2, 5], [0, 3], [4, 1]]
    assert one("ReverseSequence", [x.T, np.array([2, 0])], batch_axis=0, time_axis=1) == [
        [2, 0, 4],
        [1, 3, 5],
    ]


# From the examples of ONNX's Resize; x is 1 2 / 3 4, or 1 to 4 in a row.
ROW = np.arange(1, 5, dtype=np.float32)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"sizes": (8,), "scales": (2.0,), "mode": "linear"}, [1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4]),
        (
            {"sizes": (7,), "scales": (7 / 4,), "mode": "linear", "coordinates": "align_corners"},
            [1, 1.5, 2, 2.5, 3, 3.5, 4],
        ),
        (
            {"sizes": (8,), "scales": (2.0,), "coordinates": "asymmetric", "nearest": "floor"},
            [1, 1, 2, 2, 3, 3, 4, 4],
        ),
        (
            {"sizes": (8,), "scales": (2.0,), "coordinates": "asymmetric", "nearest": "ceil"},
            [1, 2, 2, 3, 3, 4, 4, 4],
        ),
        ({"sizes": (2,), "scales": (0.5,)}, [1, 3]),
        ({"sizes": (2,), "scales": (0.5,), "nearest": "round_prefer_ceil"}, [2, 4]),
        ({"sizes": (1,), "scales": (0.25,), "coordinates": "pytorch_half_pixel"}, [1]),
        (
            {"sizes": (2,), "scales": (0.6,), "mode": "linear", "coordinates": "half_pixel_symmetric"},
            [1.6666667, 3.3333333],
        ),
        ({"sizes": (3,), "scales": (0.8,), "mode": "linear"}, [1.125, 2.375, 3.625]),
    ],
)
def test_resize_facts(attrs: dict[str, Any], expected: list[float]) -> None:
    np.testing.assert_allclose(one("Resize", [ROW], **attrs), expected, rtol=1e-6)


def test_resize_cubic_weights() -> None:
    """Halfway between elements, a = -0.75 gives -3/32, 19/32, 19/32, -3/32.

    Without what is outside they are scaled up.
    """
    attrs = {"sizes": (2,), "scales": (0.5,), "mode": "cubic"}
    inner = np.array([-3, 19, 19, -3]) / 32
    first = inner @ [1, 1, 2, 3]
    np.testing.assert_allclose(one("Resize", [ROW], **attrs), [first, 5 - first], rtol=1e-6)
    inside = inner[1:] @ [1, 2, 3] / inner[1:].sum()
    np.testing.assert_allclose(
        one("Resize", [ROW], **attrs, exclude_outside=True), [inside, 5 - inside], rtol=1e-6
    )


def test_resize_crop_extrapolates() -> None:
    attrs = {"sizes": (3,), "scales": (1.0,), "coordinates": "tf_crop_and_resize", "extrapolation": 9.0}
    assert one("Resize", [ROW], **attrs, mode="linear", roi=(0.5, 1.5)) == [2.5, 4.0, 9.0]
    assert one("Resize", [ROW], **attrs, mode="nearest", roi=(-1.0, 1.0)) == [9.0, 1.0, 4.0]


X = np.zeros((2, 3), np.float32)
AT = np.zeros((1, 1), np.int64)
FAULTS: tuple[tuple[str, list[Array], dict[str, Any], str], ...] = (
    ("Reshape", [X], {"shape": (4,)}, "6 elements of [2, 3] do not fill shape [4]"),
    ("Reshape", [X], {"shape": (-1,)}, "negative"),
    ("Reshape", [X], {"shape": 6}, "expected a tuple of integers"),
    ("Transpose", [X], {"perm": (0, 0)}, "does not reorder"),
    ("Concat", [], {"axis": 0}, "every one must be there"),
    ("Concat", [X, X[:1]], {"axis": 1}, "differ elsewhere than on axis 1"),
    ("Concat", [X, AT], {"axis": 0}, "types f32, i64"),
    ("Concat", [X], {"axis": 2}, "axis 2"),
    ("Split", [X], {"axis": 1, "sizes": (1, 1)}, "add up to 2, but axis 1 has 3"),
    (
        "Slice",
        [X],
        {"starts": (0, 0), "sizes": (2, 4), "steps": (1, 1)},
        "elements 0 to 3 of axis 1, which has 3",
    ),
    ("Slice", [X], {"starts": (0, 0), "sizes": (1, 1), "steps": (0, 1)}, "step of axis 0 is 0"),
    ("Slice", [X], {"starts": (0,), "sizes": (1,), "steps": (1,)}, "one for each axis"),
    ("Pad", [X], {"before": (-1, 0), "after": (0, 0)}, "use Slice to crop"),
    (
        "Pad",
        [X],
        {"before": (0, 0), "after": (0, 0), "mode": "mirror"},
        "one of constant, reflect, edge, wrap",
    ),
    ("Pad", [AT], {"before": (0, 0), "after": (0, 1), "value": 0.5}, "0.5"),
    ("Pad", [X[:0]], {"before": (1, 0), "after": (0, 0), "mode": "edge"}, "axis 0 has no elements"),
    ("Tile", [X], {"repeats": (1, -1)}, "must not be negative"),
    ("Expand", [X], {"shape": (3,)}, "does not expand to"),
    ("Expand", [X], {"shape": (2, 4)}, "do not broadcast"),
    ("Gather", [X, X], {}, "of type f32; they must be integers"),
    ("Gather", [X[:0], AT], {}, "no elements to gather"),
    ("GatherElements", [X, np.zeros((1, 4), np.int64)], {"axis": 0}, "do not fit"),
    ("GatherND", [X, np.zeros((1, 3), np.int64)], {}, "3 coordinates"),
    ("GatherND", [X, np.zeros((3, 1), np.int64)], {"batch_dims": 1}, "batch axes"),
    ("ScatterElements", [X, AT, X], {}, "updates [2, 3]"),
    ("ScatterElements", [X, AT, AT], {}, "data are of type f32, updates of i64"),
    ("ScatterElements", [X > 0, AT, AT > 0], {"reduction": "add"}, "takes no booleans"),
    ("ScatterND", [X, AT, X], {}, "they must be [1, 3]"),
    (
        "DepthToSpace",
        [np.zeros((1, 2, 2, 6), np.float32)],
        {"block": 2},
        "6 channels do not divide into blocks of 4",
    ),
    (
        "SpaceToDepth",
        [np.zeros((1, 2, 3, 1), np.float32)],
        {"block": 2},
        "[2, 3] do not divide into blocks of 2",
    ),
    ("SpaceToDepth", [X], {"block": 2}, "rank must be 3 to 5"),
    ("TopK", [X], {"k": 4}, "axis 1 has 3 elements"),
    ("OneHot", [AT, X], {"depth": 3}, "two, off and on"),
    ("Trilu", [X[0]], {}, "rank must be at least 2"),
    ("ReverseSequence", [X, AT[0]], {}, "for a batch of 3"),
    ("ReverseSequence", [X, AT[0]], {"batch_axis": 0}, "both 0"),
    ("Resize", [X], {"sizes": (2,), "scales": (1.0, 1.0)}, "sizes has 1 values; it must have 2"),
    ("Resize", [X], {"sizes": (2, 3), "scales": (1.0, 0.0)}, "scale 0.0 of axis 1"),
    (
        "Resize",
        [AT],
        {"sizes": (2, 2), "scales": (2.0, 2.0), "mode": "linear"},
        "only mode 'nearest' takes it",
    ),
    (
        "Resize",
        [X],
        {"sizes": (2, 3), "scales": (1.0, 1.0), "coordinates": "tf_crop_and_resize"},
        "roi has 0 values",
    ),
    ("Resize", [X], {"sizes": (2, 3), "scales": (1.0, 1.0), "coordinates": "here"}, "one of half_pixel"),
)


@pytest.mark.parametrize(("op", "inputs", "attrs", "text"), FAULTS)
def test_faults_are_told(op: str, inputs: list[Array], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(OpError) as error:
        run(op, inputs, **attrs)
    assert text in str(error.value)


MOVABLE: tuple[tuple[str, list[Array], dict[str, Any]], ...] = (
    ("Concat", [floats(2, 3, 4), floats(2, 3, 4)], {"axis": 1}),
    ("Split", [floats(2, 5, 3)], {"axis": -2, "sizes": (2, 3)}),
    ("Slice", [floats(4, 5, 3)], {"starts": (3, 0, 1), "sizes": (2, 3, 1), "steps": (-1, 2, 1)}),
    ("Pad", [floats(4, 5, 3)], {"before": (1, 0, 2), "after": (0, 3, 1), "mode": "reflect"}),
    ("Tile", [floats(4, 5, 3)], {"repeats": (2, 1, 3)}),
    ("Expand", [floats(1, 5, 1)], {"shape": (2, 4, 5, 3)}),
    ("GatherElements", [floats(4, 5, 3), np.arange(30).reshape(2, 5, 3) % 4], {"axis": 0}),
    (
        "ScatterElements",
        [floats(4, 5, 3), np.arange(30).reshape(2, 5, 3) % 4, floats(2, 5, 3)],
        {"axis": 0, "reduction": "add"},
    ),
    ("TopK", [floats(4, 5, 3) % 7], {"k": 2, "axis": 1}),
    ("Trilu", [floats(2, 4, 5)], {"k": 1}),
    ("Trilu", [floats(2, 4, 5)], {"k": -2, "upper": False}),
    ("Resize", [floats(2, 4, 3)], {"sizes": (3, 4, 5), "scales": (1.5, 1.0, 5 / 3), "mode": "linear"}),
    (
        "Resize",
        [floats(2, 4, 3)],
        {
            "sizes": (3, 4, 5),
            "scales": (1.5, 1.0, 5 / 3),
            "coordinates": "tf_crop_and_resize",
            "roi": (-0.5, 0.0, 0.1, 1.5, 1.0, 0.9),
            "extrapolation": -1.0,
        },
    ),
)


@pytest.mark.parametrize(("op", "inputs", "attrs"), MOVABLE)
def test_move_keeps_what_is_computed(op: str, inputs: list[Array], attrs: dict[str, Any]) -> None:
    """op(transpose(x', perm)) = transpose(op'(x'), perm') for every perm that the rule accepts."""
    complete, rule = OPS[op].complete(attrs), OPS[op].move
    assert rule is not None
    moved = 0
    for perm in permutations(range(3)):
        answer = rule(complete, perm)
        if answer is None:
            continue
        before = [a.transpose(np.argsort(perm)) for a in inputs]
        actual = run(op, before, **values_of(answer[0]))
        for expected, got in zip(run(op, inputs, **values_of(complete)), actual, strict=True):
            np.testing.assert_allclose(got.transpose(answer[1]), expected, rtol=1e-6)
        moved += 1
    assert moved == (2 if op == "Trilu" else 6)


@pytest.mark.parametrize(
    "op", ["Reshape", "Gather", "GatherND", "ScatterND", "DepthToSpace", "OneHot", "ReverseSequence"]
)
def test_ops_that_keep_their_order(op: str) -> None:
    assert OPS[op].move is None


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_indices_of_every_width_mean_positions(dtype: str) -> None:
    """The largest index of a type lies beyond the axis, never before it: uint64 must not wrap."""
    limits = np.iinfo(dtype)
    indices = np.array([0, 2, limits.max, limits.min], dtype)
    assert positions(indices, 3).tolist() == [0, 2, 2, 0]
