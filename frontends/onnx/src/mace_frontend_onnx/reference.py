"""The model in ONNX Runtime, for validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_onnx.boundary import fixed_values, sequences_of
from mace_frontend_onnx.node import plain
from mace_frontend_onnx.source import read


def reference(files: Files, model: Model) -> Reference | None:
    """Run the model, cut where the deployment file cuts it, on one CPU thread.

    None if ONNX Runtime is not installed.

    The callable takes arrays by input name, in ONNX's order of axes, and gives arrays by output name, for
    those that the file describes.
    """
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime as ort

    given, fixed = [p.name for p in model.inputs], fixed_values(read(files[0]), model)
    session, names = _open_session(files[0], given, fixed, [p.name for p in model.outputs])
    asked = {v.name for v in session.get_inputs()}
    fixed = {name: array for name, array in fixed.items() if name in asked}
    graph = onnx.load(str(files[0]), load_external_data=False).graph
    sequences = sequences_of(graph)
    columns = {node.output[0]: plain_labels(node) for node in graph.node if node.op_type == "ZipMap"}
    texts = (
        text_outputs(files, model) if any(v.type == "tensor(string)" for v in session.get_outputs()) else {}
    )

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        found: dict[str, Array] = {}
        for name, value in zip(names, session.run(names, {**fixed, **arrays}), strict=True):
            if name in columns:
                found[name] = np.array([[row[label] for label in columns[name]] for row in value], np.float32)
            elif name in sequences:
                found.update(zip(sequences[name], value, strict=True))
            elif name in texts:
                found[name] = np.array(
                    [texts[name].index(text) for text in value.reshape(-1)], np.int64
                ).reshape(value.shape)
            else:
                found[name] = value
        return found

    return Reference(run, f"ONNX Runtime {ort.__version__}")


def _open_session(
    file: Path, inputs: Sequence[str], fixed: Mapping[str, Array], outputs: Sequence[str]
) -> tuple[Any, list[str]]:
    """Open a session of the part of a model between these ports on one thread; () for the model's own ports.

    Return it with the names of its outputs. MaceError where ONNX Runtime refuses the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        own_inputs = [value.name for value in session.get_inputs()]
        own_outputs = [value.name for value in session.get_outputs()]
        if (not inputs or {*inputs} == {*own_inputs}) and {*outputs} <= {*own_outputs}:
            return session, list(outputs) or own_outputs
        whole = onnx.shape_inference.infer_shapes(onnx.load(str(file)))
        described = {v.name for values in (whole.graph.value_info, whole.graph.output) for v in values}
        wanted = [name for name in outputs if name in described]
        first = [*inputs, *fixed] if inputs else own_inputs
        part = onnx.utils.Extractor(whole).extract_model(first, wanted or own_outputs)
        session = ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime derives its errors from nothing narrower
        problem = f"ONNX Runtime refuses it: {error}"
        raise MaceError(file.name, problem, "validate against stored data instead") from error
    return session, wanted or own_outputs


def plain_labels(node: onnx.NodeProto) -> tuple[int | str, ...]:
    """The classes of a ZipMap in the order of its input's columns."""
    (labels,) = (plain(a) for a in node.attribute if a.name.startswith("classlabels") and plain(a))
    return tuple(labels)


def text_outputs(files: Files, model: Model) -> dict[str, tuple[str, ...]]:
    """The texts that the integers of outputs stand for, as the library gives them in the place of text."""
    from mace_frontend_onnx.load import translated

    return dict(translated(files, model, {}).texts)
