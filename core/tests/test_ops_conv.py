"""Convolutions, products and pools: numpy references against loops over single elements, and what the ops refuse."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from mace_core.ir import Array, DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.op import OpError

CONV: dict[str, Any] = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
APART = {"group": 3, "low": -0.5, "high": 0.5}
LINE: dict[str, Any] = {"strides": (2,), "pads_before": (1,), "pads_after": (2,), "dilations": (1,)}
CUBE: dict[str, Any] = {
    "strides": (1, 2, 1),
    "pads_before": (1, 0, 1),
    "pads_after": (0, 1, 1),
    "dilations": (1, 1, 2),
}
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 5, 2), (3, 2, 3, 2), CONV),
    ((2, 5, 4, 4), (6, 3, 2, 2), {**CONV, "strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2), "group": 2}),
    ((1, 6, 6, 3), (6, 2, 2, 1), {**CONV, "dilations": (2, 3), "pads_before": (1, 2), "pads_after": (2, 1), **APART}),
    ((1, 7, 2), (3, 3, 2), LINE),
    ((1, 3, 4, 3, 1), (2, 2, 2, 2, 1), CUBE),
    ((0, 5, 4, 4), (6, 3, 2, 2), {**CONV, "group": 2}),
]  # fmt: skip


def arrays(x: tuple[int, ...], w: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype("f4") for s in (x, w, w[:1])]


def compute(op: str, inputs: list[Array], attrs: dict[str, Any]) -> Array:
    """The reference's result, its shape being the inferred one."""
    described = core_ops()[op]
    complete = described.complete(attrs)
    ((dtype, shape),) = described.infer(
        [Tensor(f"t{i}", DType.of(a), a.shape) for i, a in enumerate(inputs)], complete
    )
    (found,) = described.compute(inputs, complete)
    assert (DType.of(found), found.shape) == (dtype, shape)
    return found


