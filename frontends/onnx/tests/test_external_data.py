"""Weights beside the model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from mace_frontend_onnx import Onnx


def model(folder: Path, outside: bool) -> Path:
    """A product with a matrix."""
    matrix = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    x, y = (onnx.helper.make_tensor_value_info(n, 1, (1, 64)) for n in "xy")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [matrix]
    )
    file = folder / "model.onnx"
    onnx.save(
        onnx.helper.make_model(graph),
        file,
        save_as_external_data=outside,
        location="weights.bin",
        size_threshold=0,
    )
    return file


def test_a_change_of_the_weights_is_a_change_of_the_model(tmp_path: Path) -> None:
    file = model(tmp_path, outside=True)
    assert Onnx().dependencies((file,)) == (file, tmp_path / "weights.bin")


def test_a_model_with_its_weights_inside_is_one_file(tmp_path: Path) -> None:
    file = model(tmp_path, outside=False)
    assert Onnx().dependencies((file,)) == (file,)


def test_what_is_no_model_is_left_to_loading(tmp_path: Path) -> None:
    for number, data in enumerate((b"", b"location", b"\x00" * 20 + b"location")):
        file = tmp_path / f"{number}.onnx"
        file.write_bytes(data)
        assert Onnx().dependencies((file,)) == (file,)
