"""Tells which settings of layers, and which arguments of their calls, change what a trained model computes.

A handler reads what it knows. Everything else must stand here, or the layer is refused: layers get further
settings from version to version, and one that nobody reads would change the result silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mace_frontend_keras.layer import ATTENTIONS, Config, KerasLayer

OPERATIONS = ("ops.", "tf.")
"""How the kinds of calls of functions begin."""

OPERATION_NO_EFFECT = frozenset(
    (
        *("name", "trainable", "dtype", "function", "data_format", "sparse"),
        # Types of indices, hints for checks and for speed, and the order of what is sorted in any case.
        *("out_type", "output_type", "dtype_hint", "validate_indices", "num", "sorted"),
        *("a_is_sparse", "b_is_sparse"),
        # What fills an image that is resized with its own aspect ratio, which is refused.
        *("fill_mode", "fill_value"),
    )
)
"""Settings of operations that need not be read."""

LAYER_NO_EFFECT = frozenset(
    (
        # Names and types: those that matter are read from the inputs and the weights.
        *("name", "trainable", "dtype", "autocast", "batch_input_shape", "batch_shape", "input_length"),
        # What training alone uses.
        *("momentum", "renorm_momentum", "synchronized", "virtual_batch_size", "unit_forget_bias"),
        *("dropout", "recurrent_dropout", "seed", "lora_rank", "lora_alpha", "l1", "l2"),
        # Layers inside, which have settings of their own.
        *("layer", "backward_layer", "cell", "cells"),
        # Ways to compute the same, and what sequences with masks get, which are refused.
        *("fused", "unroll", "implementation", "use_cudnn", "flash_attention", "sparse"),
        "zero_output_for_mask",
        # What the number and the shapes of the weights state.
        *("use_bias", "center", "scale", "use_scale", "bias_axes", "tie_weights", "shared_axes"),
        *("filters", "kernel_size", "depth_multiplier", "input_dim", "output_dim", "units"),
        *("key_dim", "value_dim", "head_dim", "output_shape", "num_key_value_heads"),
        # Of LayerScale in Keras's own ConvNeXt: the start of its weights, and how many there are.
        *("init_values", "projection_dim"),
        # What fills an image that is resized with its own aspect ratio, which is refused.
        *("fill_mode", "fill_value"),
        "training",  # checked by itself
    )
)
"""Settings of layers, and arguments of their calls, that need not be read."""

TRAINING_SUFFIXES = ("_initializer", "_regularizer", "_constraint")
"""How settings end that only training uses."""

TRAINING_LAYERS = (
    *("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
    *("AlphaDropout", "GaussianDropout", "GaussianNoise", "StochasticDepth"),
    *("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast"),
    *("RandomBrightness", "RandomShear", "RandomErasing", "RandomHue", "RandomSaturation"),
    *("RandomColorJitter", "RandomGrayscale", "RandomSharpness", "RandomGaussianBlur", "RandomInvert"),
    *("RandomPosterization", "RandomColorDegeneration", "RandomPerspective", "RandomElasticTransform"),
)
"""Layers that return their input unchanged in a trained model. None of their settings need be read."""

NORMALIZING = ("BatchNormalization", "SyncBatchNormalization")
"""Layers that take the moments of their input while they are trained."""
DROPPING = ("LSTM", "GRU", "SimpleRNN", "Attention", "AdditiveAttention", *ATTENTIONS)
"""Layers that drop elements in training, as often as their settings say."""
WRAPPING = ("RNN", "Bidirectional", "TimeDistributed")
"""Layers that pass on to those that they wrap whether they are trained."""

POSITIONS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional"), 2),
        **dict.fromkeys(ATTENTIONS, 3),
    }
)
"""Layers -> how many arguments their handlers read by position, where it is more than one."""


def is_stated(value: Any) -> bool:
    """Tell whether a setting has another value than those that stand for nothing: null, false, 0, empty."""
    if isinstance(value, bool | int | float | str | list | tuple | dict):
        return bool(value)
    return value is not None


def is_operation(layer: KerasLayer) -> bool:
    """Tell whether it is an operation of a functional model, not a layer."""
    return layer.kind.startswith(OPERATIONS)


def find_unread(layer: KerasLayer, arguments: Config, requested: set[str]) -> list[str]:
    """Return the settings and named arguments that nothing has read and that may change the result.

    arguments: those that the call names.
    requested: names that the handler has read.
    """
    unread: list[str] = []
    for stated in (*_settings(layer), arguments):
        unread += [key for key in stated if key not in requested and _matters(layer, key, stated[key])]
    return list(dict.fromkeys(unread))


def _settings(layer: KerasLayer) -> Iterator[Config]:
    """Yield the settings of a layer and of those inside that it does not call like any other layer."""
    if layer.kind not in TRAINING_LAYERS:
        yield layer.config
    if layer.kind != "TimeDistributed":
        for child in layer.children.values():
            yield from _settings(child)


def _matters(layer: KerasLayer, key: str, value: Any) -> bool:
    if is_operation(layer):
        return key not in OPERATION_NO_EFFECT and is_stated(value)
    if key == "mask" and layer.kind in NORMALIZING:
        return False  # it leaves elements out of the moments of training
    return key not in LAYER_NO_EFFECT and not key.endswith(TRAINING_SUFFIXES) and is_stated(value)


def has_unread_positions(layer: KerasLayer, arguments: Sequence[Any]) -> bool:
    """Tell whether a call gives a layer an argument at a position that its handler does not read."""
    return not is_operation(layer) and any(map(is_stated, arguments[POSITIONS.get(layer.kind, 1) :]))


def depends_on_training(layer: KerasLayer) -> bool:
    """Tell whether a layer computes something else where Keras 2 calls it with training=True."""
    if layer.kind in NORMALIZING:
        return layer.trainable  # frozen, it takes its own moments in any case
    if layer.kind in DROPPING:
        return any(is_stated(layer.config.get(key)) for key in ("dropout", "recurrent_dropout"))
    return layer.kind in (*TRAINING_LAYERS, *WRAPPING)
