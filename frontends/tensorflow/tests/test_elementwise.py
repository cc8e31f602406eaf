"""Operators that work on each element by itself, against TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, check, f32, floats, ints, raw, truths

from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu

UNARY = (
    *(
        raw(op, f32(2, 3, 5, low=low, high=high), tolerance=tolerance)
        for ops, low, high, tolerance in (
            (
                "Abs Neg Ceil Floor Sign Exp Erf Erfc Sin Cos Atan Sinh Cosh Tanh Asinh Sigmoid Expm1 Square Rint Round",
                -4.0,
                4.0,
                4e-6,
            ),
            ("Relu Relu6 Elu LeakyRelu Selu Softplus Softsign IsNan IsInf IsFinite", -8.0, 8.0, 4e-6),
            ("Sqrt Rsqrt Reciprocal Inv Log Log1p", 0.1, 4.0, 4e-6),
            ("Asin Acos Atanh", -0.9, 0.9, 4e-6),
            ("Tan", -1.2, 1.2, 4e-6),
            ("Acosh", 1.1, 4.0, 4e-6),
        )
        for op in ops.split()
    ),
    *(
        raw(op, ints(2, 5, low=-9, high=9), name=f"{op} i32")
        for op in ["Abs", "Neg", "Sign", "Invert", "Square", "Relu"]
    ),
    raw(
        "Log1p",
        np.array([-1, -0.999999, -0.6, -0.5, -1e-7, 0, 1e-7, 0.5, 0.7, 1, 9e4, 1e10, 3e38, np.inf], "f4"),
        name="Log1p of extremes",
        tolerance=4e-6,
    ),
    *(
        raw(
            "Expm1",
            np.array([-np.inf, -6e4, -250, -170, -19, -1, 1e-7, 5, 10], dtype),
            name=f"Expm1 of extremes in {dtype}",
            tolerance=tolerance,
        )
        for dtype, tolerance in (("f2", 5e-3), ("f4", 1e-6), ("f8", 1e-14))
    ),
    raw("LogicalNot", truths(2, 5)),
    raw("LeakyRelu", f32(3, 5), alpha=0.3, name="LeakyRelu alpha"),
    raw("Cast", f32(3, 5, low=-9, high=9), DstT=np.int32, name="Cast to i32"),
    raw("Cast", ints(3, 5, low=-1, high=1), DstT=np.bool_, name="Cast to bool"),
    raw("Bucketize", f32(3, 5), boundaries=[-1.0, 0.5, 0.5, 1.5]),
    raw(
        "Bucketize",
        np.array([0.1, float(np.float32(0.1)), 0.2]),
        boundaries=[0.1, 0.2],
        name="Bucketize f64 beside a rounded boundary",
    ),
    raw("Bucketize", ints(3, 5), boundaries=[1.0, 3.0], name="Bucketize i32"),
    raw("Cast", truths(3, 5), DstT=np.float32, name="Cast from bool"),
    raw("Cast", f32(3, 5), DstT=np.float32, name="Cast to itself"),
)
NUMBERS = "Add AddV2 Sub Mul Minimum Maximum SquaredDifference"
COMPARE = "Equal NotEqual Less LessEqual Greater GreaterEqual"
BINARY = (
    *(raw(op, f32(2, 3, 5), f32(3, 1)) for op in f"{NUMBERS} {COMPARE}".split()),
    *(raw(op, ints(2, 3, 5), ints(2, 3, 5), name=f"{op} i32") for op in f"{NUMBERS} {COMPARE}".split()),
    *(
        raw(op, f32(4, 5, low=0.5), f32(4, 5, low=0.5))
        for op in ["Div", "RealDiv", "Pow", "FloorDiv", "FloorMod", "Mod", "TruncateMod"]
    ),
    *(
        raw(op, f32(6, 8, low=-9, high=9), f32(8, low=1.5, high=3), name=f"{op} negative")
        for op in ["FloorDiv", "FloorMod", "TruncateMod"]
    ),
    *(
        raw(op, ints(6, 8, low=-9, high=9), np.array([3, -3, 2, -2, 5, -5, 7, -7], "i4"), name=f"{op} i32")
        for op in ["Div", "FloorDiv", "TruncateDiv", "FloorMod", "Mod", "TruncateMod"]
    ),
    *(raw(op, truths(4, 5), truths(4, 5)) for op in ["LogicalAnd", "LogicalOr"]),
    *(raw(op, ints(4, 5, high=99), ints(5, high=99)) for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]),
    *(
        raw(op, ints(4, 5, low=0 if op == "LeftShift" else -99, high=99), ints(5, low=0, high=5))
        for op in ("LeftShift", "RightShift")
    ),
    raw("Atan2", f32(4, 9), f32(4, 9)),
    raw("Atan2", np.array([0, 0, 1, -1, 0], "f4"), np.array([0, -1, 0, 0, 1], "f4"), name="Atan2 axes"),
    raw(
        "Atan2",
        np.array([1, -1, 2, -2, 0.5], "f4"),
        np.array([-0.0, -0.0, 0.0, 0.0, -np.inf], "f4"),
        name="Atan2 beside a negative zero",
    ),
    Case(
        "ApproximateEqual",
        lambda tf, x, y: tf.raw_ops.ApproximateEqual(x=x, y=y, tolerance=0.4),
        [f32(4, 9), f32(4, 9)],
    ),
    raw("DivNoNan", f32(4, 5), np.array([1, 0, 2, 0, -1], "f4")),
    raw("MulNoNan", f32(4, 5), np.array([1, 0, 2, 0, -1], "f4")),
    raw("Xdivy", np.array([1, 0, 2, 0, -1], "f4"), f32(4, 5, low=0.5)),
    raw("Xlogy", np.array([1, 0, 2, 0, -1], "f4"), f32(4, 5, low=0.5)),
    raw("Xlog1py", np.array([1, 0, 2, 0, -1], "f4"), f32(4, 5, low=-0.5)),
    raw(
        "Xlog1py",
        np.array([1, 0, 1e8], "f4"),
        np.array([1e7, -1, 1e-8], "f4"),
        name="Xlog1py of extremes",
    ),
    raw("BiasAdd", f32(2, 4, 4, 3), floats(3)),
    raw("BiasAdd", f32(2, 3, 4, 4), floats(3), data_format="NCHW", name="BiasAdd NCHW"),
    raw("BiasAdd", f32(2, 3), floats(3), name="BiasAdd of a matrix"),
    raw("AddN", [f32(3, 4), f32(3, 4), f32(3, 4)]),
    raw("AddN", [f32(3, 4)], name="AddN of one"),
    raw("ClipByValue", f32(3, 4), np.float32(-0.5), np.float32(0.7)),
    raw("ClipByValue", f32(3, 4), f32(), f32(), name="ClipByValue at run time"),
    raw("ClipByValue", ints(3, 4, low=-9, high=9), np.int32(-3), np.int32(4), name="ClipByValue i32"),
    raw("Select", truths(3), f32(3, 5), f32(3, 5)),
    raw("Select", truths(3, 5), f32(3, 5), f32(3, 5), name="Select of one shape"),
    raw("SelectV2", truths(3, 1), f32(3, 5), f32(5)),
)
CASES = (*UNARY, *BINARY)
COMPILED = [
    "Erfc",
    "Expm1",
    "Log1p",
    "Atan2",
    "FloorDiv",
    "FloorMod",
    "DivNoNan",
    "Xlogy",
    "BiasAdd",
    "ClipByValue",
    "SelectV2",
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path, tf: Any) -> None:
    check(case, tmp_path, tf)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_through_c(tmp_path: Path, tf: Any) -> None:
    check_graphs(Cpu(), [check(case, tmp_path, tf) for case in CASES if case.name in COMPILED], tmp_path)
