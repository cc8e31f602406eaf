"""Numbers as a deployment file may write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.deployment import load_deployment
from mace_core.deployment.objects import Model

TEXT = """library_name: lib
models:
  net:
    model_file_path: net.onnx
    input_tensors: [x]
    output_tensors: [y]
"""


def load(folder: Path, lines: str) -> Model:
    (folder / "net.onnx").touch()
    file = folder / "lib.yml"
    file.write_text(TEXT + lines)
    (model,) = load_deployment(file, ("onnx",)).models
    return model


@pytest.mark.parametrize(("text", "number"), [("1e3", 1000), ("2.0", 2), ("+5", 5)])
def test_an_integer_may_have_an_exponent_or_a_fraction_of_zero(
    tmp_path: Path, text: str, number: int
) -> None:
    window = load(tmp_path, f"    opencl_queue_window_size: {text}\n").keys["opencl_queue_window_size"]
    assert (type(window), window) == (int, number)


def test_subgraphs_are_sorted_by_an_order_with_an_exponent(tmp_path: Path) -> None:
    model = load(tmp_path, "    subgraphs:\n      a: {order: 2}\n      b: {order: 1e0}\n")
    assert [stage.keys["order"] for stage in model.stages] == [1, 2]
