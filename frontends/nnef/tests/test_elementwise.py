"""Operations on each element by itself, held against the definitions of the specification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import Case, check, floats, load, write_model

from mace_core.errors import MaceError

WHOLE = (
    "abs",
    "sign",
    "neg",
    "copy",
    "floor",
    "ceil",
    "sqr",
    "exp",
    "sin",
    "cos",
    "sinh",
    "cosh",
    "tanh",
    "atan",
)
ACTIVATIONS = ("relu", "sigmoid", "softplus", "gelu", "silu", "elu", "selu", "asinh", "round")


@pytest.mark.parametrize("name", [*WHOLE, *ACTIVATIONS])
def test_unary(name: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0);"), tmp_path)


@pytest.mark.parametrize("name", ["log", "log2", "sqrt", "rsqrt", "rsqr", "rcp"])
def test_unary_of_positive_numbers(name: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0);", low=0.2), tmp_path)


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "tan"])
def test_unary_of_small_numbers(name: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0);", low=-0.9, high=0.9), tmp_path)


def test_acosh(tmp_path: Path) -> None:
    check(Case("y = acosh(x0);", low=1.1, high=4), tmp_path)


def test_halves_are_rounded_up(tmp_path: Path) -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49, -0.51], np.float32)
    check(Case("y = round(x0);", (halves,)), tmp_path)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "min", "max", "pow"])
@pytest.mark.parametrize(
    "shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (1, 3)), ((2,), (2, 3, 4)), ((1, 3), (2, 1, 4))]
)
def test_binary_broadcasts_from_the_first_axis(
    name: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    check(Case(f"y = {name}(x0, x1);", shapes, low=0.3), tmp_path)


def test_a_number_in_the_text_is_an_operand(tmp_path: Path) -> None:
    check(Case("a = mul(x0, 2.5);\n    b = sub(1.0, a);\n    y = pow(b, 2.0);"), tmp_path)


@pytest.mark.parametrize("name", ["lt", "gt", "le", "ge", "eq", "ne"])
def test_comparisons(name: str, tmp_path: Path) -> None:
    x = np.array([[1, 2], [3, 2]], np.float32)
    check(Case(f"y = {name}(x0, x1);", (x, np.array([2, 2], np.float32))), tmp_path)


@pytest.mark.parametrize("name", ["and", "or"])
def test_logical(name: str, tmp_path: Path) -> None:
    x = np.array([[True, False], [True, False]])
    check(
        Case(f"a = not(x0);\n    y = {name}(a, x1);", (x, np.array([[True, True], [False, False]]))), tmp_path
    )


def test_select(tmp_path: Path) -> None:
    check(Case("c = gt(x0, 0.0);\n    y = select(c, x1, -1.0);", ((2, 3, 4), (2, 3))), tmp_path)


@pytest.mark.parametrize("bounds", ["-0.5, 1.0", "x1, x2"])
def test_clamp(bounds: str, tmp_path: Path) -> None:
    check(Case(f"y = clamp(x0, {bounds});", ((2, 3, 4), (2, 3), (1,))), tmp_path)


def test_the_lower_bound_of_clamp_wins(tmp_path: Path) -> None:
    graph = check(Case("y = clamp(x0, 1.0, -1.0);"), tmp_path)
    assert "Clip" not in [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    "body",
    [
        "y = elu(x0, alpha = 0.3);",
        "y = selu(x0, alpha = 1.5, lambda = 0.5);",
        "y = leaky_relu(x0, alpha = 0.2);",
        "y = softabs(x0, epsilon = 0.25);",
    ],
)
def test_activations_with_attributes(body: str, tmp_path: Path) -> None:
    check(Case(body), tmp_path)


def test_prelu_has_a_slope_for_each_channel(tmp_path: Path) -> None:
    check(Case("y = prelu(x0, slope);", variables={"slope": floats(1, 3)}), tmp_path)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_add_n(count: int, tmp_path: Path) -> None:
    names = ", ".join(f"x{i}" for i in range(count))
    check(Case(f"y = add_n([{names}]);", ((2, 3),) * count), tmp_path)


def test_copy_n(tmp_path: Path) -> None:
    check(Case("[a, y] = copy_n(x0, times = 2);", outputs=("a", "y")), tmp_path)


@pytest.mark.parametrize("kind", ["integer", "logical", "scalar"])
def test_cast(kind: str, tmp_path: Path) -> None:
    check(Case(f"y = cast<{kind}>(x0);", (np.array([-1.5, 0, 1.5, 3], np.float32),)), tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "y = linear_quantize(x0, -1.0, 1.5, bits = 4);",
        "y = min_max_linear_quantize(x0, low, high, bits = 8, signed = true, symmetric = true);",
    ],
)
def test_fake_quantization(body: str, tmp_path: Path) -> None:
    bounds = {"low": np.full((1, 3), -1.1, np.float32), "high": np.full((1, 3), 1.3, np.float32)}
    check(Case(body, variables=bounds), tmp_path)


def test_too_many_bits_are_refused(tmp_path: Path) -> None:
    text = Case("y = linear_quantize(x0, -1.0, 1.0, bits = 40);").text()
    with pytest.raises(MaceError, match=r"node 'y' \(linear_quantize\): 40 bits; single precision holds 24"):
        load(write_model(tmp_path / "m", text))
