"""LabelEncoder of ai.onnx.ml, which maps keys to values, either of them strings or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode, to_text
from mace_frontend_onnx.ops import Handler

KEYS = ("keys_tensor", "keys_strings", "keys_int64s", "keys_floats")
VALUES = ("values_tensor", "values_strings", "values_int64s", "values_floats")
DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"values_strings": "default_string", "values_int64s": "default_int64", "values_floats": "default_float"}
)
FORMS: Mapping[str, type] = MappingProxyType(
    {"int64s": np.int64, "floats": np.float32, "strings": np.object_}
)
"""The end of an attribute's name -> the element type of its list."""

TENSOR_DEFAULTS: Mapping[str, Any] = MappingProxyType({"f": -0.0, "i": -1, "O": "_Unused"})
"""numpy's kind of values in a tensor -> what unknown keys give without `default_tensor` (version 4)."""


@dataclass(frozen=True)
class KeyTable:
    """Keys and the values beside them, strings as objects. default: the value of any other key."""

    keys: Array
    values: Array
    default: Any


def _label_encoder(node: OnnxNode) -> Sequence[Result]:
    """Return for each element the value beside the key that it equals, else the default."""
    table = _read_old_table(node) if node.attr("classes_strings") else _read_table(node)
    problem = f"{len(table.keys)} keys for {len(table.values)} values"
    node.refuse_unless(len(table.keys) == len(table.values), problem)
    strings: tuple[str, ...] = ()
    if table.values.dtype == object:
        # Strings are represented by their indices in a list, the default at its end if it is none of them.
        default = to_text(table.default)
        strings = tuple(dict.fromkeys([*table.values.tolist(), default]))
        indices = np.array([strings.index(value) for value in table.values], np.int64)
        table = KeyTable(table.keys, indices, strings.index(default))
    fallback = np.asarray(table.default, table.values.dtype).reshape(())
    known = node.importer.strings.get(node.input(0))
    is_string_table = table.keys.dtype == object
    node.refuse_unless((known is not None) == is_string_table, "its keys are not of its input's type")
    result = _map_numbers(node, table, fallback) if known is None else _map_strings(node, table, fallback)
    if strings:
        node.importer.strings[result] = strings
    return [result]


def _map_strings(node: OnnxNode, table: KeyTable, fallback: Array) -> str:
    """Map indices of known strings: the value of each string is looked up here."""
    known = node.importer.strings[node.input(0)]
    # Of several equal keys the first counts, so the first is written to the dictionary last.
    pairs = zip(reversed(table.keys.tolist()), reversed(table.values.tolist()), strict=True)
    value_of = dict(pairs)
    values = np.array([value_of.get(string, fallback) for string in known], table.values.dtype)
    constant = node.add_constant(values, tag="table")
    return node.emit("Gather", [constant, node.input(0)], {"axis": 0}, tag="value")


def _map_numbers(node: OnnxNode, table: KeyTable, fallback: Array) -> str:
    problem = f"its keys are {table.keys.dtype}, its input is {node.dtype(0).value}"
    node.refuse_unless(DType.of(table.keys) is node.dtype(0), problem)
    # MapValues searches sorted keys; numpy.unique sorts them and takes the first of equal ones.
    unique, first = np.unique(table.keys, return_index=True)
    arrays = {"keys": unique, "values": table.values[first], "default": fallback}
    constants = [node.add_constant(array, tag=tag) for tag, array in arrays.items()]
    return node.emit("MapValues", [node.input(0), *constants], tag="value")


def _read_table(node: OnnxNode) -> KeyTable:
    """Read the attributes of version 2 and later."""
    _, keys = _read_list(node, KEYS)
    attr, values = _read_list(node, VALUES)
    if attr != "values_tensor":
        return KeyTable(keys, values, node.attr(DEFAULTS[attr]))
    tensor = node.attr("default_tensor")
    if tensor is None:
        return KeyTable(keys, values, TENSOR_DEFAULTS.get(values.dtype.kind, 0))
    return KeyTable(keys, values, node.importer.file.array(tensor).reshape(-1)[0])


def _read_old_table(node: OnnxNode) -> KeyTable:
    """Read the attributes of version 1: strings to their positions or back, by the type of the input."""
    strings = np.array([to_text(value) for value in node.attr("classes_strings")], object)
    positions = np.arange(len(strings))
    if node.input(0) in node.importer.strings:
        return KeyTable(strings, positions, node.attr("default_int64"))
    return KeyTable(positions, strings, node.attr("default_string"))


def _read_list(node: OnnxNode, attrs: Sequence[str]) -> tuple[str, Array]:
    """Return which of several attributes the node has, and its elements."""
    for attr in attrs:
        value = node.attr(attr)
        if value is None:
            continue
        if attr.endswith("tensor"):
            array = node.importer.file.array(value).reshape(-1)
            return attr, _as_texts(array) if array.dtype == object else array
        if len(value):
            form = attr.rpartition("_")[2]
            return attr, _as_texts(value) if form == "strings" else np.array(value, FORMS[form])
    raise RefusedError(f"it has none of {', '.join(attrs)}")


def _as_texts(values: Sequence[Any] | Array) -> Array:
    return np.array([to_text(value) for value in values], object)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"ai.onnx.ml::LabelEncoder": _label_encoder})
