"""Constants in all their forms: whole, half, eight bits, four bits, sparse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_cases import expected, floats, load, stored
from tflite_write import Scales, Sparsity, Step, Value, Written

from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Graph
from mace_core.run.reference import execute

MATRIX = np.float32([[1, 0, 2, 3], [0, 4, 0, 0], [0, 0, 5, 0], [0, 0, 0, -1]])
ROWS = Sparsity((0, 1), (), (4, ([0, 3, 4, 5, 6], [0, 2, 3, 1, 2, 3])))
BLOCKS = Sparsity((0, 1, 2, 3), (0, 1), (2, ([0, 2, 3], [0, 1, 1]), 2, 2))
IN_BLOCKS = [1, 0, 0, 4, 2, 3, 0, 0, 5, 0, 0, -1]


def product(*weights: Value, before: tuple[Step, ...] = ()) -> Written:
    """A product with the last of these weights, or with what a step makes of them."""
    x = Value("x", DType.F32, (2, weights[-1].shape[-1]))
    last = before[-1].outputs[0] if before else weights[-1].name
    results = [Value(s.outputs[0], DType.F32, weights[-1].shape) for s in before]
    step = Step("FULLY_CONNECTED", ["x", last, ""], ["y"], ("FullyConnectedOptions", {}))
    return Written([x, *weights, *results, Value("y")], [*before, step], ["x"], ["y"])


def same_as_litert(folder: Path, graph: Graph, tolerance: float = 1e-5) -> None:
    x = {"x": floats(*graph.tensors["x"].shape)}
    np.testing.assert_allclose(
        execute(graph, x)["y"], expected(folder, x)["y"], rtol=tolerance, atol=tolerance
    )


def test_half_precision_weights_become_floats(tmp_path: Path) -> None:
    half = Value.constant("half", floats(5, 4).astype(np.float16))
    graph = load(tmp_path, product(half, before=(Step("DEQUANTIZE", ["half"], ["whole"]),)))
    assert [n.op.name for n in graph.nodes] == ["MatMul"]
    same_as_litert(tmp_path, graph)


def test_weights_of_eight_bits_meet_floats_as_floats(tmp_path: Path) -> None:
    """LiteRT quantizes the other operand as well, as it runs: it is a step of that away."""
    weights = stored(np.random.default_rng(0).integers(-127, 128, (5, 4)), 0.01)
    graph = load(tmp_path, product(Value.constant("w", np.asarray(weights.data), weights.scales)))
    x = {"x": floats(2, 4)}
    wanted = x["x"] @ (np.asarray(weights.data, np.float32).T * np.float32(0.01))
    np.testing.assert_allclose(execute(graph, x)["y"], wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(expected(tmp_path, x)["y"], wanted, atol=0.03)


def test_four_bits_are_read_two_a_byte(tmp_path: Path) -> None:
    packed = np.uint8([0x21, 0xF8, 0x07])
    weights = Value("w", DType.I8, (1, 5), packed, Scales([0.5], [0]), kind=tflite.TensorType.INT4)
    graph = load(tmp_path, product(weights))
    y = execute(graph, {"x": np.repeat(np.eye(5, dtype="f4")[:2], 1, axis=0)})["y"]
    assert y.ravel().tolist() == [0.5, 1.0]
    assert execute(graph, {"x": np.float32([[0, 0, 1, 0, 0], [0, 0, 0, 1, 1]])})["y"].ravel().tolist() == [
        -4.0,
        3.0,
    ]


@pytest.mark.parametrize(("kind", "name"), [(None, "INT8"), (tflite.TensorType.INT4, "INT4")])
def test_scales_of_blocks_are_refused(kind: int | None, name: str, tmp_path: Path) -> None:
    scales = Scales([], [], details=2)
    weights = Value("w", DType.I8, (1, 5), np.zeros(3 if kind else 5, np.uint8), scales, kind=kind)
    with pytest.raises(MaceError, match=f"'w' is of type {name} with quantization details, which is not"):
        load(tmp_path, product(weights))


def test_details_of_floats_mean_nothing(tmp_path: Path) -> None:
    weights = Value("w", DType.F32, (3, 4), floats(3, 4), Scales([], [], details=1))
    same_as_litert(tmp_path, load(tmp_path, product(weights)))


@pytest.mark.parametrize(("offset", "is_refused"), [(0, False), (1, False), (2, True)])
def test_options_behind_the_tables_are_refused(offset: int, is_refused: bool, tmp_path: Path) -> None:
    step = Step("RELU", ["x"], ["y"], custom_offset=offset)
    graph = Written([Value("x", DType.F32, (2, 3)), Value("y")], [step], ["x"], ["y"])
    if not is_refused:
        assert load(tmp_path, graph).outputs
        return
    with pytest.raises(MaceError, match="operator 0 has its options behind the tables"):
        load(tmp_path, graph)


def sparse(values: Array | list[float], sparsity: Sparsity) -> Written:
    held = Value("held", DType.F32, MATRIX.shape, np.float32(values), sparsity=sparsity)
    return product(held, before=(Step("DENSIFY", ["held"], ["whole"]),))


@pytest.mark.parametrize("case", [([1, 2, 3, 4, 5, -1], ROWS), (IN_BLOCKS, BLOCKS)], ids=["rows", "blocks"])
def test_sparse_weights_are_filled_up(case: tuple[list[float], Sparsity], tmp_path: Path) -> None:
    graph = load(tmp_path, sparse(*case))
    x = floats(2, 4)
    np.testing.assert_allclose(execute(graph, {"x": x})["y"], x @ MATRIX.T, rtol=1e-6)
    same_as_litert(tmp_path, graph)


@pytest.mark.parametrize(
    ("sparsity", "problem"),
    [
        (Sparsity((0, 0), (), (4, 4)), "traversal"),
        (Sparsity((0, 1), (), (4, ([0, 3, 4, 5, 6], [0, 2, 9, 1, 2, 3]))), "outside"),
        (Sparsity((0, 1), (), (4, ([0, 9, 4, 5, 6], [0, 2, 3, 1, 2, 3]))), "places"),
        (Sparsity((0, 1), (), (1 << 30, ([0], [0]))), "places"),
        (Sparsity((0, 1), (), (4, ([0, 3], [0, 2, 3]))), "segments"),
        (Sparsity((0, 1), (7,), (4, 4)), "traversal"),
        (Sparsity((0, 1, 2), (1,), (2, 1, ([0, 3, 6], [0, 1, 2, 0, 1, 2]))), "blocks of unknown size"),
    ],
)
def test_damaged_sparsity_is_told(sparsity: Sparsity, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=problem):
        load(tmp_path, sparse([1, 2, 3, 4, 5, -1], sparsity))


def test_a_constant_of_another_size_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"case\.tflite.*'w' has 12 bytes for a shape of \[1, 4\]"):
        load(tmp_path, product(Value("w", DType.F32, (1, 4), np.float32([1, 2, 3]))))
