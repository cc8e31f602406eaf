"""MediaPipe's custom operators against their definitions, and the transposed convolution against LiteRT's as well."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from tflite_cases import Case, const, expected, f32, floats, load
from tflite_write import Value

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu

SAME, VALID = 1, 2


def ints(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def scattered(x: Array, w: Array, b: Array, how: tuple[tuple[int, int], list[int], tuple[int, ...]]) -> Array:
    """The transposed convolution by its definition: every input adds its filters to the output.

    how: strides, padding before, shape.
    """
    (sy, sx), (py, px), shape = how
    wide = np.zeros((1, shape[1] + 40, shape[2] + 40, shape[3]), np.float64)
    for i, j in np.ndindex(*x.shape[1:3]):
        y0, x0 = i * sy - py + 20, j * sx - px + 20
        wide[0, y0 : y0 + w.shape[1], x0 : x0 + w.shape[2]] += np.einsum("c,oabc->abo", x[0, i, j], w)
    return wide[:, 20 : 20 + shape[1], 20 : 20 + shape[2]] + b


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(
    ("stride", "kernel"),
    [((2, 2), (4, 4)), ((2, 2), (3, 3)), ((1, 3), (3, 4)), ((2, 2), (2, 2)), ((1, 1), (3, 3))],
)
def test_the_transposed_convolution_is_that_of_litert_with_a_bias(
    padding: int, stride: tuple[int, int], kernel: tuple[int, int], tmp_path: Path
) -> None:
    x, w, b = f32(1, 4, 5, 3), floats(6, *kernel, 3), floats(6, seed=1)
    case = Case(
        "deconv", "custom Convolution2DTransposeBias", [x, w, b], custom=ints(padding, stride[1], stride[0])
    )
    graph, arrays = load(tmp_path, case.written()), case.arrays()
    (name,) = graph.outputs
    actual = execute(graph, arrays)[name]
    cut = [
        max(0, k - (n - 1) % s - 1) if padding == SAME else 0
        for n, k, s in zip((4, 5), kernel, stride, strict=True)
    ]
    np.testing.assert_allclose(
        actual,
        scattered(arrays["in0"], w, b, (stride, [c // 2 for c in cut], actual.shape)),
        rtol=1e-5,
        atol=1e-5,
    )
    options = ("TransposeConvOptions", {"StrideH": stride[0], "StrideW": stride[1], "Padding": padding - 1})
    same = Case("deconv", "TRANSPOSE_CONV", [const(*actual.shape), w, x, b], options, version=3)
    load(tmp_path, same.written())
    (wanted,) = expected(tmp_path, {"in2": arrays["in0"]}).values()
    assert actual.shape[1:3] == tuple(
        s * (n - 1) + k - c for n, k, s, c in zip((4, 5), kernel, stride, cut, strict=True)
    )
    if padding == VALID or all(c == max(0, k - s) for c, k, s in zip(cut, kernel, stride, strict=True)):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def pooled(x: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: int) -> tuple[Array, Array]:
    """The greatest values and their places, window by window."""
    size = x.shape[1:3]
    out = [
        -(-n // s) if padding == SAME else (n - k) // s + 1
        for n, k, s in zip(size, kernel, stride, strict=True)
    ]
    before = [max(0, (o - 1) * s + k - n) // 2 for o, n, k, s in zip(out, size, kernel, stride, strict=True)]
    values, places = (np.zeros((x.shape[0], *out, x.shape[3]), np.float32) for _ in range(2))
    for n, i, j, c in np.ndindex(*values.shape):
        best = (-np.inf, 0)
        for a, b in np.ndindex(*kernel):
            row, column = i * stride[0] - before[0] + a, j * stride[1] - before[1] + b
            if 0 <= row < size[0] and 0 <= column < size[1] and x[n, row, column, c] > best[0]:
                best = (x[n, row, column, c], a * kernel[1] + b)
        values[n, i, j, c], places[n, i, j, c] = best[0], best[1] + np.float32(0.1)
    return values, places


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), (2, 2)), ((3, 2), (2, 2)), ((3, 3), (1, 2))])
def test_a_pool_gives_the_places_in_its_windows(
    padding: int, kernel: tuple[int, int], stride: tuple[int, int], tmp_path: Path
) -> None:
    options = ints(padding, stride[1], stride[0], kernel[1], kernel[0], 0)
    case = Case(
        "pool",
        "custom MaxPoolingWithArgmax2D",
        [f32(2, 5, 6, 3)],
        outputs=(Value(""), Value("")),
        custom=options,
    )
    graph, arrays = load(tmp_path, case.written()), case.arrays()
    values = execute(graph, arrays)
    for name, wanted in zip(graph.outputs, pooled(arrays["in0"], kernel, stride, padding), strict=True):
        np.testing.assert_allclose(values[name], wanted, rtol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 4)])
def test_unpooling_undoes_a_pool(rows: int, columns: int, tmp_path: Path) -> None:
    options = ints(VALID, columns, rows, columns, rows, 0)
    case = Case("unpool", "custom MaxUnpooling2D", [f32(2, 2, 3, 2), f32(2, 2, 3, 2)], custom=options)
    graph = load(tmp_path, case.written())
    image = np.random.default_rng(0).standard_normal((2, 2 * rows, 3 * columns, 2)).astype(np.float32)
    values, places = pooled(image, (rows, columns), (rows, columns), VALID)
    wanted = np.where(image == values.repeat(rows, 1).repeat(columns, 2), image, 0)
    np.testing.assert_array_equal(execute(graph, {"in0": values, "in1": places})["out0"], wanted)


def test_options_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    case = Case(
        "deconv",
        "custom Convolution2DTransposeBias",
        [f32(1, 4, 5, 3), floats(6, 2, 2, 3), floats(6)],
        custom=b"\x01\x00",
    )
    with pytest.raises(MaceError, match="its options are 2 bytes, and 12 were expected"):
        load(tmp_path, case.written())


def transposed(x: Value, filters: Array, *numbers: int) -> Case:
    return Case("deconv", "custom Convolution2DTransposeBias", [x, filters, floats(6)], custom=ints(*numbers))


def pool(x: Value, *numbers: int) -> Case:
    outputs = (Value(""), Value(""))
    return Case("pool", "custom MaxPoolingWithArgmax2D", [x], outputs=outputs, custom=ints(*numbers))


def unpool(x: Value, places: Value, *numbers: int) -> Case:
    return Case("unpool", "custom MaxUnpooling2D", [x, places], custom=ints(*numbers))


X, W = f32(1, 4, 5, 3), floats(6, 2, 2, 3)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (transposed(f32(4, 5, 3), W, SAME, 2, 2), "it has an image of [4, 5, 3], filters of [6, 2, 2, 3]"),
        (transposed(X, floats(6, 2, 3), SAME, 2, 2), "filters of [6, 2, 3] and strides (2, 2)"),
        (transposed(X, W, SAME, 0, 1), "strides (1, 0)"),
        (transposed(X, W, SAME, 1, 0), "strides (0, 1)"),
        (transposed(X, W, 0, 2, 2), "it has padding 0"),
        (transposed(X, W, 3, 2, 2), "it has padding 3"),
        (pool(X, SAME, 0, 1, 1, 1, 0), "it has a window of (1, 1) by (1, 0)"),
        (pool(X, SAME, 1, 0, 1, 1, 0), "it has a window of (1, 1) by (0, 1)"),
        (pool(X, SAME, 1, 1, 0, 1, 0), "it has a window of (1, 0) by (1, 1)"),
        (pool(X, SAME, 1, 1, 1, 0, 0), "it has a window of (0, 1) by (1, 1)"),
        (pool(f32(4, 5, 3), SAME, 1, 1, 1, 1, 0), "it has an image of shape [4, 5, 3]"),
        (pool(X, 0, 1, 1, 1, 1, 0), "it has padding 0"),
        (pool(X, 3, 1, 1, 1, 1, 0), "it has padding 3"),
        (pool(X, SAME, 1, 1, 1, 1, 5), "fused activation 5 is not supported; cut the graph before it"),
        (pool(X, SAME, 1, 1, 1, 1), "its options are 20 bytes, and 24 were expected"),
        (unpool(X, X, VALID, 2, 2, 2, 3, 0), "windows of (3, 2) at strides of (2, 2)"),
        (
            unpool(X, f32(1, 4, 5, 2), VALID, 2, 2, 2, 2, 0),
            "it has places of shape [1, 4, 5, 2] for [1, 4, 5, 3]",
        ),
    ],
)
def test_what_the_kernels_do_not_define_is_refused(case: Case, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=re.escape(problem)):
        load(tmp_path, case.written())


@pytest.mark.parametrize(
    ("activation", "low", "high"), [(0, -np.inf, np.inf), (1, 0, np.inf), (2, -1, 1), (3, 0, 6)]
)
def test_the_activation_of_a_pool_clamps_its_values(
    activation: int, low: float, high: float, tmp_path: Path
) -> None:
    graph = load(tmp_path, pool(f32(1, 4, 6, 2), VALID, 3, 2, 3, 2, activation).written())
    x = np.random.default_rng(1).uniform(-9, 9, (1, 4, 6, 2)).astype(np.float32)
    values = execute(graph, {"in0": x})
    expected_values, places = pooled(x, (2, 3), (2, 3), VALID)
    np.testing.assert_array_equal(values["out0"], np.clip(expected_values, low, high))
    np.testing.assert_allclose(values["out1"], places, rtol=1e-6)
    assert ("Clip" in {node.op.name for node in graph.nodes}) == (activation != 0)


def test_unpooling_of_windows_that_are_no_squares(tmp_path: Path) -> None:
    graph = load(tmp_path, unpool(f32(2, 2, 3, 2), f32(2, 2, 3, 2), VALID, 3, 2, 3, 2, 0).written())
    image = np.random.default_rng(0).standard_normal((2, 4, 9, 2)).astype(np.float32)
    values, places = pooled(image, (2, 3), (2, 3), VALID)
    wanted = np.where(image == values.repeat(2, 1).repeat(3, 2), image, 0)
    np.testing.assert_array_equal(execute(graph, {"in0": values, "in1": places})["out0"], wanted)


@pytest.mark.slow
def test_the_library_computes_them(tmp_path: Path) -> None:
    pool = Case(
        "pool",
        "custom MaxPoolingWithArgmax2D",
        [f32(1, 5, 6, 3)],
        outputs=(Value(""), Value("")),
        custom=ints(SAME, 2, 2, 2, 2, 1),
    )
    deconv = Case(
        "deconv",
        "custom Convolution2DTransposeBias",
        [f32(1, 4, 5, 3), floats(6, 4, 4, 3), floats(6)],
        custom=ints(SAME, 2, 2),
    )
    graphs = [load(tmp_path, case.written()).with_name(case.name) for case in (pool, deconv)]
    check_graphs(Cpu(), graphs, tmp_path / "library")
