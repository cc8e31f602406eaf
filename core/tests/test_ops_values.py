"""References at their edges: equal scores and thresholds, borders of regions, damaged trees, integers that wrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array
from mace_core.ops import core_ops
from mace_core.ops.tree_ensemble import LEAF, MISSING, TESTS, fault

OPS = core_ops()


def run(op: str, inputs: Sequence[Array | None], **attrs: Attribute) -> tuple[Array, ...]:
    return OPS[op].compute(inputs, OPS[op].complete(attrs))


def f32(values: object) -> Array:
    return np.array(values, np.float32)


NAN, INF = math.nan, math.inf
POINTS: tuple[tuple[str, dict[str, Any], list[float], list[float]], ...] = (
    ("Elu", {"alpha": 2.0}, [-1, 0, 1], [2 * math.expm1(-1), 0, 1]),
    ("Celu", {"alpha": 2.0}, [-1, 0, 1], [2 * math.expm1(-0.5), 0, 1]),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, [-1, 0, 1], [6 * math.expm1(-1), 0, 3]),
    ("Selu", {}, [-1, 1], [-1.1113307, 1.0507010]),
    ("LeakyRelu", {}, [-1, 0, 1], [-0.01, 0, 1]),
    ("ThresholdedRelu", {}, [0.5, 1, 1.5], [0, 0, 1.5]),
    ("HardSigmoid", {}, [-4, -2.5, 0, 1, 2.5, 4], [0, 0, 0.5, 0.7, 1, 1]),
    ("Swish", {"alpha": 2.0}, [-1, 0, 1], [-1 / (1 + math.exp(2)), 0, 1 / (1 + math.exp(-2))]),
    ("Shrink", {"bias": 0.25}, [-1, -0.5, 0, 0.5, 1], [-0.75, 0, 0, 0, 0.75]),
    ("Gelu", {}, [-1, 0, 1], [-0.15865525, 0, 0.8413447]),
    ("Gelu", {"approximate": "tanh"}, [-1, 0, 1], [-0.15880801, 0, 0.841192]),
    ("Clip", {"min": 1.0, "max": -1.0}, [-2, 0, 2], [-1, -1, -1]),
    ("Clip", {"min": -1.0}, [-2, 0, 2], [-1, 0, 2]),
    ("IsInf", {"negative": False}, [INF, -INF, NAN, 1], [1, 0, 0, 0]),
    ("IsInf", {"positive": False}, [INF, -INF, NAN, 1], [0, 1, 0, 0]),
    ("HardSwish", {}, [-3, -1, 0, 1, 3, 4], [0, -1 / 3, 0, 2 / 3, 3, 4]),
    ("Mish", {}, [-1, 0, 1], [-0.30340146, 0, 0.8650984]),
    ("Softsign", {}, [-1, 0, 3], [-0.5, 0, 0.75]),
    ("Softplus", {}, [-1, 0, 200], [0.31326169, math.log(2), 200]),
    ("Rsqrt", {}, [0.25, 4], [2, 0.5]),
    ("Reciprocal", {}, [0.25, -4], [4, -0.25]),
    ("Erf", {}, [-1, 0, 1], [-0.84270079, 0, 0.84270079]),
    ("Round", {}, [-1.5, -0.5, 0.5, 1.5, 2.5], [-2, 0, 0, 2, 2]),
    ("Sigmoid", {}, [-1, 0, 1], [0.26894142, 0.5, 0.73105858]),
    ("CumSum", {"axis": 0, "exclusive": True}, [1, 2, 3], [0, 1, 3]),
    ("CumSum", {"axis": 0, "exclusive": True, "reverse": True}, [1, 2, 3], [5, 3, 0]),
    ("CumProd", {"axis": 0, "exclusive": True}, [2, 3, 4], [1, 2, 6]),
    ("CumProd", {"axis": 0, "reverse": True}, [2, 3, 4], [24, 12, 4]),
    ("ArgMax", {"axis": 0, "keepdims": False}, [1, 3, 3, 2], [1]),
    ("ArgMax", {"axis": 0, "last": True}, [1, 3, 3, 2], [2]),
    ("ArgMin", {"axis": 0, "last": True}, [1, 3, 1, 2], [2]),
    ("Softmax", {}, [0, 0], [0.5, 0.5]),
    ("LogSoftmax", {}, [0, 1000], [-1000, 0]),
    ("Hardmax", {}, [1, 3, 3], [0, 1, 0]),
    ("LpNorm", {"p": 1}, [1, -3], [0.25, -0.75]),
    ("LpNorm", {}, [3, -4], [0.6, -0.8]),
    ("LpNorm", {}, [0, 0], [0, 0]),
    ("LRN", {"size": 2, "alpha": 2.0, "beta": 1.0, "bias": 3.0}, [1, 2, 4], [1 / 8, 2 / 23, 4 / 19]),
    ("ReduceMean", {"axes": (0,)}, [1, 2, 6], [3]),
    ("ReduceL1", {"axes": (0,)}, [1, -2], [3]),
    ("ReduceL2", {"axes": (0,)}, [3, -4], [5]),
    ("ReduceLogSum", {"axes": (0,)}, [1, 3], [math.log(4)]),
    ("ReduceLogSumExp", {"axes": (0,)}, [1000, 1000], [1000 + math.log(2)]),
    ("ReduceSumSquare", {"axes": (0,)}, [1, -2, 3], [14]),
    ("ReduceMax", {"axes": (0,)}, [], [-INF]),
    ("ReduceMin", {"axes": (0,)}, [], [INF]),
)  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "x", "expected"), POINTS)
def test_functions_at_points(op: str, attrs: dict[str, Any], x: list[float], expected: list[float]) -> None:
    rows = f32(x)[None] if op == "LRN" else f32(x)
    np.testing.assert_allclose(run(op, [rows], **attrs)[0].ravel(), expected, rtol=2e-6, atol=1e-9)


def i8(*values: int) -> Array:
    return np.array(values, np.int8)


def u8(*values: int) -> Array:
    return np.array(values, np.uint8)


INTEGERS: tuple[tuple[str, dict[str, Any], list[Array], list[float]], ...] = (
    ("Div", {}, [i8(7, -7, 7, -7, 6, -6, 5, -128), i8(2, 2, -2, -2, 3, 3, 0, -1)], [3, -3, -3, 3, 2, -2, 0, -128]),
    ("Div", {}, [u8(7, 255, 9), u8(2, 255, 0)], [3, 1, 0]),
    ("Mod", {}, [i8(7, -7, 7, -7, 5, -128), i8(3, 3, -3, -3, 0, -1)], [1, 2, -2, -1, 0, 0]),
    ("Mod", {"fmod": True}, [i8(7, -7, 7, -7, 5, -128), i8(3, 3, -3, -3, 0, -1)], [1, -1, 1, -1, 0, 0]),
    ("Mod", {}, [u8(7, 9, 200), u8(0, 255, 7)], [0, 9, 4]),
    ("Mod", {}, [f32([7, -7]), f32([3, 3])], [1, 2]),
    ("Mod", {"fmod": True}, [f32([7, -7]), f32([3, 3])], [1, -1]),
    ("Pow", {}, [i8(3, -2, 2, 1, -1, -1, 2, 0), i8(4, 3, 7, -5, -3, -4, -1, 0)], [81, -8, -128, 1, -1, 1, 0, 1]),
    ("Pow", {}, [u8(3, 1, 255), i8(5, -1, -1)], [243, 1, 0]),
    ("Pow", {}, [i8(4, 100), f32([0.5, 2])], [2, 127]),
    ("Pow", {}, [f32([2, 4]), i8(-1, 2)], [0.5, 16]),
    ("BitShift", {}, [u8(1, 129), u8(1, 1)], [2, 2]),
    ("BitShift", {"left": False}, [u8(3, 128), u8(1, 7)], [1, 1]),
    ("PRelu", {}, [i8(-3, 0, 3), i8(2, 2, 2)], [-6, 0, 3]),
    ("ReduceMean", {"axes": (0,)}, [i8(1, 1, 0)], [0]),
    ("ReduceMean", {"axes": (0,)}, [i8(-1, -2, -2)], [-1]),
    ("ReduceMean", {"axes": (0,)}, [i8(7, 8, 8)], [7]),
    ("ReduceMean", {"axes": (0,)}, [i8()], [0]),
    ("ReduceMax", {"axes": (0,)}, [i8()], [-128]),
    ("ReduceMin", {"axes": (0,)}, [u8()], [255]),
    ("ReduceL2", {"axes": (0,)}, [i8(100, 100)], [127]),
    ("Clip", {"min": -2, "max": 3}, [i8(-5, 0, 5)], [-2, 0, 3]),
    ("Clip", {"min": -1e9, "max": 1e9}, [i8(-128, 127)], [-128, 127]),
    ("Clip", {"min": 1e9, "max": 2e9}, [i8(-128, 127)], [127, 127]),
    ("Clip", {"min": -0.5, "max": 2.5}, [i8(-5, 5)], [0, 2]),
    ("MatMul", {"low": 0.5, "high": 6.5}, [i8(1, 0, 3, 4).reshape(4, 1), i8(2).reshape(1, 1)], [2, 1, 6, 6]),
    ("MatMul", {}, [f32([[1, 2]]), f32([3, 4]), f32([5])], [16]),
    ("Cast", {"to": "bool"}, [f32([0, -0.0, 0.5, NAN])], [0, 0, 1, 1]),
    ("Cast", {"to": "i8"}, [f32([-128, -128.5, -129, 127, 127.5, 128, 1.9, -1.9, NAN, INF, -INF])],
     [-128, -128, -128, 127, 127, 127, 1, -1, 0, 127, -128]),
    ("Cast", {"to": "u8"}, [np.array([-1, 256, 300], np.int32)], [255, 0, 44]),
    ("Cast", {"to": "i64"}, [np.array([2.0**63, -(2.0**63)])], [2**63 - 1, -(2**63)]),
    ("MapValues", {}, [i8(1, 2, 3, 9), i8(1, 3), f32([10, 30]), f32(-1)], [10, -1, 30, -1]),
    ("MapValues", {}, [f32([1, NAN, 5]), f32([1, NAN]), f32([10, 20]), f32([-1])], [10, 20, -1]),
    ("MapValues", {}, [i8(1, 2), i8(), f32([]), f32([7])], [7, 7]),
    ("MatMulInteger", {}, [i8(1, 2).reshape(1, 2), u8(3, 4).reshape(2, 1), i8(1), u8(2)], [2]),
    ("SquaredDistance", {}, [f32([[1, 2]]), f32([[1, 2], [4, 6]])], [0, 25]),
    ("ScatterND", {}, [f32([1, 2]), np.array([[1]]), f32([9])], [1, 9]),
    ("ScatterElements", {}, [f32([1, 2]), np.array([1]), f32([9])], [1, 9]),
    ("GatherND", {}, [f32([1, 2]), np.zeros((1, 0), np.int64)], [1, 2]),
    ("ScatterND", {}, [f32([1, 2]), np.zeros((2, 0), np.int64), f32([[3, 4], [5, 6]])], [5, 6]),
    ("ScatterND", {"reduction": "add"}, [f32([1, 2]), np.zeros((2, 0), np.int64), f32([[3, 4], [5, 6]])], [9, 12]),
)  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "inputs", "expected"), INTEGERS)
def test_integers_and_their_ends(
    op: str, attrs: dict[str, Any], inputs: list[Array], expected: list[float]
) -> None:
    assert run(op, inputs, **attrs)[0].ravel().tolist() == expected


LINKS = [[1, 1, 2], [LEAF, 0, 1], [0, 3, 4], [LEAF, 1, 3], [LEAF, 3, 3]]
"""Two inner nodes and three leaves of 3 weights; of 2 features and 2 outputs."""


@pytest.mark.parametrize(
    ("place", "number", "said"),
    [
        (None, 0, None),
        ((0, 0), 2, "a node reads a feature that is none of 2"), ((0, 0), -2, "a node reads a feature that is none of 2"),
        ((0, 1), 0, "a child does not lie after its parent"), ((2, 2), 2, "a child does not lie after its parent"),
        ((2, 2), 5, "a child does not lie after its parent"), ((2, 1), 4, None),
        ((1, 1), -1, "a leaf has weights that do not exist"), ((3, 2), 4, "a leaf has weights that do not exist"),
        ((3, 1), 4, "a leaf has weights that do not exist"), ((1, 1), 1, None),
        ("root", 4, None), ("root", 5, "a root is no node"), ("root", -1, "a root is no node"),
        ("target", 2, "a weight belongs to none of 2 outputs"), ("target", -1, "a weight belongs to none of 2 outputs"),
        ("mode", 5, None), ("mode", 6, "a node has an unknown mode"), ("mode", -1, "a node has an unknown mode"),
        ("mode", MISSING + 5, None), ("mode", MISSING + 6, "a node has an unknown mode"),
        ("mode", 2 * MISSING, "a node has an unknown mode"),
    ],
)  # fmt: skip
def test_damaged_trees(place: Any, number: int, said: str | None) -> None:
    links, arrays = (
        np.array(LINKS),
        {"mode": np.zeros(5, int), "root": np.zeros(1, int), "target": np.array([0, 1, 0])},
    )
    if isinstance(place, str):
        arrays[place][-1] = number
    elif place:
        links[place] = number
    assert fault(links, arrays["mode"], arrays["root"], arrays["target"], (2, 2)) == said


@pytest.mark.parametrize("code", range(len(TESTS)))
def test_every_test_of_a_tree_and_missing_values(code: int) -> None:
    """One node that compares x with 1: leaf 1 adds 10 where the test holds, leaf 2 adds 20."""
    links = np.array([[0, 1, 2], [LEAF, 0, 1], [LEAF, 1, 2]])
    x = f32([[0], [1], [2], [NAN]])
    for missing in (0, MISSING):
        modes = np.array([code + missing, 0, 0])
        arrays = [x, f32([1, 0, 0]), links, modes, np.array([0]), np.array([0, 0]), f32([10, 20]), f32([5])]
        result = run("TreeEnsemble", arrays, outputs=1)[0].ravel().tolist()
        holds = [eval(f"v {TESTS[code]} 1", {"v": v}) for v in (0, 1, 2, NAN)]
        holds[3] = holds[3] or bool(missing)
        assert result == [15 if h else 25 for h in holds], missing


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("sum", [[3, 7]]), ("average", [[1.5, 3.5]]), ("min", [[1, 7]]), ("max", [[2, 7]])],
)
def test_leaves_are_combined(aggregate: str, expected: list[list[float]]) -> None:
    """Two trees of one leaf each: the first adds 1 to output 0 and 7 to output 1, the second 2 to output 0."""
    links = np.array([[LEAF, 0, 2], [LEAF, 2, 3]])
    arrays = [
        f32([[0]]),
        f32([0, 0]),
        links,
        np.zeros(2, int),
        np.array([0, 1]),
        np.array([0, 1, 0]),
        f32([1, 7, 2]),
    ]
    assert run("TreeEnsemble", arrays, outputs=2, aggregate=aggregate)[0].tolist() == expected
    three = run("TreeEnsemble", [*arrays, f32([1, 1, 1])], outputs=3, aggregate=aggregate)[0].tolist()
    assert three == [[e + 1 for e in expected[0]] + [1]], (
        "an output that no leaf adds to is 0 before the base"
    )
    arrays[2] = np.array([[5, 0, 2], [LEAF, 2, 3]])
    with pytest.raises(ValueError, match="a node reads a feature that is none of 1"):
        run("TreeEnsemble", arrays, outputs=2)


@pytest.mark.parametrize(
    ("padding", "expected"), [("zeros", [0, 1, 2, 0]), ("border", [1, 1, 2, 3]), ("reflection", [2, 1, 2, 1])]
)
def test_samples_outside_of_a_row(padding: str, expected: list[float]) -> None:
    """Elements 1 2 3 at coordinates 0 1 2: the grid reads -1, 0, 1 and 4."""
    grid = f32([[[-2], [-1], [0], [3]]])
    for mode in ("nearest", "linear"):
        found = run(
            "GridSample", [f32([[[1], [2], [3]]]), grid], mode=mode, padding=padding, align_corners=True
        )[0]
        assert found.ravel().tolist() == expected, mode


def test_reflection_repeats() -> None:
    """A row of three is reflected at its first and last element, or at their outer edges."""
    x, places = f32([[[1], [2], [3]]]), np.arange(-9, 10)
    for corners, cycle in ((True, [1, 2, 3, 2]), (False, [1, 2, 3, 3, 2, 1])):
        grid = f32((places if corners else places + 0.5) * (1 if corners else 2 / 3) - 1)[None, :, None]
        result = run("GridSample", [x, grid], mode="nearest", padding="reflection", align_corners=corners)[
            0
        ].ravel()
        assert result.tolist() == [cycle[i % len(cycle)] for i in places], corners


def test_deformed_windows_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    x, groups = rng.standard_normal((2, 5, 4, 4)).astype(np.float32), 2
    attrs = {
        "strides": (2, 1),
        "pads_before": (1, 0),
        "pads_after": (0, 1),
        "dilations": (1, 2),
        "kernel": (2, 2),
    }
    offset = (3 * rng.standard_normal((2, 3, 3, groups * 8))).astype(np.float32)
    mask = rng.standard_normal((2, 3, 3, groups * 4)).astype(np.float32)
    result = run("DeformIm2Col", [x, offset, mask], groups=groups, **attrs)[0].reshape(2, 3, 3, 4, 4)
    plain = run("DeformIm2Col", [x, offset], groups=groups, **attrs)[0].reshape(2, 3, 3, 4, 4)
    for n, row, column, tap, c in np.ndindex(result.shape):
        group = c // 2
        shift = offset[n, row, column].reshape(groups, 4, 2)[group, tap]
        y = row * 2 + tap // 2 - 1 + float(shift[0])
        z = column + 2 * (tap % 2) + float(shift[1])
        total = 0.0
        for i, j in ((i, j) for i in range(5) for j in range(4)):
            total += max(0.0, 1 - abs(y - i)) * max(0.0, 1 - abs(z - j)) * float(x[n, i, j, c])
        np.testing.assert_allclose(plain[n, row, column, tap, c], total, atol=1e-5)
        weight = mask[n, row, column].reshape(groups, 4)[group, tap]
        np.testing.assert_allclose(result[n, row, column, tap, c], total * weight, atol=1e-5)


def test_overlapping_rows_are_summed_into_an_image() -> None:
    geometry = {"strides": (1,), "pads_before": (1,), "pads_after": (0,), "dilations": (1,), "kernel": (2,)}
    rows = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 4)
    assert run("Col2Im", [rows], size=(3,), **geometry)[0].tolist() == [[[8, 10], [16, 18], [11, 12]]]
    wrapped = run("Col2Im", [np.full((1, 3, 2), 200, np.uint8)], size=(3,), **geometry)[0]
    assert wrapped.ravel().tolist() == [144, 144, 200]


def test_coupled_probabilities() -> None:
    """Pairs that agree with one distribution give it back: the probability of i against j is p[i] / (p[i] + p[j])."""
    p = np.array([0.5, 0.3, 0.15, 0.05])
    pairs = np.array([[p[i] / (p[i] + p[j]) for i in range(4) for j in range(i + 1, 4)]])
    np.testing.assert_allclose(run("PairwiseCoupling", [pairs], classes=4)[0], [p], atol=0.01)
    assert run("PairwiseCoupling", [np.array([[0.75]])], classes=2)[0].round(2).tolist() == [[0.75, 0.25]]
    assert run("PairwiseCoupling", [np.zeros((0, 3), np.float32)], classes=3)[0].shape == (0, 3)