def places(
    found: Array, x: Array, kernel: tuple[int, ...], attrs: dict[str, Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Every (result pixel, kernel position, input pixel that meet there or None for padding)."""
    for out in product(*map(range, found.shape[1:-1])):
        for tap in product(*map(range, kernel)):
            axes = zip(out, tap, attrs["strides"], attrs["pads_before"], attrs["dilations"], strict=True)
            at = tuple(o * s - p + t * d for o, t, s, p, d in axes)
            inside = all(0 <= a < n for a, n in zip(at, x.shape[1:-1], strict=True))
            yield out, tap, at if inside else None


@pytest.mark.parametrize(("x_shape", "w_shape", "attrs"), CASES)
def test_conv(x_shape: tuple[int, ...], w_shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    x, w, bias = arrays(x_shape, w_shape)
    actual = compute("Conv", [x, w, bias], attrs)
    depth, results = w.shape[-1], w.shape[0] // attrs.get("group", 1)
    expected = np.zeros(actual.shape) + bias
    for out, tap, at in places(actual, x, w.shape[1:-1], attrs):
        for n, o in product(range(len(x)), range(w.shape[0])):
            first = o // results * depth
            if at is not None:
                expected[(n, *out, o)] += sum(
                    float(x[(n, *at, first + i)]) * float(w[(o, *tap, i)]) for i in range(depth)
                )
    expected = np.clip(expected, attrs.get("low", -np.inf), attrs.get("high", np.inf))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("x_shape", "w_shape", "attrs"), CASES)
@pytest.mark.parametrize("extra", [0, 1])
def test_conv_transpose(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], attrs: dict[str, Any], extra: int
) -> None:
    x, w, bias = arrays(x_shape, w_shape)
    actual = compute("ConvTranspose", [x, w, bias], {**attrs, "output_padding": (extra,) * (x.ndim - 2)})
    depth, results = w.shape[-1], w.shape[0] // attrs.get("group", 1)
    expected = np.zeros(actual.shape) + bias
    # The transpose exchanges the roles of the two images: the pixel of x is the result pixel of a Conv, and
    # the other way round.
    for pixel, tap, at in places(x, actual, w.shape[1:-1], attrs):
        for n, o in product(range(len(x)), range(w.shape[0])):
            first = o // results * depth
            if at is not None:
                expected[(n, *at, o)] += sum(
                    float(x[(n, *pixel, first + i)]) * float(w[(o, *tap, i)]) for i in range(depth)
                )
    expected = np.clip(expected, attrs.get("low", -np.inf), attrs.get("high", np.inf))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def window(x: Array, out: int, attrs: dict[str, Any]) -> list[float]:
    """What one window of a pool over a line of one channel sees."""
    at = (
        out * attrs["strides"][0] - attrs["pads_before"][0] + k * attrs["dilations"][0]
        for k in range(attrs["kernel"][0])
    )
    return [float(x[0, a, 0]) for a in at if 0 <= a < x.shape[1]]


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools(stride: int, dilation: int, ceil: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1, 10, 1)).astype("f4")
    attrs: dict[str, Any] = {
        "kernel": (3,),
        "strides": (stride,),
        "pads_before": (1,),
        "pads_after": (1,),
        "dilations": (dilation,),
        "ceil": ceil,
    }
    seen = [window(x, o, attrs) for o in range(compute("MaxPool", [x], attrs).shape[1])]
    for op, more, expected in (
        ("MaxPool", {}, [max(s) for s in seen]),
        ("AveragePool", {}, [sum(s) / len(s) for s in seen]),
        ("LpPool", {"p": 3}, [sum(abs(v) ** 3 for v in s) ** (1 / 3) for s in seen]),
    ):
        np.testing.assert_allclose(compute(op, [x], attrs | more)[0, :, 0], expected, rtol=1e-5, atol=1e-6)


def test_ceil_counts_a_last_window_only_if_it_starts_in_front_of_the_padding() -> None:
    attrs: dict[str, Any] = {
        "kernel": (2,),
        "strides": (2,),
        "pads_before": (0,),
        "pads_after": (1,),
        "dilations": (1,),
        "ceil": True,
    }
    x = np.arange(1.0, 5.0, dtype="f4").reshape(1, 4, 1)
    assert compute("MaxPool", [x], attrs)[0, :, 0].tolist() == [2, 4]
    wide = np.arange(1.0, 6.0, dtype="f4").reshape(1, 5, 1)
    assert compute("MaxPool", [wide], attrs)[0, :, 0].tolist() == [2, 4, 5]


def test_padding_counts_in_a_mean_only_if_asked_for_and_what_lies_beyond_it_never() -> None:
    attrs: dict[str, Any] = {
        "kernel": (3,),
        "strides": (3,),
        "pads_before": (1,),
        "pads_after": (0,),
        "dilations": (1,),
        "ceil": True,
    }
    x = np.ones((1, 3, 1), "f4")
    assert compute("AveragePool", [x], attrs)[0, :, 0].tolist() == [1, 1]
    np.testing.assert_allclose(compute("AveragePool", [x], {**attrs, "count_pad": True})[0, :, 0], [2 / 3, 1])


def test_matmul() -> None:
    a, b, bias = (*arrays((2, 3, 4), (4, 5))[:2], np.linspace(-1, 1, 5, dtype="f4"))
    actual = compute("MatMul", [a, b, bias], {"low": -0.5, "high": 0.5})
    np.testing.assert_allclose(actual, np.clip(np.matmul(a, b) + bias, -0.5, 0.5), rtol=1e-5, atol=1e-6)
    assert compute("MatMul", [a[0, 0], b[:, 0]], {}).shape == ()
    whole = np.arange(6, dtype="i8").reshape(2, 3)
    np.testing.assert_array_equal(compute("MatMul", [whole, whole.T], {}), whole @ whole.T)
    small = np.array([[1, 2]], "u1")
    limits = {"low": -1.0, "high": 300.0}  # which no unsigned byte is
    np.testing.assert_array_equal(compute("MatMul", [small, small.T], limits), [[5]])


def refusal(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], dtype: DType = DType.F32) -> str:
    described = core_ops()[op]
    with pytest.raises(OpError) as error:
        described.infer([Tensor(f"t{i}", dtype, s) for i, s in enumerate(shapes)], described.complete(attrs))
    return str(error.value)


X, W = (1, 5, 5, 4), (6, 3, 3, 4)


@pytest.mark.parametrize(
    ("shapes", "attrs", "expected"),
    [
        ([(5, 4), (6, 4)], {}, "x has 2 axes"),
        ([X, (6, 3, 4)], {}, "w has 3 axes, x has 4"),
        ([X, (6, 3, 3, 3)], {}, "w takes 3 channels"),
        ([X, W], {"group": 3}, "4 input channels do not divide into 3 groups"),
        ([X, (5, 3, 3, 2)], {"group": 2}, "5 output channels do not divide into 2 groups"),
        ([X, W], {"group": 0}, "group is 0"),
        ([(1, 5, 5, 0), (6, 3, 3, 0)], {}, "x has no channels"),
        ([X, W, (5,)], {}, "bias has shape [5], expected [6]"),
        ([X, W], {"strides": (1,)}, "'strides' is (1,), expected 2 integers"),
        ([X, W], {"strides": (0, 1)}, "strides [0, 1] must be at least 1"),
        ([X, W], {"dilations": (1, 0)}, "dilations [1, 0] must be at least 1"),
        ([X, W], {"pads_after": (0, -1)}, "pads_after [0, -1] must be at least 0"),
        ([X, W], {"low": 2.0, "high": 1.0}, "low 2.0 is above high 1.0"),
    ],
)
def test_what_convolutions_refuse(
    shapes: list[tuple[int, ...]], attrs: dict[str, Any], expected: str
) -> None:
    assert expected in refusal("Conv", shapes, {**CONV, **attrs})
    assert expected in refusal("ConvTranspose", shapes, {**CONV, "output_padding": (0, 0), **attrs})


def test_what_the_others_refuse() -> None:
    pool = {**CONV, "kernel": (2, 2)}
    assert "x is i32, expected floats" in refusal("Conv", [X, W], CONV, DType.I32)
    assert "a window of 9 does not fit into 5" in refusal("Conv", [X, W], {**CONV, "dilations": (4, 4)})
    assert "cut off everything" in refusal(
        "ConvTranspose", [X, W], {**CONV, "output_padding": (0, 0), "pads_after": (9, 9)}
    )
    assert "output_padding [0, -1]" in refusal("ConvTranspose", [X, W], {**CONV, "output_padding": (0, -1)})
    assert "'kernel' is (2,), expected 2 integers" in refusal("MaxPool", [X], {**pool, "kernel": (2,)})
    assert "kernel [0, 2] must be at least 1" in refusal("MaxPool", [X], {**pool, "kernel": (0, 2)})
    assert "p is 0" in refusal("LpPool", [X], {**pool, "p": 0})
    assert "x is i64, expected floats" in refusal("AveragePool", [X], pool, DType.I64)
    assert "a has 4 columns and b 5 rows" in refusal("MatMul", [(3, 4), (5, 4)], {})
    assert "do not broadcast" in refusal("MatMul", [(2, 3, 4), (3, 4, 5)], {})
    assert "a factor is a scalar" in refusal("MatMul", [(), (4,)], {})
    assert "bias has shape [3], expected [5]" in refusal("MatMul", [(3, 4), (4, 5), (3,)], {})
