"""NonMaxSuppression with boxes and scores of every kind, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase

from mace_core.errors import MaceError
from mace_core.ir import Array

BOXES, SCORES = "float[1,6,4] b", "float[1,2,6] s"


def boxes() -> dict[str, Array]:
    rng = np.random.default_rng(5)
    corners = rng.uniform(0, 1, (1, 6, 2)).astype(np.float32)
    return {
        "b": np.concatenate([corners, corners + np.float32(0.6)], 2),
        "s": rng.uniform(-1, 1, (1, 2, 6)).astype(np.float32),
    }


@pytest.mark.parametrize("constant", ["", "b", "s", "b s"])
@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ("n", ""),
        ("n, i", ""),
        ("n, i, t", ""),
        ("n, , t", ""),
        ("one, i", ""),
        ("n, i", "<center_point_box=1>"),
    ],
)
def test_boxes_are_those_of_onnx_runtime(inputs: str, attributes: str, constant: str, tmp_path: Path) -> None:
    """A score threshold leaves out low scores; without one, negative scores count as well."""
    values = boxes()
    ports = ", ".join(port for name, port in (("b", BOXES), ("s", SCORES)) if name not in constant)
    constants = {"n": [4], "one": [1], "i": [0.3], "t": [0.1]} | {
        name: values[name] for name in constant.split()
    }
    constants |= {name: np.float32(constants[name]) for name in "it"}
    ports = ports or "float[1] x"
    body = f"y = NonMaxSuppression{attributes}(b, s, {inputs})"
    case = RuntimeCase(body, ports, constants, values={k: v for k, v in values.items() if k not in constant})
    if constant == "b s":
        case.check(tmp_path / "m.onnx")
        return
    actual = case.compute(tmp_path / "m.onnx")["y"]
    whole = RuntimeCase(body, "float[1] x", constants | values)
    expected = whole.compute(tmp_path / "w.onnx")["y"]
    assert len(actual) == 2 * (1 if "one" in inputs else 4)
    np.testing.assert_array_equal(actual[: len(expected)], expected)
    assert (actual[len(expected) :] == -1).all()


@pytest.mark.parametrize("inputs", ["", ", n"])
def test_no_boxes_are_refused(inputs: str, tmp_path: Path) -> None:
    case = RuntimeCase(f"y = NonMaxSuppression(b, s{inputs})", f"{BOXES}, {SCORES}", {"n": [0]})
    with pytest.raises(MaceError, match="asks for no boxes at all; set max_output_boxes_per_class"):
        case.load(tmp_path / "m.onnx")


LOOKUP = """i = NonMaxSuppression(b, s, n)
box = Gather<axis=1>(i, two)
place = Squeeze(box, one)
flat = Squeeze(b, zero)
y = Gather<axis=0>(flat, place)
z = Relu(y)"""


def test_boxes_that_the_model_looks_up_are_refused(tmp_path: Path) -> None:
    """ONNX Runtime gives a row for each selected box. Behind them -1 would be the last box of all."""
    constants = {"n": [4], "two": [2], "one": [1], "zero": [0]}
    case = RuntimeCase(LOOKUP, f"{BOXES}, {SCORES}", constants, outputs="z")
    with pytest.raises(MaceError) as error:
        case.load(tmp_path / "m.onnx")
    assert str(error.value) == (
        "m.onnx: node 'Gather_4' (Gather): it computes with boxes that a suppression selects; their number is known at "
        "run time only, and rows behind the last box would be taken for boxes; name the selected boxes as an "
        "output of the deployment file, and look them up in the application"
    )
