"""Reads and checks a network's description and weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_caffe import schema
from mace_frontend_caffe.fields import find_unknown_fields

MAX_DEPTH = 32
"""Braces within braces of a description; caffe.proto needs five."""

MAX_TEXT_BYTES = 1 << 20
"""Bytes of a description: 250 for each of MAX_LAYERS; the largest networks take a few hundred thousand.

protobuf's parser of the text form is written in Python and reads about half a million bytes in a second, so
that a larger limit would let a damaged file hold a build up for long."""

MAX_LAYERS = 4096
"""Layers of a description; the deepest networks have some 3000."""

TRAINING = frozenset(
    (
        "Accuracy",
        "ContrastiveLoss",
        "DetectionEvaluate",
        "EuclideanLoss",
        "HDF5Output",
        "HingeLoss",
        "InfogainLoss",
        "MultiBoxLoss",
        "MultinomialLogisticLoss",
        "SigmoidCrossEntropyLoss",
        "Silence",
        "SmoothL1Loss",
        "SoftmaxWithLoss",
    )
)
"""Layers that only training and testing need."""

TEST = schema.ENUMS["Phase"].index("TEST")

DEPLOYED = "give the .prototxt of the network as it is deployed"


@dataclass(frozen=True)
class NetworkSource:
    """A network as its files have it.

    file: the description.
    net: the description's message.
    layers: those that run when the network is deployed.
    unknown: fields of each layer that this frontend does not know, by its name.
    blobs: the weights of each layer by its name.
    has_weights: whether a .caffemodel was given.
    """

    file: Path
    net: Any
    layers: Sequence[Any]
    unknown: Mapping[str, Sequence[str]]
    blobs: Mapping[str, Sequence[Array]]
    has_weights: bool


def read(files: Sequence[Path]) -> NetworkSource:
    """Read a description and its weights.

    MaceError for files that are neither, with advice for files of old forms.
    """
    descriptions = [f for f in files if f.suffix.lower() != ".caffemodel"]
    weights = [f for f in files if f.suffix.lower() == ".caffemodel"]
    if len(descriptions) != 1 or len(weights) > 1:
        names = ", ".join(f.name for f in files)
        raise MaceError(
            names,
            "a Caffe network is one .prototxt and one .caffemodel",
            "give model_file_path and weight_file_path",
        )
    file = descriptions[0]
    text, net = _parse_description(file)
    layers = _list_layers(file, net)
    fields = find_unknown_fields(text, schema.create_net())
    if len(fields) != len(layers):
        problem = f"is no network, or a damaged one: it has {len(layers)} layers in {len(fields)} places"
        raise MaceError(file.name, problem, DEPLOYED)
    deployed = [(layer, names) for layer, names in zip(layers, fields, strict=True) if _is_deployed(layer)]
    unknown = {layer.name: names for layer, names in deployed if names}
    blobs = _read_weights(weights[0]) if weights else {}
    return NetworkSource(file, net, [layer for layer, _ in deployed], unknown, blobs, bool(weights))


def _list_layers(file: Path, net: Any) -> Sequence[Any]:
    """Return the layers, those of the form of 2014 converted to the present one.

    MaceError for a network without any, or of the form before.
    """
    if any(layer.HasField("layer") for layer in net.layers):
        problem = 'is of the form of 2013: layers { layer { type: "conv" } }'
        remedy = (
            "rewrite it with Caffe's upgrade_net_proto_text, and its weights with upgrade_net_proto_binary"
        )
        raise MaceError(file.name, problem, remedy)
    layers = [*net.layer, *map(schema.upgrade_layer, net.layers)]
    if not layers:
        raise MaceError(file.name, "has no layers", DEPLOYED)
    if len(net.layer) and len(net.layers):
        # Caffe's upgrade_proto.cpp refuses this too: nothing tells how the two lists follow each other.
        raise MaceError(file.name, "mixes the old `layers` with `layer`", DEPLOYED)
    if len(layers) > MAX_LAYERS:
        problem = f"has {len(layers)} layers; the maximum is {MAX_LAYERS}"
        raise MaceError(file.name, problem, "divide the network")
    for layer in layers:
        if len(set(layer.top)) < len(layer.top):
            problem = f"layer {layer.name!r} has two tops of the same name"
            raise MaceError(file.name, problem, "correct the .prototxt")
    return layers


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise MaceError(file.name, problem, "correct the path in the deployment file") from error


def _parse_description(file: Path) -> tuple[str, Any]:
    """Return the text of a description, and its message."""
    data = _read_bytes(file)
    if len(data) > MAX_TEXT_BYTES:
        problem = f"is a description of {len(data)} bytes; the maximum is {MAX_TEXT_BYTES}"
        raise MaceError(file.name, problem, DEPLOYED + ", without weights in it")
    if (depth := _max_depth(data)) > MAX_DEPTH:
        problem = f"is no network: it nests {depth} braces; the maximum is {MAX_DEPTH}"
        raise MaceError(file.name, problem, DEPLOYED)
    try:
        # Forks of Caffe add fields; `find_unknown_fields` tells which of them a layer has.
        text = data.decode()
        return text, text_format.Parse(text, schema.create_net(), allow_unknown_field=True)
    except text_format.ParseError as error:
        line = error.GetLine()
        place = f"{file.name}, line {line}" if line else file.name
        raise MaceError(place, f"is no network, or a damaged one: {_first_line(error)}", DEPLOYED) from error
    except ValueError as error:  # bytes that are not UTF-8
        raise MaceError(
            file.name, f"is no network, or a damaged one: {_first_line(error)}", DEPLOYED
        ) from error


def _max_depth(data: bytes) -> int:
    """Count the braces that are open at once.

    The parser calls itself for each of them, and Python's stack is limited.
    """
    depth = max_depth = 0
    for brace in re.finditer(rb"[{}<>]", data):
        depth += 1 if brace[0] in b"{<" else -1
        max_depth = max(max_depth, depth)
    return max_depth


def _first_line(error: Exception) -> str:
    """Return the message of an exception in one short line.

    protobuf puts the position before " : ", and the text that it did not understand before "': ".
    """
    return str(error).partition("\n")[0].rpartition(" : ")[2].rpartition("': ")[2][:200]


def _read_weights(file: Path) -> dict[str, list[Array]]:
    """Return the blobs of each layer that has any, by its name."""
    model = schema.create_model()
    data = _read_bytes(file)
    try:
        model.ParseFromString(data)
        layers = [*model.layer, *model.layers]
        blobs = {layer.name: [_read_array(blob) for blob in layer.blobs] for layer in layers if layer.blobs}
    except (DecodeError, ValueError) as error:
        problem = f"holds no weights, or is damaged: {error}"
        raise MaceError(file.name, problem, "download or train it again") from error
    if not layers:
        # protobuf parses an empty file, and a file of another program, without an error.
        raise MaceError(file.name, "has no layers", "give the network's .caffemodel as weight_file_path")
    return blobs


def _read_array(blob: Any) -> Array:
    """Return the numbers of a blob; ValueError if they do not fill its shape.

    Until 2014 Caffe stored the shape as num, channels, height and width.
    """
    four_axes = (blob.num, blob.channels, blob.height, blob.width)
    shape = tuple(blob.shape.dim) if blob.HasField("shape") else four_axes
    # Caffe stores double precision only if it was built for it; the IR computes in single precision.
    doubles = np.frombuffer(blob.doubles, "<f8")
    data = doubles.astype(np.float32) if doubles.size else np.frombuffer(blob.data, "<f4")
    if any(d < 0 for d in shape) or prod(shape) != data.size:
        raise ValueError(f"a blob of {data.size} numbers has a shape of {list(shape)}")
    return data.reshape(shape)


def _is_deployed(layer: Any) -> bool:
    """Tell whether a layer runs when the network is deployed: in phase TEST, at level 0, without a stage.

    The rules are those of Net::FilterNet in Caffe's net.cpp: a layer has rules of one kind, `include` or
    `exclude`, and a layer without any runs always.
    """
    if layer.type in TRAINING or (layer.HasField("phase") and layer.phase != TEST):
        return False
    if any(map(_is_met, layer.exclude)):
        return False
    return not layer.include or any(map(_is_met, layer.include))


def _is_met(rule: Any) -> bool:
    """Tell whether a rule holds for a network in phase TEST, at level 0, without a stage."""
    if len(rule.stage) or (rule.HasField("phase") and rule.phase != TEST):
        return False
    max_level = rule.max_level if rule.HasField("max_level") else 0
    return bool(rule.min_level <= 0 <= max_level)
