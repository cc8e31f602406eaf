"""Integers that depend on floats: quotients are the nearest float, and products and sums two roundings."""

from __future__ import annotations

import ctypes
import re
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from opencl_device import load_on_device, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import host
from mace_core.testing.samples import sample
from mace_target_opencl.enqueue import render_kernel, render_program
from mace_target_opencl.exact import PRELUDE
from mace_target_opencl.target import Opencl

DEVICE = """\
#include <math.h>
#include <string.h>
static int error, slope_error;
static int as_int(float v) { int bits; memcpy(&bits, &v, 4); return bits; }
static float as_float(int bits) { float v; memcpy(&v, &bits, 4); return v; }
static float divide_roughly(float a, float b, int units)
{
    const float q = a / b;
    return isfinite(q) && fabsf(q) > 1e-37f && fabsf(q) < 1e38f ? as_float(as_int(q) + units) : q;
}
#define fabs fabsf
#define fma fmaf
#define copysign copysignf
"""
"""What a device has whose quotients are off by `error` units in the last place, reciprocals by `slope_error`."""

PROBE = """
void divide_all(const float *a, const float *b, float *q, int count, int units, int slope);
void divide_all(const float *a, const float *b, float *q, int count, int units, int slope)
{
    error = units;
    slope_error = slope;
    for (int i = 0; i < count; i++)
        q[i] = mace_divide(a[i], b[i]);
}
"""
ROUNDED = ("Round", "Floor", "Ceil", "Sign", "Cast", "Greater", "Less", "Equal")


