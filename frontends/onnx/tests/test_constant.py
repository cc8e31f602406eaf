"""Operators whose results are known when the model is read, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from runtime_cases import RuntimeCase

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import FOLD_LIMIT
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx
from mace_frontend_onnx.ops import constant


def load(path: Path, body: str, **constants: Array) -> Graph:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[N] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].ClearField("type")
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    path.write_bytes(model.SerializeToString())
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def compute(graph: Graph) -> Array:
    return execute(graph, {"x": np.float32([7])})["y"]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 9, 2), (1, 9, 2), (0, -3, 1), (5, 0, -2), (3, 3, 1)]
)
def test_range(start: int, limit: int, delta: int, dtype: type, tmp_path: Path) -> None:
    """An input of one element lies before the range, so that an empty range can be seen."""
    numbers = {"o": dtype(start), "n": dtype(limit), "d": dtype(delta)}
    body = "a = Range(o, n, d) b = Cast<to=1>(a) y = Concat<axis=0>(x, b)"
    y = compute(load(tmp_path / "m.onnx", body, **numbers))
    np.testing.assert_array_equal(y, [7, *range(start, limit, delta)])


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique(is_sorted: int, axis: int | None, tmp_path: Path) -> None:
    data = np.float32([3, 1, 3, 2, 1, 5])
    attributes = f"sorted={is_sorted}" + ("" if axis is None else f", axis={axis}")
    body = f"v, i, n, c = Unique<{attributes}>(d)"
    casts = "".join(f" {name}f = Cast<to=1>({name})" for name in "inc")
    y = compute(load(tmp_path / "m.onnx", f"{body}{casts} y = Concat<axis=0>(x, v, if, nf, cf)", d=data))
    values = [1, 2, 3, 5] if is_sorted else [3, 1, 2, 5]
    first = [data.tolist().index(value) for value in values]
    inverse = [values.index(value) for value in data.tolist()]
    counts = [data.tolist().count(value) for value in values]
    np.testing.assert_array_equal(y, [7, *values, *first, *inverse, *counts])


@pytest.mark.parametrize(("axis", "shape"), [(None, (2,)), (0, (1, 3)), (1, (2, 1))])
def test_compress(axis: int | None, shape: tuple[int, ...], tmp_path: Path) -> None:
    condition = np.array([False, True, False, False, True]) if axis is None else np.array([False, True])
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    attribute = "" if axis is None else f"<axis={axis}>"
    graph = load(tmp_path / "m.onnx", f"a = Compress{attribute}(d, c) y = Add(a, x)", d=data, c=condition)
    y = compute(graph)
    assert y.shape == shape
    np.testing.assert_array_equal(y, np.compress(condition, data, axis).reshape(shape) + 7)


@pytest.mark.parametrize(("count", "op"), [(FOLD_LIMIT // 4, None), (FOLD_LIMIT // 4 + 1, "Expand")])
def test_constant_of_shape_is_folded_up_to_the_limit(count: int, op: str | None, tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", "a = ConstantOfShape(s) y = Add(a, x)", s=np.array([count]))
    assert [node.op.name for node in graph.nodes] == [*([op] if op else []), "Add"]
    assert (compute(graph) == 7).all()


@pytest.mark.parametrize("k", [-1, 0, 1])
def test_eye_like(k: int, tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", f"a = EyeLike<k={k}>(d) y = Mul(a, x)", d=np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(compute(graph), 7 * np.eye(2, 3, k))


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ("a = Range(o, n, d) b = Cast<to=1>(a) y = ReduceMax<axes=[0]>(b)", True),
        ("a = Range(o, m, d) b = Cast<to=1>(a) y = ReduceMax<axes=[0]>(b)", False),
        ("a = EyeLike<dtype=1>(x) y = ReduceMax<axes=[0]>(a)", True),
        ("a = EyeLike<dtype=11>(x) y = ReduceMax<axes=[0]>(a)", False),
    ],
)
def test_numbers_that_are_made_fit_a_constant(
    body: str, fits: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constant, "FOLD_LIMIT", 48)
    constants = {"o": np.array(0), "n": np.array(6), "m": np.array(7), "d": np.array(1)}
    case = RuntimeCase(body, "float[3,4] x", constants, opset=12)
    if fits:
        assert case.load(tmp_path / "m.onnx").outputs == ("y",)
        return
    with pytest.raises(
        MaceError, match=r"(it makes 7 numbers|a matrix of 3 x 4); give (them|it) as a constant"
    ):
        case.load(tmp_path / "m.onnx")
