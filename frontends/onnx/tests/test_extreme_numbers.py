"""Every number of a model file at the ends of its type: a graph, or one MaceError, never another exception."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from onnx import numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_frontend_onnx import Onnx

EXTREMES = (1 << 63) - 1, -(1 << 63), 1 << 32, (1 << 31) - 1, -(1 << 31), -1, 0

LAYERS = """<ir_version: 8, opset_import: ["" : 13, "ai.onnx.ml" : 3, "local" : 1]>
g (float[1,2,4,4] x, float[1,3] v) => (float[a,b] y, float[c,d] t)
{ w = Constant<value=float[2,2,3,3] {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>()
  c = Conv<pads=[1,1,1,1], strides=[2,2], group=1>(x, w) p = MaxPool<kernel_shape=[2,2]>(c) f = Flatten<axis=1>(p)
  i = Constant<value=int64[2] {0,1}>() g = Gather<axis=1>(f, i) s = Softmax<axis=-1>(g) y = local.twice(s)
  l, t = ai.onnx.ml.TreeEnsembleClassifier<nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[0,0,0],
    nodes_modes=["BRANCH_LEQ","LEAF","LEAF"], nodes_values=[0.5,0.0,0.0], nodes_truenodeids=[1,0,0], nodes_falsenodeids=[2,0,0],
    class_treeids=[0,0], class_nodeids=[1,2], class_ids=[0,1], class_weights=[1.0,1.0], classlabels_int64s=[0,1]>(v) }
<domain: "local", opset_import: ["" : 13]> twice (a) => (b) { b = Add(a, a) }"""


def places(message: Message, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Where the integers of a message are: names of fields, and numbers of entries of those that repeat."""
    for field, value in message.ListFields():
        repeated = not isinstance(value, str | bytes | int | float | Message)
        for index, entry in enumerate(value if repeated else (value,)):
            step = (*path, field.name, index) if repeated else (*path, field.name)
            if isinstance(entry, Message):
                yield from places(entry, step)
            elif isinstance(entry, int) and not isinstance(entry, bool):
                yield step


def changed(model: onnx.ModelProto, place: tuple[object, ...], value: int) -> onnx.ModelProto | None:
    """The model with another integer there; None if the field's type does not hold it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    *steps, last = place
    holder: object = made
    for step in steps:
        holder = holder[step] if isinstance(step, int) else getattr(holder, str(step))  # type: ignore[index]
    try:
        if isinstance(last, int):
            holder[last] = value  # type: ignore[index]
        else:
            setattr(holder, str(last), value)
    except ValueError:
        return None
    return made


def loaded(model: onnx.ModelProto, path: Path) -> str:
    path.write_bytes(model.SerializeToString())
    try:
        Onnx().load((path,), Model("m", (path,)), core_ops())
    except MaceError as error:
        return str(error)
    return ""


@pytest.mark.exhaustive
def test_every_number(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(LAYERS)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), np.float32), "unused"))
    assert loaded(model, tmp_path / "m.onnx") == ""
    count = 0
    for place in places(model):
        for value in EXTREMES:
            other = changed(model, place, value)
            if other is not None:
                loaded(other, tmp_path / "m.onnx")
                count += 1
    assert count > 400


@pytest.mark.parametrize("version", [1 << 31, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("domain", ["", "ai.onnx.ml", "local", "com.acme"])
def test_operator_sets_beyond_32_bits(version: int, domain: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(LAYERS)
    entry = next((o for o in model.opset_import if o.domain == domain), None) or model.opset_import.add(
        domain=domain
    )
    entry.version = version
    said = loaded(model, tmp_path / "m.onnx")
    assert domain in ("local", "com.acme") or "operator set" in said
    functions = onnx.parser.parse_model(LAYERS)
    functions.functions[0].opset_import[0].version = version
    assert "operator set" in loaded(functions, tmp_path / "m.onnx")
