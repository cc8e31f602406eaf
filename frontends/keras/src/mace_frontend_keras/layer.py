"""The layers of a model as a tree: class, settings, weights and inner layers of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Config = Mapping[str, Any]
Names = Callable[[Config], Sequence[str]]


class LayerError(ValueError):
    """A configuration that describes no layer; the message says why."""


MODELS = ("Sequential", "Functional", "Model")
FIXED = ("moving_mean", "moving_variance", "mean", "variance", "count")
"""Names of variables that training does not change."""


@dataclass(frozen=True)
class KerasLayer:
    """A layer, or an operation of a functional model.

    kind: its class; "ops.NAME" for an operation of keras.ops.
    name: its own, behind the names of the models around it: "encoder/conv1".
    path: where its weights lie in a `.keras` archive.
    variables: names of its own weights, in the order in which they are saved.
    children: the layers that it is made of, by their folder or the attribute that holds them.
    """

    kind: str
    name: str
    config: Config
    path: str
    trainable: bool = True
    variables: tuple[str, ...] = ()
    children: Mapping[str, KerasLayer] = field(default_factory=dict)

    @property
    def is_model(self) -> bool:
        """Tell whether it is a model of its own, whose layers are its children."""
        return self.kind in MODELS

    @property
    def short_name(self) -> str:
        """Its name without those of the models around it."""
        return self.name.rpartition("/")[2] if not self.config.get("name") else str(self.config["name"])

    def weights(self, frozen: bool = False) -> Iterator[tuple[KerasLayer, str, bool]]:
        """Yield every weight of it and its children: the layer, the name, and whether training changes it."""
        # A layer that is not trainable freezes everything inside, whatever that says of itself.
        frozen = frozen or not self.trainable
        for name in self.variables:
            yield self, name, not frozen and name not in FIXED
        for child in self.children.values():
            yield from child.weights(frozen)


CLASSES: Mapping[str, str] = MappingProxyType({"GroupQueryAttention": "GroupedQueryAttention"})
"""Classes that Keras saves under another name than their own."""


def snake_case(name: str) -> str:
    """Return a class's name as Keras writes it in paths: layer_normalization for LayerNormalization."""
    name = re.sub(r"\W+", "", CLASSES.get(name, name))
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _with_bias(*names: str) -> Names:
    return lambda config: (*names, "bias") if config.get("use_bias", True) else names


def _affine(*fixed: str) -> Names:
    def names(config: Config) -> Sequence[str]:
        # rms_scaling, of files before Keras had RMSNormalization, has a gamma always and a beta never.
        is_rms = config.get("rms_scaling", False)
        gamma = ("gamma",) if config.get("scale", True) or is_rms else ()
        beta = ("beta",) if config.get("center", True) and not is_rms else ()
        return (*gamma, *beta, *fixed)

    return names


def _normalization_variables(config: Config) -> Sequence[str]:
    # Moments that are settings are not saved as weights.
    return () if config.get("mean") is not None else ("mean", "variance", "count")


def _attention_variables(config: Config) -> Sequence[str]:
    scale = ("scale",) if config.get("use_scale", False) else ()
    return (*scale, "concat_score_weight") if config.get("score_mode") == "concat" else scale


def _reversible_variables(config: Config) -> Sequence[str]:
    return ("embeddings",) if config.get("tie_weights", True) else ("embeddings", "reverse_embeddings")


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
        "Normalization": _normalization_variables,
        "PReLU": lambda _: ("alpha",),
        "LayerScale": lambda _: ("gamma",),
        "Embedding": lambda _: ("embeddings",),
        "ReversibleEmbedding": _reversible_variables,
        "Attention": _attention_variables,
        "AdditiveAttention": lambda config: ("scale",) if config.get("use_scale", True) else (),
    }
)
"""Names of the weights that a layer with this configuration has, in the order in which Keras makes them."""

CELLS: Mapping[str, str] = MappingProxyType(
    {"LSTM": "LSTMCell", "GRU": "GRUCell", "SimpleRNN": "SimpleRNNCell"}
)
"""Recurrent layers -> their cells, which have the weights."""

WRAPPERS: Mapping[str, str] = MappingProxyType({"TimeDistributed": "layer", "RNN": "cell"})
"""Layers that are made of another one -> the setting that describes it."""

ATTENTIONS = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
PROJECTIONS = ("query_dense", "key_dense", "value_dense", "output_dense")


def read_layer(data: Mapping[str, Any], name: str, path: str) -> KerasLayer:
    """Return the layer that a configuration describes, with its children; LayerError if it describes none.

    path: where its weights lie.
    """
    kind, config = data.get("class_name"), data.get("config")
    if kind == "Sequential" and isinstance(config, list):  # as Keras 2.0 wrote it
        config = {"layers": config}
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise LayerError(f"layer {name!r} has no class or no configuration")
    kind = _read_kind(data, kind, config)
    if kind in MODELS:
        children = dict(_read_layers(config, name, path))
    else:
        children = {
            key: read_layer(child, f"{name}/{key}", f"{path}/{key}")
            for key, child in _child_configs(kind, config)
        }
    list_variables = VARIABLES.get(kind)
    variables = tuple(list_variables(config)) if list_variables else ()
    return KerasLayer(kind, name, config, path, bool(config.get("trainable", True)), variables, children)


