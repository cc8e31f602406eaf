"""Makes models for the whole-path fuzzer: the operators' own cases of each frontend, grown by random nodes, and changed a little."""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import DType
from mace_core.testing.malformed import Damaged, mutations
from mace_core.testing.structure import mild_json, mild_messages, mild_number

ROOT = Path(__file__).parents[2]
BYTES = 10
"""One mutant in so many has its bytes damaged, the others their structure."""

SOUND = 12
"""One model in so many is left as it is, but for what it has grown."""

Files = Mapping[str, bytes]


def test_module(frontend: str, name: str) -> Any:
    """Import a file of a frontend's tests."""
    title = f"{frontend}_{name}"
    if title not in sys.modules:
        spec = spec_from_file_location(title, ROOT / "frontends" / frontend / "tests" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[title] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[title])
    return sys.modules[title]


def mutants(frontend: str, seed: int, count: int, originals: int = 1 << 30) -> list[Damaged]:
    """Make so many models for a frontend, the same for the same seed; the first is sound.

    originals: how many cases they are made from, at most: frameworks take long to write theirs.
    """
    make, mutate = FRONTENDS[frontend]
    chosen = make(random.Random(f"originals {seed}"), originals)  # repeatable, not secret
    rng = random.Random(f"{frontend} {seed}")  # repeatable, not secret
    results = []
    for i in range(count):
        what, original = chosen[0] if i == 0 else rng.choice(chosen)
        own = random.Random(f"{frontend} {seed} {i}")
        files = mutate(original, own, i == 0)
        if i and i % BYTES == 0:
            name = own.choice(sorted(files))
            files = {**files, name: next(mutations(files[name], own.randrange(1 << 30), 1))}
        results.append(Damaged(f"{frontend} {seed}/{i} from {what}", files))
    return results


def some(cases: Sequence[Any], rng: random.Random, count: int) -> list[Any]:
    """Choose so many cases, at most."""
    return list(cases) if len(cases) <= count else rng.sample(list(cases), count)


# ONNX: the node cases of the onnx package and the networks of our own tests.

UNARY = (
    "Relu",
    "Neg",
    "Sigmoid",
    "Tanh",
    "Abs",
    "Identity",
    "Exp",
    "Softmax",
    "Floor",
    "HardSwish",
    "Erf",
    "Softplus",
)
BINARY = ("Add", "Mul", "Sub", "Max", "Min", "Div")


def onnx_seeds(rng: random.Random, count: int) -> list[tuple[str, Any]]:
    from onnx_cases import bound, cases, choices

    result: list[tuple[str, Any]] = [
        (name, getattr(test_module("onnx", "test_malformed"), name)) for name in ("CONVOLUTION", "MOVEMENT")
    ]
    for case in some(cases(), rng, count):
        arrays = case.data_sets[0][0]
        names = [i.name for i in case.model.graph.input]
        if not all(hasattr(a, "shape") for a in arrays) or sum(np.asarray(a).size for a in arrays) > 1 << 14:
            continue
        given = {n: np.asarray(a) for n, a in zip(names, arrays, strict=True)}
        chosen = choices(given)[min(1, len(choices(given)) - 1)]
        result.append((case.name, bound(case.model, chosen, [given[n] for n in chosen])))
    return result


def onnx_mutant(model: Any, rng: random.Random, sound: bool) -> Files:
    result = type(model)()
    result.CopyFrom(model)
    if not sound:
        _grow_onnx(result, rng)
        if rng.randrange(SOUND):
            result = next(mild_messages(result, rng.randrange(1 << 30), 1))
    return {"m.onnx": result.SerializeToString()}


def _grow_onnx(model: Any, rng: random.Random) -> None:
    """Add some nodes behind random tensors; what they give becomes an output."""
    from onnx import helper

    graph = model.graph
    for number in range(rng.choice((0, 0, 1, 2, 4))):
        known = [*(i.name for i in graph.input), *(o for n in graph.node for o in n.output if o)]
        if not known:
            return
        x, y, result = rng.choice(known), rng.choice(known), f"grown{number}"
        kind = rng.randrange(5)
        if kind < 2:
            node = helper.make_node(rng.choice(UNARY), [x], [result])
        elif kind == 2:
            node = helper.make_node(rng.choice(BINARY), rng.choice(([x, x], [x, y])), [result])
        elif kind == 3:
            node = helper.make_node("Transpose", [x], [result])
        else:
            node = helper.make_node("Concat", [x, rng.choice((x, y))], [result], axis=rng.choice((0, -1, 1)))
        graph.node.append(node)
        outputs = {o.name for o in graph.output}
        if x in outputs and len(graph.output) > 1 and rng.random() < 0.5:
            del graph.output[[o.name for o in graph.output].index(x)]
        graph.output.append(helper.make_empty_tensor_value_info(result))


