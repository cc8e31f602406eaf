"""Operations of keras.ops in functional models, beside Keras itself."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import Case, check

from mace_core.ir import Shape

IMAGE, STEPS, ROW = (4, 6, 2), (7, 6), (6,)
Compute = Callable[..., Any]


def unary(name: str, low: float = -2.0, high: float = 2.0, **settings: Any) -> Case:
    text = ",".join(f"{k}={v}" for k, v in settings.items())
    return Case(
        f"{name}({text})",
        lambda k: lambda x: getattr(k.ops, name)(x, **settings),
        [STEPS],
        low=low,
        high=high,
    )


def operation(
    label: str,
    compute: Compute,
    *shapes: Shape,
    dtype: str = "float32",
    low: float = -2.0,
    high: float = 2.0,
) -> Case:
    """Return the case of an operation of keras.ops; low and high limit its random inputs.

    compute: (keras.ops, tensors) -> tensors.
    """
    return Case(label, lambda k: lambda *x: compute(k.ops, *x), shapes or (STEPS,), dtype, low, high)


ELEMENTS = (
    *(
        unary(n)
        for n in (
            "abs",
            "negative",
            "sign",
            "ceil",
            "floor",
            "round",
            "exp",
            "expm1",
            "sin",
            "cos",
            "tanh",
            "sinh",
            "cosh",
            "arctan",
        )
    ),
    *(
        unary(n)
        for n in (
            "square",
            "erf",
            "sigmoid",
            "relu",
            "relu6",
            "silu",
            "softplus",
            "softsign",
            "selu",
            "hard_sigmoid",
            "hard_silu",
        )
    ),
    *(
        unary(n)
        for n in (
            "hard_tanh",
            "log_sigmoid",
            "tanh_shrink",
            "sparse_plus",
            "sparse_sigmoid",
            "squareplus",
            "glu",
            "arcsinh",
            "tan",
        )
    ),
    *(unary(n, 0.1, 3.0) for n in ("sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p")),
    *(unary(n, -0.9, 0.9) for n in ("arcsin", "arccos", "arctanh")),
    unary("arccosh", 1.1, 3.0),
    unary("gelu"),
    unary("gelu", approximate=False),
    unary("leaky_relu", negative_slope=0.3),
    unary("elu", alpha=0.7),
    unary("celu", alpha=0.7),
    unary("soft_shrink", threshold=0.3),
    unary("hard_shrink", threshold=0.3),
    unary("threshold", threshold=0.3, default_value=-1.0),
    unary("softmax", axis=1),
    unary("log_softmax"),
    operation("clip", lambda o, x: o.clip(x, -1.0, 0.5)),
    operation("isclose-free-where", lambda o, x: o.where(x > 0.5, x, -x)),
    operation("clip-crossed", lambda o, x: o.clip(x, 1.0, 0.0)),
    operation("log1p-large", lambda o, x: o.log1p(x * 1e-5), low=1e10, high=1e14),
    operation("log1p-small", lambda o, x: 1e5 * o.log1p(x), low=-1e-5, high=1e-5),
    operation("expm1-small", lambda o, x: 1e5 * o.expm1(x), low=-1e-5, high=1e-5),
    operation("expm1-negative", lambda o, x: o.expm1(x), low=-300.0, high=-50.0),
    operation("cast", lambda o, x: o.cast(o.cast(x, "int32"), "float32")),
    operation("stop_gradient", lambda o, x: o.stop_gradient(x)),
)
SYMBOLS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
    operator.floordiv,
    operator.mod,
)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def compared(name: str) -> Case:
    return operation(
        name, lambda o, a, b: o.cast(getattr(o, name)(o.round(a), o.round(b)), "float32"), STEPS, STEPS
    )


PAIRS = (
    *(operation(f.__name__, lambda _, a, b, f=f: f(a, b), STEPS, STEPS, low=0.2, high=3.0) for f in SYMBOLS),
    *(operation(f"{f.__name__}-number", lambda _, a, f=f: f(a, 2.5), low=0.2, high=3.0) for f in SYMBOLS),
    *(operation(f"number-{f.__name__}", lambda _, a, f=f: f(2.5, a), low=0.2, high=3.0) for f in SYMBOLS[:5]),
    operation("add-broadcast", lambda _, a, b: a + b, (4, 1, 2), (6, 2)),
    operation("maximum", lambda o, a, b: o.maximum(a, b), STEPS, STEPS),
    operation("minimum-number", lambda o, a: o.minimum(a, 0.5)),
    *(compared(name) for name in COMPARISONS),
    operation(
        "logical",
        lambda o, a, b: o.cast(o.logical_and(a > 0, o.logical_or(b > 0, o.logical_not(a > 1))), "float32"),
        STEPS,
        STEPS,
    ),
    operation(
        "constants",
        lambda o, x: x * o.convert_to_tensor(np.arange(6, dtype="float32")) + np.full((7, 1), 2.0, "float32"),
    ),
    operation("integers", lambda _, a, b: a * 2 + b, ROW, ROW, dtype="int32", low=-5, high=5),
    operation(
        "floor-of-large-integers", lambda o, a: o.floor_divide(a, 7), ROW, dtype="int32", low=-2e9, high=2e9
    ),
    operation("mixed", lambda _, a, b: a + b * 0.5, ROW, ROW, dtype="int32", low=-5, high=5),
)
REDUCTIONS = (
    *(unary(n, axis=1) for n in ("sum", "mean", "max", "min", "prod", "var", "std", "logsumexp")),
    *(unary(n, axis=-1, keepdims=True) for n in ("sum", "mean", "max", "var")),
    unary("argmax", axis=-1),
    unary("argmin", axis=1),
    unary("cumsum", axis=1),
    unary("normalize", axis=-1),
    operation("normalize-short", lambda o, x: o.normalize(x * 1e-8)),
    operation("sum-two", lambda o, x: o.sum(x, axis=(1, 2)), IMAGE),
)
PRODUCTS = (
    operation("matmul", lambda o, a, b: o.matmul(a, b), (4, 5), (5, 3)),
    operation("matmul-operator", lambda _, a, b: a @ b, (2, 4, 5), (2, 5, 3)),
    operation("einsum", lambda o, a, b: o.einsum("btnh,bsnh->bnts", a, b), (4, 2, 3), (5, 2, 3)),
    operation("einsum-outer", lambda o, a, b: o.einsum("bi,bj->bij", a, b), (4,), (5,)),
)
MOVES = (
    operation("reshape", lambda o, x: o.reshape(x, (-1, 6, 7))),
    operation("transpose", lambda o, x: o.transpose(x, (0, 3, 1, 2)), IMAGE),
    operation("swapaxes", lambda o, x: o.swapaxes(x, 1, -1), IMAGE),
    operation("moveaxis", lambda o, x: o.moveaxis(x, 1, -1), IMAGE),
    operation("expand_dims", lambda o, x: o.expand_dims(x, 2)),
    operation("squeeze", lambda o, x: o.squeeze(o.expand_dims(x, 1), 1)),
    operation("concatenate", lambda o, a, b: o.concatenate([a, b], axis=-1), STEPS, STEPS),
    operation("stack", lambda o, a, b: o.stack([a, b], axis=1), STEPS, STEPS),
    operation("split", lambda o, x: o.split(x, 3, axis=-1)),
    operation("split-places", lambda o, x: o.split(x, [1, 4], axis=-1)[1]),
    operation("unstack", lambda o, x: o.unstack(x, axis=1)[2]),
    operation("slices", lambda _, x: x[:, 1:-1:2, ::-1]),
    operation("place", lambda _, x: x[:, -1]),
    operation("new-axis", lambda _, x: x[:, None, ..., 2]),
    operation("flip", lambda o, x: o.flip(x, axis=1)),
    operation("roll", lambda o, x: o.roll(x, 2, axis=1)),
    operation("repeat", lambda o, x: o.repeat(x, 3, axis=1)),
    operation("tile", lambda o, x: o.tile(x, (1, 2, 3))),
    operation("pad", lambda o, x: o.pad(x, ((0, 0), (1, 2), (0, 3)))),
    operation("pad-reflect", lambda o, x: o.pad(x, ((0, 0), (1, 2), (0, 3)), mode="reflect")),
    operation("take", lambda o, x: o.take(x, [0, 3, 1], axis=1)),
    operation("one_hot", lambda o, x: o.one_hot(x, 5), ROW, dtype="int32", low=0, high=5),
    operation("one_hot-outside", lambda o, x: o.one_hot(x, 3), ROW, dtype="int32", low=-3, high=5),
    operation("resize-nearest", lambda o, x: o.image.resize(x, (123, 166), "nearest"), (3, 2, 1)),
    operation("resize-nearest-smaller", lambda o, x: o.image.resize(x, (2, 3), "nearest"), (14, 9, 1)),
    operation("top_k", lambda o, x: o.top_k(x, 2)[0]),
    operation("max_pool", lambda o, x: o.max_pool(x, 2, 1, "same"), IMAGE),
    operation("average_pool", lambda o, x: o.average_pool(x, (2, 3), (1, 2)), IMAGE),
    operation("resize", lambda o, x: o.image.resize(x, (3, 8)), IMAGE),
)
CASES = (*ELEMENTS, *PAIRS, *REDUCTIONS, *PRODUCTS, *MOVES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operation(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize(
    "case", [PAIRS[0], PAIRS[9], REDUCTIONS[1], MOVES[0], MOVES[11]], ids=lambda c: c.name
)
def test_operation_in_the_older_format(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path, ".h5")
