"""The layers of a model as a tree: what each is, how it is set, and which weights are its own in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Config = Mapping[str, Any]
Names = Callable[[Config], Sequence[str]]


class LayerError(ValueError):
    """A configuration that describes no layer; the text says why."""


MODELS = ("Sequential", "Functional", "Model")
FIXED = ("moving_mean", "moving_variance", "mean", "variance", "count")
"""Variables that training does not train."""


@dataclass(frozen=True)
class Layer:
    """A layer or an operation of a functional model.

    kind: its class; "ops.NAME" for an operation of keras.ops.
    name: its own, with the names of the models around it in front: "encoder/conv1".
    place: where its weights lie in a `.keras` archive.
    variables: names of its own weights, in the order in which they are stored.
    children: what it is made of, by the attribute that holds it.
    """

    kind: str
    name: str
    config: Config
    place: str
    trainable: bool = True
    variables: tuple[str, ...] = ()
    children: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def is_model(self) -> bool:
        """Whether it is a model of its own, whose layers are its children."""
        return self.kind in MODELS

    @property
    def own_name(self) -> str:
        """Its name without those of the models around it."""
        return self.name.rpartition("/")[2] if not self.config.get("name") else str(self.config["name"])

    def weights(self, frozen: bool = False) -> Iterator[tuple[Layer, str, bool]]:
        """Every weight of it and its children: the layer, the weight's name, and whether training trains it."""
        frozen = frozen or not self.trainable
        for name in self.variables:
            yield self, name, not frozen and name not in FIXED
        for child in self.children.values():
            yield from child.weights(frozen)


CLASSES: Mapping[str, str] = MappingProxyType({"GroupQueryAttention": "GroupedQueryAttention"})
"""Classes that Keras stores under another name than their own."""


def snake_case(name: str) -> str:
    """A class's name as Keras writes it in paths: LayerNormalization, layer_normalization."""
    name = re.sub(r"\W+", "", CLASSES.get(name, name))
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _with_bias(*names: str) -> Names:
    return lambda config: (*names, "bias") if config.get("use_bias", True) else names


def _affine(*fixed: str) -> Names:
    def names(config: Config) -> Sequence[str]:
        scale = config.get("scale", True) or config.get("rms_scaling", False)
        centre = config.get("center", True) and not config.get("rms_scaling", False)
        return (*(("gamma",) if scale else ()), *(("beta",) if centre else ()), *fixed)

    return names


def _adapted(config: Config) -> Sequence[str]:
    return () if config.get("mean") is not None else ("mean", "variance", "count")


def _attention(config: Config) -> Sequence[str]:
    scale = ("scale",) if config.get("use_scale", False) else ()
    return (*scale, "concat_score_weight") if config.get("score_mode") == "concat" else scale


VARIABLES: Mapping[str, Names] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Dense", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D"),
            _with_bias("kernel"),
        ),
        **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _with_bias("kernel")),
        **dict.fromkeys(("Convolution1D", "Convolution2D", "Convolution3D"), _with_bias("kernel")),
        **dict.fromkeys(
            ("SeparableConv1D", "SeparableConv2D"), _with_bias("depthwise_kernel", "pointwise_kernel")
        ),
        **dict.fromkeys(("LSTMCell", "GRUCell", "SimpleRNNCell"), _with_bias("kernel", "recurrent_kernel")),
        "EinsumDense": lambda config: ("kernel", "bias") if config.get("bias_axes") else ("kernel",),
        **dict.fromkeys(
            ("BatchNormalization", "SyncBatchNormalization"), _affine("moving_mean", "moving_variance")
        ),
        **dict.fromkeys(("LayerNormalization", "GroupNormalization"), _affine()),
        "RMSNormalization": lambda _: ("scale",),
        "Normalization": _adapted,
        "PReLU": lambda _: ("alpha",),
        "LayerScale": lambda _: ("gamma",),
        "Embedding": lambda _: ("embeddings",),
        "Attention": _attention,
        "AdditiveAttention": lambda config: ("scale",) if config.get("use_scale", True) else (),
    }
)
"""Names of the weights that a layer with this configuration has, in the order in which Keras makes them."""

CELLS: Mapping[str, str] = MappingProxyType(
    {"LSTM": "LSTMCell", "GRU": "GRUCell", "SimpleRNN": "SimpleRNNCell"}
)
WRAPPERS: Mapping[str, str] = MappingProxyType({"TimeDistributed": "layer", "RNN": "cell"})
ATTENTIONS = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
PROJECTIONS = ("query_dense", "key_dense", "value_dense", "output_dense")