# TensorFlow Lite: the cases of our own tests, changed as they are described before they are written.


def tflite_seeds(rng: random.Random, count: int) -> list[tuple[str, Any]]:
    module = test_module("tflite", "test_malformed")
    result: list[tuple[str, Any]] = [(f"sound {i}", graphs) for i, graphs in enumerate(module.sound())]
    beside = [case for name in module.BESIDE for case in test_module("tflite", name).CASES]
    return result + [(case.name, (case.written(),)) for case in some(beside, rng, count)]


def tflite_mutant(graphs: tuple[Any, ...], rng: random.Random, sound: bool) -> Files:
    from tflite_write import write

    if sound:
        return {"m.tflite": write(*graphs)}
    for _ in range(20):
        made = (_grow_tflite(graphs[0], rng), *graphs[1:])
        for _ in range(rng.choice((1, 1, 1, 2, 3)) if rng.randrange(SOUND) else 0):
            made = tuple(_changed_object(graph, rng) for graph in made)
        try:
            return {"m.tflite": write(*made)}
        except Exception:  # noqa: BLE001
            continue  # what the format cannot hold
    return {"m.tflite": write(*graphs)}


def _grow_tflite(graph: Any, rng: random.Random) -> Any:
    from tflite_write import Step, Value

    values, steps, outputs = list(graph.values), list(graph.steps), list(graph.outputs)
    for number in range(rng.choice((0, 0, 1, 2, 4))):
        x = rng.choice([v for v in values if v.name])
        name = f"grown{number}"
        kind = rng.randrange(3)
        if kind == 0:
            step = Step(
                rng.choice(("RELU", "LOGISTIC", "TANH", "ABS", "NEG", "EXP", "RELU6")), [x.name], [name]
            )
        elif kind == 1:
            code, options = rng.choice((("ADD", "AddOptions"), ("MUL", "MulOptions"), ("SUB", "SubOptions")))
            step = Step(
                code,
                [x.name, x.name],
                [name],
                (options, {"FusedActivationFunction": rng.choice((0, 0, 1, 3))}),
            )
        else:
            step = Step(
                "CONCATENATION",
                [x.name, x.name],
                [name],
                ("ConcatenationOptions", {"Axis": rng.choice((0, -1, 1))}),
            )
        shape = tuple(2 * d if kind == 2 and i == 0 else d for i, d in enumerate(x.shape))
        values.append(Value(name, x.dtype, shape, scales=x.scales))
        steps.append(step)
        outputs.append(name)
    return replace(graph, values=values, steps=steps, outputs=outputs)


def _changed_object(value: Any, rng: random.Random) -> Any:
    """Change one field of a description, or of what it holds."""
    if is_dataclass(value) and not isinstance(value, type):
        field = rng.choice([f.name for f in fields(value)])
        return replace(value, **{field: _changed_value(getattr(value, field), rng, field)})
    return _changed_value(value, rng, "")


def _changed_value(value: Any, rng: random.Random, field: str) -> Any:
    made = value
    if isinstance(value, DType):
        made = rng.choice(tuple(DType))
    elif isinstance(value, np.ndarray):
        made = _changed_array(value, rng)
    elif is_dataclass(value):
        made = _changed_object(value, rng)
    elif isinstance(value, Mapping) and value:
        key = rng.choice([*value])
        made = {**value, key: _changed_value(value[key], rng, key)}
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        made = _changed_list(list(value), rng, field)
    elif isinstance(value, bool):
        made = not value
    elif isinstance(value, int | float):
        made = mild_number(value, rng)
    return made


def _changed_list(value: list[Any], rng: random.Random, field: str) -> Any:
    if not value:
        return value
    at = rng.randrange(len(value))
    if isinstance(value[at], str):
        value[at] = rng.choice(value) if rng.random() < 0.7 or field == "outputs" else ""
    elif rng.random() < 0.12:
        if rng.random() < 0.5:
            del value[at]
        else:
            value.insert(at, value[at])
    else:
        value[at] = _changed_value(value[at], rng, field)
    return tuple(value) if field in ("shape", "signature") else value


