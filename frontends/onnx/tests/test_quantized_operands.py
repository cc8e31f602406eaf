"""Operands as ONNX Runtime's quantizer writes them: dequantized constants, zero points for columns, batches of several ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quantized_cases import check_compiled, check_steps
from runtime_cases import RuntimeCase

STORED = {"s": np.float32(0.05), "z": np.uint8(7), "t": np.float32(0.02), "q": np.uint8(130)}
PADS = {"pads": [0, 0, 1, 1, 0, 0, 0, 2], "v": np.uint8(9)}
ZERO = np.uint8(3)


def pad(value: str) -> RuntimeCase:
    """Return a Pad between DequantizeLinear and QuantizeLinear whose value has this scale and zero point."""
    body = f"d = DequantizeLinear(x, s, z) c = DequantizeLinear({value}) e = Pad(d, pads, c)"
    used = {name: number for name, number in STORED.items() if name in f"s z {value}"}
    image = np.random.default_rng(1).integers(0, 255, (1, 2, 3, 4))
    return RuntimeCase(
        f"{body} y = QuantizeLinear(e, s, z)", "uint8[1,2,3,4] x", used | PADS, values={"x": image}
    )


def product(a: tuple[int, ...], b: tuple[int, ...], zero: np.ndarray, is_constant: bool) -> RuntimeCase:
    """Return a MatMulInteger of uint8 and int8.  zero: zero point of the second operand.

    Two products of a computed second operand fit 16 bits: ONNX Runtime saturates their sum on x86-64 processors
    without VNNI, and makes only constants precise.
    """
    rng = np.random.default_rng(2)
    values = {
        "x": rng.integers(0, 255 if is_constant else 127, a),
        "w": rng.integers(-128, 127, b).astype(np.int8),
    }
    ports = f"uint8{list(a)} x" + ("" if is_constant else f", int8{list(b)} w")
    constants = {"p": ZERO, "r": zero} | ({"w": values["w"]} if is_constant else {})
    return RuntimeCase("y = MatMulInteger(x, w, p, r)", ports, constants, values=values)


PADDED = {"same": pad("v, s, z"), "another": pad("v, t, q")}
BATCHES = {
    "crossed": ((2, 1, 3, 4), (3, 4, 5)),
    "lower_rank": ((2, 3, 3, 4), (3, 4, 5)),
    "single": ((2, 3, 3, 4), (1, 1, 4, 5)),
    "matrix": ((3, 4), (2, 4, 5)),
    "vector": ((4,), (2, 4, 5)),
}
PRODUCTS = {
    f"{name}_{'constant' if is_constant else 'computed'}": product(*shapes, np.array(5, np.int8), is_constant)
    for name, shapes in BATCHES.items()
    for is_constant in (False, True)
} | {
    "equal_columns": product((2, 3, 700), (700, 5), np.full(5, -4, np.int8), True),
    "columns": product((2, 3, 4), (4, 5), np.arange(5, dtype=np.int8), True),
}


@pytest.mark.parametrize("name", PADDED)
def test_pad_takes_a_dequantized_constant(name: str, tmp_path: Path) -> None:
    assert "Pad" in check_steps(PADDED[name], tmp_path / "m.onnx", PADDED[name].values, steps=0)


@pytest.mark.parametrize("name", PRODUCTS)
def test_product_of_integers_has_the_bits_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    ops = check_steps(PRODUCTS[name], tmp_path / "m.onnx", PRODUCTS[name].values, steps=0)
    assert ("MatMulInteger" in ops) == (name != "columns")


@pytest.mark.slow
def test_libraries_have_the_bits_of_onnx_runtime(tmp_path: Path) -> None:
    check_compiled(PADDED | PRODUCTS, tmp_path, steps=0)
