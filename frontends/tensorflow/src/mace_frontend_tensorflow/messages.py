"""Offers the protobuf messages of TensorFlow's files.

TensorBoard ships all but three, and importing those loads nothing else of it. The three are described here;
their fields are those of tensorflow/core/protobuf/saved_model.proto and tensor_bundle.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.function_pb2 import FunctionDef
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef, SignatureDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph
from tensorboard.compat.proto.types_pb2 import DataType

PACKAGE = "mace_frontend_tensorflow"
INT32, INT64, BYTES, MESSAGE = (
    getattr(FieldDescriptorProto, f"TYPE_{t}") for t in ("INT32", "INT64", "BYTES", "MESSAGE")
)


def _describe_messages() -> tuple[Any, ...]:
    """Return the classes of SavedModel, BundleHeaderProto and BundleEntryProto, as far as read."""
    graph, shape = MetaGraphDef.DESCRIPTOR, TensorShapeProto.DESCRIPTOR
    file = FileDescriptorProto(name=f"{PACKAGE}/files.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend((graph.file.name, shape.file.name))
    _add_message(
        file, "SavedModel", (("version", 1, INT64, ""), ("meta_graphs*", 2, MESSAGE, graph.full_name))
    )
    _add_message(file, "BundleHeader", (("num_shards", 1, INT32, ""), ("endianness", 2, INT32, "")))
    numbers = (
        ("shard_id", 3, INT32, ""),
        ("offset", 4, INT64, ""),
        ("size", 5, INT64, ""),
        ("slices*", 7, BYTES, ""),
    )
    _add_message(
        file, "BundleEntry", (("dtype", 1, INT32, ""), ("shape", 2, MESSAGE, shape.full_name), *numbers)
    )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    names = ("SavedModel", "BundleHeader", "BundleEntry")
    return tuple(message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{n}")) for n in names)


def _add_message(file: Any, name: str, fields: Iterable[tuple[str, int, int, str]]) -> None:
    """Describe a message by its fields: name ("*" if repeated), number, type, and the message it holds."""
    message = file.message_type.add(name=name)
    for field, number, kind, message_type in fields:
        label = (
            FieldDescriptorProto.LABEL_REPEATED
            if field.endswith("*")
            else FieldDescriptorProto.LABEL_OPTIONAL
        )
        added = message.field.add(name=field.rstrip("*"), number=number, type=kind, label=label)
        if message_type:
            added.type_name = f".{message_type}"


SavedModel, BundleHeader, BundleEntry = _describe_messages()

__all__ = [
    "AttrValue",
    "BundleEntry",
    "BundleHeader",
    "DataType",
    "DecodeError",
    "FunctionDef",
    "GraphDef",
    "MetaGraphDef",
    "NodeDef",
    "SavedModel",
    "SignatureDef",
    "TensorProto",
    "TensorShapeProto",
    "TrackableObjectGraph",
]
