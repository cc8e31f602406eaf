"""Operations of keras.ops in functional models, beside Keras itself."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import Case, check

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


def of(label: str, compute: Compute, *shapes: tuple[int, ...], **how: Any) -> Case:
    """compute: (keras.ops, tensors) -> tensors."""
    return Case(label, lambda k: lambda *x: compute(k.ops, *x), shapes or (STEPS,), **how)


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
    of("clip", lambda o, x: o.clip(x, -1.0, 0.5)),
    of("isclose-free-where", lambda o, x: o.where(x > 0.5, x, -x)),
    of("cast", lambda o, x: o.cast(o.cast(x, "int32"), "float32")),
    of("stop_gradient", lambda o, x: o.stop_gradient(x)),
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
    return of(name, lambda o, a, b: o.cast(getattr(o, name)(o.round(a), o.round(b)), "float32"), STEPS, STEPS)


PAIRS = (
    *(of(f.__name__, lambda _, a, b, f=f: f(a, b), STEPS, STEPS, low=0.2, high=3.0) for f in SYMBOLS),
    *(of(f"{f.__name__}-number", lambda _, a, f=f: f(a, 2.5), low=0.2, high=3.0) for f in SYMBOLS),
    *(of(f"number-{f.__name__}", lambda _, a, f=f: f(2.5, a), low=0.2, high=3.0) for f in SYMBOLS[:5]),
    of("add-broadcast", lambda _, a, b: a + b, (4, 1, 2), (6, 2)),
    of("maximum", lambda o, a, b: o.maximum(a, b), STEPS, STEPS),
    of("minimum-number", lambda o, a: o.minimum(a, 0.5)),
    *(compared(name) for name in COMPARISONS),
    of(
        "logical",
        lambda o, a, b: o.cast(o.logical_and(a > 0, o.logical_or(b > 0, o.logical_not(a > 1))), "float32"),
        STEPS,
        STEPS,
    ),
    of(
        "constants",
        lambda o, x: x * o.convert_to_tensor(np.arange(6, dtype="float32")) + np.full((7, 1), 2.0, "float32"),
    ),
    of("integers", lambda _, a, b: a * 2 + b, ROW, ROW, dtype="int32", low=-5, high=5),
    of("mixed", lambda _, a, b: a + b * 0.5, ROW, ROW, dtype="int32", low=-5, high=5),
)
REDUCTIONS = (
    *(unary(n, axis=1) for n in ("sum", "mean", "max", "min", "prod", "var", "std", "logsumexp")),
    *(unary(n, axis=-1, keepdims=True) for n in ("sum", "mean", "max", "var")),
    unary("argmax", axis=-1),
    unary("argmin", axis=1),
    unary("cumsum", axis=1),
    unary("normalize", axis=-1),
    of("sum-two", lambda o, x: o.sum(x, axis=(1, 2)), IMAGE),
)
PRODUCTS = (
    of("matmul", lambda o, a, b: o.matmul(a, b), (4, 5), (5, 3)),
    of("matmul-operator", lambda _, a, b: a @ b, (2, 4, 5), (2, 5, 3)),
    of("einsum", lambda o, a, b: o.einsum("btnh,bsnh->bnts", a, b), (4, 2, 3), (5, 2, 3)),
    of("einsum-outer", lambda o, a, b: o.einsum("bi,bj->bij", a, b), (4,), (5,)),
)
MOVES = (
    of("reshape", lambda o, x: o.reshape(x, (-1, 6, 7))),
    of("transpose", lambda o, x: o.transpose(x, (0, 3, 1, 2)), IMAGE),
    of("swapaxes", lambda o, x: o.swapaxes(x, 1, -1), IMAGE),
    of("moveaxis", lambda o, x: o.moveaxis(x, 1, -1), IMAGE),
    of("expand_dims", lambda o, x: o.expand_dims(x, 2)),
    of("squeeze", lambda o, x: o.squeeze(o.expand_dims(x, 1), 1)),
    of("concatenate", lambda o, a, b: o.concatenate([a, b], axis=-1), STEPS, STEPS),
    of("stack", lambda o, a, b: o.stack([a, b], axis=1), STEPS, STEPS),
    of("split", lambda o, x: o.split(x, 3, axis=-1)),
    of("split-places", lambda o, x: o.split(x, [1, 4], axis=-1)[1]),
    of("unstack", lambda o, x: o.unstack(x, axis=1)[2]),
    of("slices", lambda _, x: x[:, 1:-1:2, ::-1]),
    of("place", lambda _, x: x[:, -1]),
    of("new-axis", lambda _, x: x[:, None, ..., 2]),
    of("flip", lambda o, x: o.flip(x, axis=1)),
    of("roll", lambda o, x: o.roll(x, 2, axis=1)),
    of("repeat", lambda o, x: o.repeat(x, 3, axis=1)),
    of("tile", lambda o, x: o.tile(x, (1, 2, 3))),
    of("pad", lambda o, x: o.pad(x, ((0, 0), (1, 2), (0, 3)))),
    of("pad-reflect", lambda o, x: o.pad(x, ((0, 0), (1, 2), (0, 3)), mode="reflect")),
    of("take", lambda o, x: o.take(x, [0, 3, 1], axis=1)),
    of("one_hot", lambda o, x: o.one_hot(x, 5), ROW, dtype="int32", low=0, high=5),
    of("top_k", lambda o, x: o.top_k(x, 2)[0]),
    of("max_pool", lambda o, x: o.max_pool(x, 2, 1, "same"), IMAGE),
    of("average_pool", lambda o, x: o.average_pool(x, (2, 3), (1, 2)), IMAGE),
    of("resize", lambda o, x: o.image.resize(x, (3, 8)), IMAGE),
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