def layer_of(data: Mapping[str, Any], name: str, place: str) -> Layer:
    """The layer that a configuration describes, with what it is made of; LayerError if it describes none.

    place: where its weights lie, without its own class's name.
    """
    kind, config = data.get("class_name"), data.get("config")
    if kind == "Sequential" and isinstance(config, list):  # as Keras 2.0 wrote it
        config = {"layers": config}
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise LayerError(f"layer {name!r} has no class or no configuration")
    kind = _kind(data, kind, config)
    if kind in MODELS:
        children = dict(_layers(config, name, place))
    else:
        children = {
            key: layer_of(child, f"{name}/{key}", f"{place}/{key}") for key, child in _parts(kind, config)
        }
    own = VARIABLES.get(kind)
    return Layer(
        kind,
        name,
        config,
        place,
        bool(config.get("trainable", True)),
        tuple(own(config)) if own else (),
        children,
    )


def _kind(data: Config, kind: str, config: Config) -> str:
    """The class: operations of keras.ops, functions of TensorFlow and classes of others are told from Keras's layers."""
    module, registered = str(data.get("module") or ""), str(data.get("registered_name") or "")
    if ".ops." in module or (not module and _is_operation(data, config)):
        return f"ops.{kind}"
    if kind in ("TFOpLambda", "SlicingOpLambda"):
        return f"tf.{config.get('function')}"
    others = ">" in registered and not registered.startswith("keras")
    return (
        registered if others or (module and not module.startswith("keras") and module != "builtins") else kind
    )


def _is_operation(data: Config, config: Config) -> bool:
    """Whether it is an operation of keras.ops in a file of the older form, which does not tell: layers can be trained, these cannot."""
    nodes = data.get("inbound_nodes")
    written = isinstance(nodes, list) and bool(nodes) and isinstance(nodes[0], dict)
    return written and "trainable" not in config and data.get("class_name") not in MODELS


def own_layers(config: Config) -> Sequence[Config]:
    """The descriptions of a model's layers; LayerError if there are none."""
    listed = config.get("layers")
    if not isinstance(listed, list) or not all(
        isinstance(data, dict) and isinstance(data.get("config"), dict | list) for data in listed
    ):
        raise LayerError("a model without a list of layers")
    return listed


def name_of(data: Config) -> str:
    """A layer's name by its description."""
    config = data["config"]
    return str(
        data.get("name")
        or (config.get("name") if isinstance(config, dict) else None)
        or snake_case(str(data.get("class_name")))
    )


def _layers(config: Config, name: str, place: str) -> Iterator[tuple[str, Layer]]:
    """A model's layers by where their weights lie: class names, numbered from the second of a class on.

    Operations have no weights.
    """
    listed = own_layers(config)
    operations = (".ops." in str(data.get("module")) for data in listed)
    classes = (
        f"operation {name_of(d)}" if o else str(d.get("class_name"))
        for d, o in zip(listed, operations, strict=True)
    )
    for key, data in _numbered(zip(classes, listed, strict=True), "layers"):
        own = f"{name}/{name_of(data)}" if name else name_of(data)
        yield key, layer_of(data, own, f"{place}/{key}" if place else key)


def _numbered(described: Iterable[tuple[str, Config]], folder: str = "cells") -> Iterator[tuple[str, Config]]:
    """Descriptions by their place in a folder: the name of the class, numbered from the second of a class on."""
    used: dict[str, int] = {}
    for kind, data in described:
        stem = snake_case(kind.rpartition(">")[2])
        count = used[stem] = used.get(stem, -1) + 1
        yield f"{folder}/{stem}_{count}" if count else f"{folder}/{stem}", data


def _parts(kind: str, config: Config) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a layer is made of: attribute and configuration of each part."""
    if kind in CELLS:
        yield "cell", {"class_name": CELLS[kind], "config": config}
    if kind in ATTENTIONS:
        projection = {
            "class_name": "EinsumDense",
            "config": {"bias_axes": "x" if config.get("use_bias", True) else None},
        }
        yield from ((key, projection) for key in PROJECTIONS)
    if kind in WRAPPERS:
        yield WRAPPERS[kind], _described(config.get(WRAPPERS[kind]))
    if kind == "StackedRNNCells":
        yield from _numbered(
            (str(_described(cell).get("class_name")), _described(cell)) for cell in config.get("cells") or ()
        )
    if kind == "Bidirectional":
        forward = _described(config.get("layer"))
        yield "forward_layer", forward
        backward = config.get("backward_layer")
        turned = {**forward["config"], "go_backwards": not forward["config"].get("go_backwards", False)}
        yield "backward_layer", _described(backward) if backward else {**forward, "config": turned}


def _described(data: object) -> Mapping[str, Any]:
    if not isinstance(data, dict) or not isinstance(data.get("config"), dict):
        raise LayerError("it wraps no layer")
    return data
