"""Labels that are strings: the graph gives their indices, and a note lists the labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_frontend_onnx import Onnx

PORTS = "float[4,3] x"


def classifier(labels: list[str], behind: str = "", outputs: str = "l y") -> RuntimeCase:
    """A linear classifier of these labels; behind: further nodes."""
    numbers = ",".join(f"{number:.3f}" for number in normal(3 * len(labels)))
    names = ",".join(f'"{label}"' for label in labels)
    # ONNX Runtime takes the number of classes from the intercepts.
    zeros = ",".join("0.0" for _ in labels)
    body = f"l, y = ai.onnx.ml.LinearClassifier<coefficients=[{numbers}], intercepts=[{zeros}], classlabels_strings=[{names}]>(x) {behind}"
    return RuntimeCase(body, PORTS, outputs=outputs, values={"x": normal(4, 3, seed=2)})


def load(path: Path, *ports: Port) -> Graph:
    return Onnx().load((path,), Model("m", (path,), outputs=ports), core_ops())


@pytest.mark.parametrize(("count", "end"), [(3, "'c2')"), (20, "'c19')"), (21, "'c19', ...)")])
def test_text_is_refused_with_the_lines_to_write(count: int, end: str, tmp_path: Path) -> None:
    classifier([f"c{number}" for number in range(count)]).write(tmp_path / "m.onnx")
    with pytest.raises(MaceError) as error:
        load(tmp_path / "m.onnx")
    problem, others, index, *lines = str(error.value).split("\n")
    assert problem.startswith(
        "m.onnx: output 'l' is text, which a library does not give; write in the deployment"
    )
    assert others.strip() == 'output_tensors: ["y"]' or "y" in others
    assert index.startswith("or take the index of its text in ('c0', 'c1', ")
    assert f"{end} instead:" in index
    assert any("int64" in line and "float32" in line for line in lines)


@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.F32, DType.BOOL, None])
def test_integers_that_the_deployment_file_states_are_indices(dtype: DType | None, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    case = classifier(["b", "a", "c"])
    case.write(path)
    ports = (Port("l", dtype=dtype), Port("y"))
    if dtype not in (DType.I64, DType.I32):
        with pytest.raises(MaceError, match="output 'l' is text"):
            load(path, *ports)
        return
    graph = load(path, *ports)
    assert graph.notes == ("m.onnx: output 'l' is the index of its text in: 'b', 'a', 'c'",)
    run = Onnx().reference((path,), Model("m", (path,), outputs=ports))
    assert run is not None
    arrays = case.inputs(graph)
    np.testing.assert_array_equal(execute(graph, arrays)["l"], run(arrays)["l"])


@pytest.mark.parametrize(
    ("behind", "is_text"),
    [
        ("k = Identity(l)", True),
        ("k = Reshape(l, s)", True),
        ("k = Slice(l, s, t)", True),
        ("k = Concat<axis=0>(l, l)", False),
        ("k = Equal(l, l)", False),
    ],
)
def test_text_is_moved_and_not_computed_with(behind: str, is_text: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    case = classifier(["b", "a", "c"], behind, "k")
    RuntimeCase(
        case.body, PORTS, {"s": [2], "t": [4]} if "Slice" in behind else {"s": [2, 2]}, outputs="k"
    ).write(path)
    remedy = "cut the graph before it with output_tensors, and work on text in the application"
    with pytest.raises(
        MaceError, match="output 'k' is text" if is_text else f"it computes with text; {remedy}"
    ):
        load(path)


MAP = "classlabels_int64s=[7,3,5]"


def test_maps_of_onnx_runtime_are_columns(tmp_path: Path) -> None:
    RuntimeCase(f"y = ai.onnx.ml.ZipMap<{MAP}>(x)", PORTS).write(tmp_path / "m.onnx")
    run = Onnx().reference((tmp_path / "m.onnx",), Model("m", (tmp_path / "m.onnx",)))
    assert run is not None
    x = normal(4, 3)
    np.testing.assert_array_equal(run({"x": x})["y"], x)


def test_sequences_are_their_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    RuntimeCase("a = Sin(x) b = Cos(x) y = SequenceConstruct(a, b)", PORTS, outputs="y").write(path)
    graph = load(path)
    assert graph.outputs == ("a", "b")
    assert graph.notes == ("m.onnx: output 'y' is a sequence; its tensors are outputs: a, b",)
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    x = normal(4, 3)
    expected = run({"x": x})
    assert list(expected) == ["a", "b"]
    for name, array in expected.items():
        np.testing.assert_allclose(execute(graph, {"x": x})[name], array, rtol=1e-5)
    with pytest.raises(MaceError, match="output 'y' is a sequence; name the tensors in it:"):
        load(path, Port("y"))
