"""A network's description and weights, read and checked."""

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

DEEPEST = 32
"""Braces within braces of a description; caffe.proto needs five."""

MAX_TEXT_BYTES = 1 << 20
"""Bytes of a description: 250 for each of MOST_LAYERS; the largest networks take a few hundred thousand in all.

protobuf's parser of texts is written in Python and reads about half a million bytes in a second, so that a larger limit
would let a damaged file hold a build up for long."""

MOST_LAYERS = 4096
"""Layers of a description; the deepest networks have some 3000."""

TRAINING = frozenset(
    (
        *(
            "Accuracy",
            "SoftmaxWithLoss",
            "EuclideanLoss",
            "HingeLoss",
            "InfogainLoss",
            "MultinomialLogisticLoss",
            "ContrastiveLoss",
        ),
        *(
            "SigmoidCrossEntropyLoss",
            "SmoothL1Loss",
            "MultiBoxLoss",
            "Silence",
            "HDF5Output",
            "DetectionEvaluate",
        ),
    )
)
"""Layers that only training and testing need."""


TEST = schema.ENUMS["Phase"].index("TEST")


@dataclass(frozen=True)
class Source:
    """A network: its message, the layers that it runs when deployed, every layer's blobs by its name, whether a file of them is given."""

    file: Path
    net: Any
    layers: Sequence[Any]
    blobs: Mapping[str, Sequence[Array]]
    weighted: bool


def read(files: Sequence[Path]) -> Source:
    """Read a description and its weights.

    MaceError for anything that is none, with advice for files of the old form.
    """
    described = [f for f in files if f.suffix.lower() != ".caffemodel"]
    weights = [f for f in files if f.suffix.lower() == ".caffemodel"]
    if len(described) != 1 or len(weights) > 1:
        names = ", ".join(f.name for f in files)
        raise MaceError(
            names,
            "a Caffe network is one .prototxt and one .caffemodel",
            "give model_file_path and weight_file_path",
        )
    file = described[0]
    net = _text(file)
    layers = _layers(file, net)
    blobs = _weights(weights[0]) if weights else {}
    return Source(file, net, [layer for layer in layers if _deployed(layer)], blobs, bool(weights))


def _layers(file: Path, net: Any) -> Sequence[Any]:
    """The layers, those of the form of 2014 as of today.

    MaceError for a network without any, or of the form before.
    """
    if any(layer.HasField("layer") for layer in net.layers):
        remedy = (
            "rewrite it with Caffe's upgrade_net_proto_text, and its weights with upgrade_net_proto_binary"
        )
        raise MaceError(file.name, 'is of the form of 2013: layers { layer { type: "conv" } }', remedy)
    layers = [*net.layer, *map(schema.renewed, net.layers)]
    if not layers or (len(net.layer) and len(net.layers)):
        problem = "mixes the old `layers` with `layer`" if layers else "holds no layer"
        raise MaceError(file.name, problem, "give the .prototxt of the network as it is deployed")
    if len(layers) > MOST_LAYERS:
        raise MaceError(
            file.name, f"holds {len(layers)} layers; {MOST_LAYERS} are the most", "divide the network"
        )
    twice = [layer for layer in layers if len(set(layer.top)) < len(layer.top)]
    if twice:
        raise MaceError(
            file.name, f"layer {twice[0].name!r} has two tops of one name", "correct the .prototxt"
        )
    return layers


def _text(file: Path) -> Any:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    remedy = "give the .prototxt of the network as it is deployed"
    if len(data) > MAX_TEXT_BYTES:
        problem = f"is a description of {len(data)} bytes; the maximum is {MAX_TEXT_BYTES}"
        raise MaceError(file.name, problem, remedy + ", without weights in it")
    if (deepest := _max_depth(data)) > DEEPEST:
        raise MaceError(
            file.name, f"is no network: it nests {deepest} braces; the maximum is {DEEPEST}", remedy
        )
    try:
        return text_format.Parse(data.decode(), schema.net(), allow_unknown_field=True)
    except text_format.ParseError as error:
        line = error.GetLine()
        raise MaceError(
            f"{file.name}, line {line}" if line else file.name,
            f"is no network, or a damaged one: {_said(error)}",
            remedy,
        ) from error
    except ValueError as error:  # bytes that are no text
        raise MaceError(file.name, f"is no network, or a damaged one: {_said(error)}", remedy) from error


def _max_depth(data: bytes) -> int:
    """Count the braces that are open at once: the parser calls itself for each, and Python's stack is limited."""
    depth = deepest = 0
    for brace in re.finditer(rb"[{}<>]", data):
        depth += 1 if brace[0] in b"{<" else -1
        deepest = max(deepest, depth)
    return deepest


def _said(error: Exception) -> str:
    """What an exception says, in one short line, without the place and the text in front."""
    return str(error).partition("\n")[0].rpartition(" : ")[2].rpartition("': ")[2][:200]


def _weights(file: Path) -> dict[str, list[Array]]:
    model = schema.model()
    try:
        model.ParseFromString(file.read_bytes())
        layers = [*model.layer, *model.layers]
        found = {layer.name: [_array(blob) for blob in layer.blobs] for layer in layers if len(layer.blobs)}
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    except (DecodeError, ValueError) as error:
        raise MaceError(
            file.name, f"holds no weights, or is damaged: {error}", "download or train it again"
        ) from error
    if not layers:
        raise MaceError(file.name, "holds no layer", "give the network's .caffemodel as weight_file_path")
    return found


def _array(blob: Any) -> Array:
    """The numbers of a blob; the old form of shape is num, channels, height, width."""
    shape = (
        tuple(blob.shape.dim)
        if blob.HasField("shape")
        else (blob.num, blob.channels, blob.height, blob.width)
    )
    data = (
        np.frombuffer(blob.doubles, "<f8").astype(np.float32)
        if blob.doubles
        else np.frombuffer(blob.data, "<f4")
    )
    if any(d < 0 for d in shape) or prod(shape) != data.size:
        raise ValueError(f"a blob of {data.size} numbers has a shape of {list(shape)}")
    return data.reshape(shape)


def _deployed(layer: Any) -> bool:
    """Whether a layer runs when the network is deployed: in phase TEST, level 0, no stage, and for more than its training."""
    if layer.type in TRAINING or (layer.HasField("phase") and layer.phase != TEST):
        return False
    if any(map(_met, layer.exclude)):
        return False
    return not len(layer.include) or any(map(_met, layer.include))


def _met(rule: Any) -> bool:
    if len(rule.stage) or (rule.HasField("phase") and rule.phase != TEST):
        return False
    return bool(rule.min_level <= 0 <= (rule.max_level if rule.HasField("max_level") else 0))