def _changed_array(value: Any, rng: random.Random) -> Any:
    kind = rng.randrange(5)
    if kind == 0 and value.ndim:
        return np.repeat(value, 2, axis=rng.randrange(value.ndim))
    if kind == 1 and value.ndim and value.shape[0]:
        return value[: rng.randrange(value.shape[0] + 1)]
    if kind == 2:
        return value.astype(rng.choice(("f4", "i4", "i8", "i1", "u1", "f2", "i2")))
    if kind == 3 and value.size:
        result = value.copy().reshape(-1)
        with np.errstate(all="ignore"):
            result[rng.randrange(result.size)] = np.asarray(mild_number(result[0].item(), rng)).astype(
                result.dtype, casting="unsafe"
            )
        return result.reshape(value.shape)
    return value.reshape(rng.choice(((-1,), (1, *value.shape), value.shape[::-1])))


# TensorFlow and Caffe: protobuf messages.


def tensorflow_seeds(rng: random.Random, count: int) -> list[tuple[str, Any]]:
    import tensorflow as tf
    from tensorflow_cases import freeze
    from tensorflow_graphs import convolution, movement, written

    from mace_frontend_tensorflow.messages import GraphDef

    result: list[tuple[str, Any]] = [
        ("convolution", written(tf, convolution, (1, 16, 16, 3))),
        ("movement", written(tf, movement, (2, 4, 5))),
    ]
    names = ("elementwise", "movement", "products", "quantize")
    cases = [case for name in names for case in test_module("tensorflow", f"test_{name}").CASES]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in some(cases, rng, count):
            file = freeze(case, Path(folder), tf).file
            result.append((case.name, GraphDef.FromString(file.read_bytes())))
    return result


def tensorflow_mutant(graph: Any, rng: random.Random, sound: bool) -> Files:
    made = (
        graph if sound or not rng.randrange(SOUND) else next(mild_messages(graph, rng.randrange(1 << 30), 1))
    )
    return {"m.pb": made.SerializeToString()}


def caffe_seeds(rng: random.Random, count: int) -> list[tuple[str, Any]]:
    from caffe_cases import weights

    result: list[tuple[str, Any]] = []
    for text, blobs, old in test_module("caffe", "test_malformed").NETWORKS:
        result.append((f"network {len(result)}", (text, weights(blobs, old=old))))
    names = ("detection", "elementwise", "movement", "norm", "recurrent", "window")
    cases = [case for name in names for case in test_module("caffe", f"test_{name}").CASES]
    return result + [
        (case.name, (case.text(), weights({"layer": case.blobs}))) for case in some(cases, rng, count)
    ]


def caffe_mutant(original: tuple[str, bytes], rng: random.Random, sound: bool) -> Files:
    from google.protobuf import text_format

    from mace_frontend_caffe import schema

    text, data = original
    if not sound and rng.randrange(SOUND):
        network = text_format.Parse(text, schema.create_net(), allow_unknown_field=True)
        text = text_format.MessageToString(next(mild_messages(network, rng.randrange(1 << 30), 1)))
        if rng.random() < 0.15:
            data = next(
                mild_messages(schema.create_model().FromString(data), rng.randrange(1 << 30), 1)
            ).SerializeToString()
    return {"m.prototxt": text.encode(), "m.caffemodel": data}


# Keras: the description of a model within its archive.


def keras_seeds(rng: random.Random, count: int) -> list[tuple[str, Any]]:
    from keras_cases import model_of, saved

    results = []
    cases = [case for name in ("layers", "operations") for case in test_module("keras", f"test_{name}").CASES]
    with tempfile.TemporaryDirectory() as folder:
        for case in some(cases, rng, count):
            file = saved(model_of(case), Path(folder, "case.keras"))
            with zipfile.ZipFile(file) as archive:
                results.append((case.name, {entry: archive.read(entry) for entry in archive.namelist()}))
    return results


def keras_mutant(entries: Mapping[str, bytes], rng: random.Random, sound: bool) -> Files:
    entries = dict(entries)
    if not sound and rng.randrange(SOUND):
        described = json.loads(entries["config.json"])
        described.pop("compile_config", None)
        entries["config.json"] = json.dumps(next(mild_json(described, rng.randrange(1 << 30), 1))).encode()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return {"m.keras": data.getvalue()}


FRONTENDS: Mapping[
    str,
    tuple[Callable[[random.Random, int], list[tuple[str, Any]]], Callable[[Any, random.Random, bool], Files]],
] = MappingProxyType(
    {
        "onnx": (onnx_seeds, onnx_mutant),
        "tflite": (tflite_seeds, tflite_mutant),
        "tensorflow": (tensorflow_seeds, tensorflow_mutant),
        "caffe": (caffe_seeds, caffe_mutant),
        "keras": (keras_seeds, keras_mutant),
    }
)
