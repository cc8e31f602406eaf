"""Element-wise operators and activations, each by itself, against LiteRT's plain kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, bytes_of, check, f32, floats, i8, ints, stored
from tflite_write import Scales, TableFields, Value

from mace_core.ir import DType

UNARY = tuple(
    Case(f"{code} {value.dtype.value}", code, [value], outputs=[value], low=low, high=high)
    for codes, value, low, high in (
        (
            "ABS NEG CEIL FLOOR ROUND SIN COS EXP SIGN SQUARE RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LOGISTIC TANH ELU",
            f32(2, 3, 5),
            -4,
            4,
        ),
        ("HARD_SWISH L2_NORMALIZATION LOG_SOFTMAX", f32(2, 3, 5), -4, 4),
        ("SQRT RSQRT LOG", f32(2, 3, 5), 0.1, 4),
        ("NEG ABS", ints(2, 5), -9, 9),
        ("RELU RELU6 RELU_N1_TO_1 ABS HARD_SWISH", i8(2, 3, 5), 0, 0),
        ("LOGICAL_NOT", ints(2, 5, dtype=DType.BOOL), 0, 1),
    )
    for code in codes.split()
)
SMALL = Scales((1 / 256,), (-128,))
SIGNED = Scales((1 / 128,), (0,))
ACTIVATION = (
    Case("logistic i8", "LOGISTIC", [i8(4, 40)], outputs=[Value("", DType.I8, scales=SMALL)]),
    Case(
        "logistic u8",
        "LOGISTIC",
        [i8(4, 40, zero=100, dtype=DType.U8)],
        outputs=[Value("", DType.U8, scales=Scales((1 / 256,), (0,)))],
    ),
    Case("tanh i8", "TANH", [i8(4, 40)], outputs=[Value("", DType.I8, scales=SIGNED)]),
    Case(
        "tanh i16",
        "TANH",
        [i8(4, 40, scale=2**-12, zero=0, dtype=DType.I16)],
        outputs=[Value("", DType.I16, scales=Scales((2**-15,), (0,)))],
    ),
    Case("elu i8", "ELU", [i8(4, 40)], outputs=[i8(scale=0.04, zero=-90)]),
    Case("leaky relu", "LEAKY_RELU", [f32(3, 5)], ("LeakyReluOptions", {"Alpha": 0.3})),
    Case(
        "leaky relu i8",
        "LEAKY_RELU",
        [i8(4, 40)],
        ("LeakyReluOptions", {"Alpha": 0.3}),
        outputs=[i8(scale=0.03, zero=-20)],
    ),
    Case("gelu", "GELU", [f32(3, 5)], ("GeluOptions", {"Approximate": False})),
    Case("gelu tanh", "GELU", [f32(3, 5)], ("GeluOptions", {"Approximate": True})),
    Case("softmax", "SOFTMAX", [f32(2, 3, 5)], ("SoftmaxOptions", {"Beta": 1.0})),
    Case("softmax beta", "SOFTMAX", [f32(2, 5)], ("SoftmaxOptions", {"Beta": 0.5})),
    Case(
        "softmax i8",
        "SOFTMAX",
        [i8(4, 10)],
        ("SoftmaxOptions", {"Beta": 1.0}),
        outputs=[Value("", DType.I8, scales=SMALL)],
    ),
    Case("prelu", "PRELU", [f32(1, 3, 4, 5), floats(1, 1, 5)]),
    Case("prelu i8", "PRELU", [i8(1, 3, 4, 5), stored(bytes_of(1, 1, 5), 0.01)], outputs=[i8(scale=0.07)]),
)
NUMBERS = [
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "MAXIMUM",
    "MINIMUM",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "SQUARED_DIFFERENCE",
    "POW",
]
COMPARE = ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
TRUTH = ints(dtype=DType.BOOL)


def options_of(code: str, **fields: Any) -> tuple[str, TableFields] | None:
    fields = fields | ({"PotScaleInt16": False} if code in ("ADD", "SUB") else {})
    return (f"{code.capitalize()}Options", fields) if code in ("ADD", "SUB", "MUL", "DIV") else None


BINARY = (
    *(
        Case(code, code, [f32(2, 3, 5), f32(3, 1)], options_of(code), low=0.5 if code == "POW" else -2)
        for code in NUMBERS
    ),
    *(
        Case(f"{code} i32", code, [ints(2, 3, 5), ints(2, 3, 5)], options_of(code), [ints()], low=1, high=7)
        for code in NUMBERS
        if code != "POW"
    ),
    *(
        Case(
            f"{code} negative",
            code,
            [ints(6, 8), np.array([3, -3, 2, -2, 5, -5, 7, -7], "i4")],
            None,
            [ints()],
            -9,
            9,
        )
        for code in ("FLOOR_DIV", "FLOOR_MOD")
    ),
    *(
        Case(
            f"{code} i8",
            code,
            [i8(4, 9), i8(4, 9, scale=0.03, zero=-7)],
            options_of(code),
            [i8(scale=0.1, zero=1)],
        )
        for code in ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE")
    ),
    *(
        Case(
            f"{code} u8",
            code,
            [i8(4, 9, zero=128, dtype=DType.U8), i8(9, dtype=DType.U8)],
            options_of(code),
            [i8(scale=0.1, dtype=DType.U8)],
        )
        for code in ("ADD", "SUB", "MUL")
    ),
    *(
        Case(
            f"{code} i16",
            code,
            [i8(4, 9, scale=2**-11, zero=0, dtype=DType.I16)] * 2,
            options_of(code),
            [i8(scale=2**-10, zero=0, dtype=DType.I16)],
        )
        for code in ("ADD", "SUB", "MUL")
    ),
    *(Case(f"{code} i8", code, [i8(4, 9), i8(4, 9)], None, [i8()]) for code in ("MAXIMUM", "MINIMUM")),
    *(Case(code, code, [ints(4, 9), ints(4, 9)], None, [TRUTH]) for code in COMPARE),
    *(Case(f"{code} f32", code, [f32(4, 9), f32(4, 1)], None, [TRUTH]) for code in COMPARE),
    *(
        Case(f"{code} i8", code, [i8(4, 9), i8(4, 9, scale=0.04)], None, [TRUTH])
        for code in ("LESS", "GREATER_EQUAL")
    ),
    *(
        Case(code, code, [ints(4, 9, dtype=DType.BOOL)] * 2, None, [TRUTH], 0, 1)
        for code in ("LOGICAL_AND", "LOGICAL_OR")
    ),
    *(
        Case(f"ADD fused {n}", "ADD", [f32(4, 9)] * 2, options_of("ADD", FusedActivationFunction=n))
        for n in (1, 2, 3)
    ),
    Case(
        "ADD i8 fused",
        "ADD",
        [i8(4, 9)] * 2,
        options_of("ADD", FusedActivationFunction=3),
        [i8(scale=0.04, zero=-9)],
    ),
    Case("add n", "ADD_N", [f32(3, 4)] * 3),
    Case("bitwise xor", "BITWISE_XOR", [ints(4, 9)] * 2, None, [ints()], 0, 99),
    Case(
        "right shift",
        "RIGHT_SHIFT",
        [ints(4, 9), np.array([1, 2, 0, 3, 1, 5, 2, 2, 1], "i4")],
        None,
        [ints()],
        -99,
        99,
    ),
    Case("atan2", "ATAN2", [f32(4, 9), f32(4, 9)]),
    Case("atan2 on an axis", "ATAN2", [f32(4, 9), np.zeros((4, 9), np.float32)]),
    Case("atan2 to the left", "ATAN2", [f32(4, 9), np.full((4, 9), -0.5, np.float32)]),
    Case("atan2 of no point", "ATAN2", [np.zeros(3, np.float32), np.float32([-1, 0, 1])]),
    Case("select of rank 1", "SELECT", [ints(3, dtype=DType.BOOL), f32(3), f32(3)], low=0),
    Case("select", "SELECT", [ints(3, dtype=DType.BOOL), f32(3, 5), f32(3, 5)], low=0),
    Case("select v2", "SELECT_V2", [ints(3, 1, dtype=DType.BOOL), f32(3, 5), f32(1, 5)], low=0),
    Case(
        "select i8",
        "SELECT_V2",
        [ints(3, 5, dtype=DType.BOOL), i8(3, 5), i8(3, 5)],
        None,
        [i8()],
        low=0,
        high=1,
    ),
    Case("cast", "CAST", [f32(3, 5)], ("CastOptions", {"InDataType": 0, "OutDataType": 2}), [ints()], -9, 9),
    Case(
        "cast truth",
        "CAST",
        [ints(3, 5)],
        ("CastOptions", {"InDataType": 2, "OutDataType": 6}),
        [TRUTH],
        -1,
        1,
    ),
    Case("cast i8", "CAST", [i8(3, 5)], ("CastOptions", {"InDataType": 9, "OutDataType": 0})),
    Case("quantize", "QUANTIZE", [f32(3, 5)], None, [i8()], -9, 9),
    Case("requantize", "QUANTIZE", [i8(30, 5)], None, [i8(scale=0.07, zero=-5)]),
    Case("requantize to unsigned", "QUANTIZE", [i8(30, 5)], None, [i8(zero=131, dtype=DType.U8)]),
    Case("dequantize", "DEQUANTIZE", [i8(3, 5)]),
    Case("dequantize f16", "DEQUANTIZE", [Value("", DType.F16, (3, 5))]),
    Case(
        "fake quant",
        "FAKE_QUANT",
        [f32(3, 50)],
        ("FakeQuantOptions", {"Min": -1.3, "Max": 1.7, "NumBits": 8}),
        tolerance=2e-6,
    ),
    *(
        # Integers and halves, which lie between two steps of 1.
        Case(
            f"fake quant of halves from {low}",
            "FAKE_QUANT",
            [np.arange(-9, 9, 0.5, dtype=np.float32)],
            ("FakeQuantOptions", {"Min": low, "Max": low + levels, "NumBits": bits}),
        )
        for low, levels, bits in ((-128, 255, 8), (-0.5, 255, 8), (-1.5, 15, 4), (0.5, 3, 2))
    ),
)
CASES = (*UNARY, *ACTIVATION, *BINARY)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
