"""Models whose weights have smaller forms: of half precision, cast from it, and mostly zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mace_core.ir import Array

MODELS = ("half", "cast", "sparse")


def write_models(folder: Path, form: str) -> Path:
    """The models, and a deployment file `stored.yml` that asks for this form of their weights.

    Gives the latter.
    """
    rng = np.random.default_rng(0)
    arrays = {
        "c": rng.standard_normal((24, 8, 3, 3)) / 8,
        "m": rng.standard_normal((24, 60)) / 4,
        "b": rng.standard_normal(60),
    }
    masks = {name: rng.random(array.shape) < 0.2 for name, array in arrays.items()}
    half = {name: array.astype(np.float16) for name, array in arrays.items()}
    _save(folder / "half.onnx", half)
    _save(folder / "cast.onnx", half, casts=True)
    # A product with the mask would make half of the zeros -0.0, which is stored as a value.
    _save(
        folder / "sparse.onnx",
        {name: np.where(masks[name], array, 0).astype(np.float32) for name, array in arrays.items()},
    )
    text = "library_name: stored\nmodels:\n"
    for name in MODELS:
        text += f"  {name}:\n    model_file_path: {name}.onnx\n    weights: {form}\n    subgraphs:\n"
        text += "      - input_tensors: x\n        output_tensors: y\n"
    (folder / "stored.yml").write_text(text)
    return folder / "stored.yml"


def _save(path: Path, arrays: dict[str, Array], *, casts: bool = False) -> None:
    """A convolution, the mean of each channel, a product and a sum."""
    is_half = arrays["c"].dtype == np.float16 and not casts
    dtype = TensorProto.FLOAT16 if is_half else TensorProto.FLOAT
    stored = "stored_" if casts else ""
    nodes = [helper.make_node("Cast", [f"stored_{n}"], [n], f"cast_{n}", to=dtype) for n in arrays if casts]
    nodes += [
        helper.make_node("Conv", ["x", "c"], ["conv"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], "relu"),
        helper.make_node("ReduceMean", ["relu"], ["mean"], "mean", axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["mean", "m"], ["product"], "product"),
        helper.make_node("Add", ["product", "b"], ["y"], "sum"),
    ]
    x, y = (helper.make_tensor_value_info(n, dtype, s) for n, s in (("x", [1, 8, 10, 10]), ("y", [1, 60])))
    weights = [numpy_helper.from_array(array, stored + name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, path.stem, [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