def build_rough_device(folder: Path) -> ctypes.CDLL:
    """Compile the division of kernels for a device that divides as roughly as OpenCL allows."""
    rough = PRELUDE
    for division, units in (("dividend / divisor", "error"), ("1.0f / b", "slope_error")):
        assert rough.count(division + ";") + rough.count(division + ",") == 1
        rough = rough.replace(division, f"divide_roughly({division.replace(' /', ',')}, {units})")
    compiler, library = host(), folder / "libdivide.so"
    (folder / "divide.c").write_text(DEVICE + rough + PROBE, encoding="utf-8")
    options = ["-O1", "-ffp-contract=off", "-fPIC", "-shared", str(folder / "divide.c"), "-o", str(library)]
    subprocess.run([*compiler.cc, *options, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def choose_near_middles() -> tuple[Array, Array]:
    """Return dividends and divisors whose quotients lie next to the middle of two floats, on either side.

    m b = 2^25 a + r with an odd m of 25 bits and a small r: a / b is m / 2^25 less r / (2^25 b), and m / 2^25
    is the middle.
    """
    pairs = []
    for b in (int(value) | 1 for value in np.random.default_rng(2).integers(2**23, 2**24, 2000)):
        for r in (-3, -1, 1, 3):
            m = r * pow(b, -1, 2**25) % 2**25
            if m >= 2**24:
                pairs.append(((m * b - r) // 2**25, b))
    a, b = np.array(pairs, np.float64).T
    assert (np.maximum(a, b) < 2**24).all(), "floats hold both"
    return a.astype(np.float32), b.astype(np.float32)


def choose_quotients() -> tuple[Array, Array]:
    """Return dividends and divisors: ties of steps of a scale, neighbors, and the ends of the range."""
    rng = np.random.default_rng(0)
    scales = rng.uniform(1e-3, 1, 2000).astype(np.float32) / np.float32(255)
    ties = ((rng.integers(-128, 128, 2000) + 0.5) * scales).astype(np.float32)
    near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
    wide = (rng.standard_normal((2, 20000)) * 2.0 ** rng.integers(-40, 40, (2, 20000))).astype(np.float32)
    ends = np.array([0.0, -0.0, 1e-45, 1e-38, 1e-30, 1.0, -1.0, 3e38, np.inf, -np.inf, np.nan], np.float32)
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    middles = choose_near_middles()
    dividends = np.concatenate([ties, *near, wide[0], pairs[0], middles[0]])
    return dividends, np.concatenate([scales, scales, scales, wide[1], pairs[1], middles[1]])


def test_quotients_are_the_nearest_floats_whatever_the_device_divides(tmp_path: Path) -> None:
    library = build_rough_device(tmp_path)
    a, b = choose_quotients()
    with np.errstate(all="ignore"):
        expected = a / b
    in_range = ~((np.abs(expected) <= 2.0**-60) | (np.abs(expected) >= 2.0**60))
    for units, slope in product((-2, -1, 0, 1, 2), (-2, 0, 2)):
        actual = np.empty_like(a)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (a, b, actual))
        library.divide_all(*pointers, len(a), units, slope)
        compared = in_range if units else np.ones_like(in_range)
        np.testing.assert_array_equal(actual[compared], expected[compared], err_msg=f"{units} units off")
        zeros = compared & (expected == 0)
        np.testing.assert_array_equal(np.signbit(actual[zeros]), np.signbit(expected[zeros]))


def build_reflection() -> Graph:
    """Return samples beyond the border, where a quotient counts the reflections."""
    builder = Builder("reflection")
    operands = [builder.input("x", DType.F32, (1, 4, 4, 3)), builder.input("grid", DType.F32, (1, 5, 5, 2))]
    return builder.finish([builder.one("GridSample", operands, {"padding": "reflection"})])


@pytest.mark.parametrize("op", ["Div", "Reciprocal", "ReduceMean", "RoiAlign", "GridSample"])
def test_quotients_that_may_be_rounded_call_the_exact_division(op: str) -> None:
    graph = build_reflection() if op == "GridSample" else sample(op, DType.F32)
    assert graph is not None
    calls = Opencl().lower(graph).calls
    program = str(render_program(call.kernel for call in calls))
    assert "float mace_divide(float dividend, float divisor)\n" in program
    source = "".join(render_kernel(call.kernel) for call in calls)
    assert "mace_divide(" in source
    # All others are quotients of indices, which are integers, or by 2.
    rest = re.sub(r"/\*.*?\*/", "", source)
    assert not re.search(r"/ \(float\)|/ \d+\.\d*f|\b[xy] / [xy]\b|1\.0f / ", rest)


def build_chain(op: str, before: str = "Mul") -> Graph:
    """Return a product and a sum whose result is rounded."""
    builder = Builder("chain")
    x, y, z = (builder.input(name, DType.F32, (64, 64)) for name in "xyz")
    product = builder.one(before, [x, y], {"low": -np.inf, "high": np.inf} if before == "MatMul" else {})
    total = builder.one("Add", [product, z])
    operands = [total, z] if op in ("Greater", "Less", "Equal") else [total]
    attrs = {"to": "i32"} if op == "Cast" else {}
    return builder.finish([builder.one(op, operands, attrs)])


@pytest.mark.parametrize("op", ROUNDED)
def test_products_and_sums_before_an_integer_are_two_roundings(op: str) -> None:
    (call,) = Opencl().lower(build_chain(op)).calls
    assert str(render_kernel(call.kernel)).startswith("#pragma OPENCL FP_CONTRACT OFF\n")


def test_a_matrix_product_takes_over_what_rounds_its_sums() -> None:
    (call,) = Opencl().lower(build_chain("Round", "MatMul")).calls
    assert "FP_CONTRACT" not in render_kernel(call.kernel), "sums of products have no order"


def build_dynamic(count: int) -> Graph:
    """Return ONNX's DynamicQuantizeLinear as its nodes, see the operator's definition."""
    builder = Builder("dynamic")
    x = builder.input("x", DType.F32, (count,))
    reduced = {"axes": (0,), "keepdims": False}
    steps = builder.weight("steps", np.array(255, np.float32))
    low = builder.one("Clip", [builder.one("ReduceMin", [x], reduced)], {"min": -np.inf, "max": 0.0})
    high = builder.one("Clip", [builder.one("ReduceMax", [x], reduced)], {"min": 0.0, "max": np.inf})
    scale = builder.one("Div", [builder.one("Sub", [high, low]), steps])
    zero = builder.one("Round", [builder.one("Neg", [builder.one("Div", [low, scale])])])
    shifted = builder.one("Add", [builder.one("Round", [builder.one("Div", [x, scale])]), zero])
    return builder.finish([builder.one("Clip", [shifted], {"min": 0.0, "max": 255.0}), scale, zero])


@pytest.mark.device
@pytest.mark.slow
def test_integers_have_the_bits_of_the_references(tmp_path: Path) -> None:
    require_device()
    count, rng = 4096, np.random.default_rng(1)
    dynamic, chain = build_dynamic(count), build_chain("Round")
    models = load_on_device([dynamic, chain], tmp_path)
    # Every second element lies at a tie of the scale, or a unit beside it.
    ties = (np.arange(count) % 511 - 255).astype(np.float32) * np.float32(0.5) * np.float32(1.7 / 255)
    ties[1::3] = np.nextafter(ties[1::3], np.float32(np.inf))
    ties[0], ties[1] = -0.7, 1.0
    values = rng.uniform(-8, 8, (3, 64, 64)).astype(np.float32)
    # One rounding would leave the tie, to which the two come.
    values[2] = rng.integers(-40, 40, (64, 64)) + np.float32(0.5) - values[0] * values[1]
    for graph, inputs in (
        (dynamic, {"x": ties}),
        (chain, dict(zip("xyz", values, strict=True))),
    ):
        actual, expected = models[graph.name].run(inputs), execute(graph, inputs)
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