def _read_kind(data: Config, kind: str, config: Config) -> str:
    """Return the class, with a prefix for operations of keras.ops and functions of TensorFlow.

    A class of another package keeps its registered name, so that it is not taken for Keras's class of that
    name.
    """
    module, registered = str(data.get("module") or ""), str(data.get("registered_name") or "")
    if ".ops." in module or (not module and _is_operation(data, config)):
        return f"ops.{kind}"
    if kind in ("TFOpLambda", "SlicingOpLambda"):
        return f"tf.{config.get('function')}"
    has_package = ">" in registered and not registered.startswith("keras")
    is_foreign = bool(module) and not module.startswith("keras") and module != "builtins"
    return registered if has_package or is_foreign else kind


def _is_operation(data: Config, config: Config) -> bool:
    """Tell whether it is an operation of keras.ops in a file that states no modules.

    Layers have the setting `trainable` and operations have not; only Keras 3 has operations, and writes calls
    as dictionaries.
    """
    nodes = data.get("inbound_nodes")
    written = isinstance(nodes, list) and bool(nodes) and isinstance(nodes[0], dict)
    return written and "trainable" not in config and data.get("class_name") not in MODELS


def list_layers(config: Config) -> Sequence[Config]:
    """Return the descriptions of a model's layers; LayerError if there are none."""
    layers = config.get("layers")
    if not isinstance(layers, list) or not all(map(_is_layer, layers)):
        raise LayerError("a model without a list of layers")
    return layers


def _is_layer(data: object) -> bool:
    return isinstance(data, dict) and isinstance(data.get("config"), dict | list)


def layer_name(data: Config) -> str:
    """Return a layer's name by its description; Keras 2.0 names a nested Sequential model nowhere."""
    config = data["config"]
    stated = config.get("name") if isinstance(config, dict) else None
    return str(data.get("name") or stated or snake_case(str(data.get("class_name"))))


def _read_layers(config: Config, name: str, path: str) -> Iterator[tuple[str, KerasLayer]]:
    """Yield a model's layers by the folder in which their weights lie."""
    layers = list_layers(config)
    # Operations have no folder, so they must not count among the layers of a class of the same name.
    classes = [
        f"operation {layer_name(data)}" if ".ops." in str(data.get("module")) else str(data.get("class_name"))
        for data in layers
    ]
    for key, data in _number_by_class(zip(classes, layers, strict=True), "layers"):
        full_name = f"{name}/{layer_name(data)}" if name else layer_name(data)
        yield key, read_layer(data, full_name, f"{path}/{key}" if path else key)


def _number_by_class(
    described: Iterable[tuple[str, Config]], folder: str = "cells"
) -> Iterator[tuple[str, Config]]:
    """Yield descriptions by their path in a folder: the class, numbered from the second of a class on."""
    used: dict[str, int] = {}
    for kind, data in described:
        stem = snake_case(kind.rpartition(">")[2])
        count = used[stem] = used.get(stem, -1) + 1
        yield f"{folder}/{stem}_{count}" if count else f"{folder}/{stem}", data


def _child_configs(kind: str, config: Config) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield attribute and configuration of each layer inside of a layer, in the order of their weights."""
    if kind in CELLS:
        yield "cell", {"class_name": CELLS[kind], "config": config}
    if kind in ATTENTIONS:
        # Of these only the names of their weights are needed: the file has no configuration of the
        # projections.
        bias_axes = "x" if config.get("use_bias", True) else None
        projection = {"class_name": "EinsumDense", "config": {"bias_axes": bias_axes}}
        yield from ((key, projection) for key in PROJECTIONS)
    if kind in WRAPPERS:
        yield WRAPPERS[kind], _wrapped_config(config.get(WRAPPERS[kind]))
    if kind == "StackedRNNCells":
        cells = [_wrapped_config(cell) for cell in config.get("cells") or ()]
        yield from _number_by_class((str(cell.get("class_name")), cell) for cell in cells)
    if kind == "Bidirectional":
        forward = _wrapped_config(config.get("layer"))
        yield "forward_layer", forward
        backward = config.get("backward_layer")
        # Without a layer of its own the way back is a copy of the other one that goes in the opposite
        # direction.
        settings = forward["config"]
        opposite = {**settings, "go_backwards": not settings.get("go_backwards", False)}
        yield "backward_layer", _wrapped_config(backward) if backward else {**forward, "config": opposite}


def _wrapped_config(data: object) -> Mapping[str, Any]:
    if not isinstance(data, dict) or not isinstance(data.get("config"), dict):
        raise LayerError("it wraps no layer")
    return data
