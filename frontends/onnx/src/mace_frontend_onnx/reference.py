"""Runs a model in ONNX Runtime, for validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_onnx.input_values import fixed_values
from mace_frontend_onnx.model_file import read
from mace_frontend_onnx.model_part import output_sequences
from mace_frontend_onnx.node import attribute_value

ToArrays = Callable[[Any], Mapping[str, Array]]
"""Turns an output of ONNX Runtime into the arrays of the library's outputs by name."""


@dataclass(frozen=True)
class SessionSetting:
    """Keys of ONNX Runtime's sessions with their values, and what a report then adds to its name."""

    keys: Mapping[str, str]
    note: str = ""


# Without it, products of int8 weights saturate at 16 bits on x86-64 processors without VNNI, so that the
# reference would depend on the machine (onnxruntime_session_options_config_keys.h). It still does where a
# model multiplies constants, or int8 tensors that it computes: the key reaches neither.
PRECISE = MappingProxyType({"session.x64quantprecision": "1"})
# The optimizer makes MatMulNBits of a product with dequantized weights. By default that rounds the other
# factor to eight bits (level 4); level 1 computes in single precision, as ONNX defines both operators.
FLOATS = MappingProxyType({"session.qdq_matmulnbits_accuracy_level": "1"})
# ONNX Runtime 1.32 fails to make a model precise whose weights share a zero point. Then QuantizeLinear and
# DequantizeLinear are computed as the standard defines them, with floats between them.
LITERAL = SessionSetting({"session.disable_quant_qdq": "1", **FLOATS}, ", quantized layers in floats")
EXACT = (SessionSetting({**PRECISE, **FLOATS}), LITERAL)
"""Settings to validate with, tried one after the other."""

# The same layers as integers, for benchmarks: that is how an application would run them.
USUAL = SessionSetting({}, ", sums of 8-bit products may saturate")
FAST = (SessionSetting(PRECISE), USUAL)
"""Settings to measure with, tried one after the other."""


def reference(
    files: Files, model: Model, settings: tuple[SessionSetting, SessionSetting] = EXACT
) -> Reference | None:
    """Return what runs the model, cut where the deployment file cuts it, on one CPU thread.

    None if ONNX Runtime is not installed. The callable takes arrays by input name, in ONNX's order of axes,
    and returns arrays by output name for those outputs whose types the file describes.

    settings: how the model is run, and how if ONNX Runtime refuses that.
    """
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime as ort

    inputs, fixed = [port.name for port in model.inputs], fixed_values(read(files[0]), model)
    open_session = partial(_open_session, files[0], inputs, fixed, [port.name for port in model.outputs])
    setting, alternative = settings
    try:
        session, names = open_session(setting)
    except MaceError as error:
        setting = alternative
        try:
            session, names = open_session(setting)
        except MaceError:
            raise error from None
    required = {value.name for value in session.get_inputs()}
    fixed = {name: array for name, array in fixed.items() if name in required}
    conversions = _conversions(files, model, session)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        outputs: dict[str, Array] = {}
        for name, value in zip(names, session.run(names, {**fixed, **arrays}), strict=True):
            convert = conversions.get(name)
            outputs.update(convert(value) if convert else {name: value})
        return outputs

    return Reference(run, f"ONNX Runtime {ort.__version__}{setting.note}")


def _open_session(
    path: Path,
    inputs: Sequence[str],
    fixed: Mapping[str, Array],
    outputs: Sequence[str],
    setting: SessionSetting,
) -> tuple[Any, list[str]]:
    """Open a session of the part of a model between these ports on one thread; () for the model's own ports.

    Return it with the names of its outputs. Raises MaceError where ONNX Runtime refuses the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Errors are raised as well; ONNX Runtime would print those of a first try, too.
    options.log_severity_level = 4
    for key, value in setting.keys.items():
        options.add_session_config_entry(key, value)
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        own_inputs = [value.name for value in session.get_inputs()]
        own_outputs = [value.name for value in session.get_outputs()]
        if (not inputs or {*inputs} == {*own_inputs}) and {*outputs} <= {*own_outputs}:
            return session, list(outputs) or own_outputs
        # The extractor needs the type of every tensor at which it cuts, so inference comes first; what it
        # cannot describe is no output of the reference.
        full = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
        described = {value.name for value in (*full.graph.value_info, *full.graph.output)}
        names = [name for name in outputs if name in described] or own_outputs
        cuts = [*inputs, *fixed] if inputs else own_inputs
        part = onnx.utils.Extractor(full).extract_model(cuts, names)
        session = ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime derives its errors from nothing narrower
        problem = f"ONNX Runtime refuses it: {error}"
        raise MaceError(path.name, problem, "validate against stored data instead") from error
    return session, names


def _conversions(files: Files, model: Model, session: Any) -> dict[str, ToArrays]:
    """Return a conversion for each output that a library does not give in the form of ONNX Runtime."""
    graph = onnx.load(str(files[0]), load_external_data=False).graph
    conversions: dict[str, ToArrays] = {}
    if any(value.type == "tensor(string)" for value in session.get_outputs()):
        for name, strings in output_strings(files, model).items():
            conversions[name] = partial(_strings_to_indices, name, strings)
    for name, elements in output_sequences(graph).items():
        conversions[name] = partial(_sequence_to_arrays, elements)
    for node in graph.node:
        if node.op_type == "ZipMap":
            conversions[node.output[0]] = partial(_maps_to_columns, node.output[0], class_labels(node))
    return conversions


def _strings_to_indices(name: str, strings: Sequence[str], value: Any) -> Mapping[str, Array]:
    indices = [strings.index(text) for text in value.reshape(-1)]
    return {name: np.array(indices, np.int64).reshape(value.shape)}


def _sequence_to_arrays(names: Sequence[str], value: Any) -> Mapping[str, Array]:
    return dict(zip(names, value, strict=True))


def _maps_to_columns(name: str, labels: Sequence[int | str], value: Any) -> Mapping[str, Array]:
    return {name: np.array([[row[label] for label in labels] for row in value], np.float32)}


def class_labels(node: onnx.NodeProto) -> tuple[int | str, ...]:
    """Return the classes of a ZipMap in the order of its input's columns."""
    values = [attribute_value(a) for a in node.attribute if a.name.startswith("classlabels")]
    (labels,) = filter(None, values)
    return tuple(labels)


def output_strings(files: Files, model: Model) -> dict[str, tuple[str, ...]]:
    """Return the strings that the integers of outputs stand for; a library gives the integers."""
    from mace_frontend_onnx.load import read_translation

    return dict(read_translation(files, model, {}).strings)
