"""Picks the handler of a layer, and follows masks from layer to layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.attributes import fields_of
from mace_core.importer import ImportedNode, RefusedError
from mace_frontend_keras.network import is_given
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import handlers

KEEP_MASK = frozenset(
    (
        *(
            "Activation",
            "ReLU",
            "LeakyReLU",
            "PReLU",
            "ELU",
            "Softmax",
            "Dense",
            "Identity",
            "Rescaling",
            "Normalization",
        ),
        *(
            "BatchNormalization",
            "LayerNormalization",
            "GroupNormalization",
            "UnitNormalization",
            "RMSNormalization",
        ),
        *(
            "Dropout",
            "AlphaDropout",
            "GaussianDropout",
            "GaussianNoise",
            "ActivityRegularization",
            "SpatialDropout1D",
            "SpatialDropout2D",
            "SpatialDropout3D",
        ),
        *("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "ThresholdedReLU"),
    )
)
"""Layers whose results have the mask of their inputs."""
USE_MASK = frozenset(
    (
        *(
            "LSTM",
            "GRU",
            "SimpleRNN",
            "RNN",
            "Bidirectional",
            "TimeDistributed",
            "ConvLSTM1D",
            "ConvLSTM2D",
            "ConvLSTM3D",
            "Softmax",
        ),
        *(
            "MultiHeadAttention",
            "GroupedQueryAttention",
            "GroupQueryAttention",
            "Attention",
            "AdditiveAttention",
            "GlobalAveragePooling1D",
        ),
    )
)
"""Layers that compute something else for inputs with a mask."""
MASK_PLACES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "TimeDistributed"), 2),
        "GlobalAveragePooling1D": 1,
    }
)
"""Layers that a call may give a mask -> its position among the arguments of Keras 3."""

MASK_REMEDY = (
    "make the model without masks (mask_zero=False, no Masking layer) and give it sequences of one length"
)


def convert(node: KerasNode) -> Sequence[str]:
    """Add what computes a call: the handler comes before a plugin's op."""
    kind = node.op
    _refuse_settings(node)
    importer = node.importer
    masked = any(importer.results.values.get(ref.name) in importer.masked for ref in node.call.refs())
    if masked and kind in USE_MASK:
        raise RefusedError(f"it is given sequences with a mask, which is computed at run time; {MASK_REMEDY}")
    # Attention reads masks itself.
    if kind in MASK_PLACES and _has_mask(node):
        raise RefusedError(f"it is given a mask as an argument; {MASK_REMEDY}")
    if kind in handlers():
        results = handlers()[kind](node)
    elif custom := node.builder.ops.get(custom_name(kind)):
        known = fields_of(custom.attrs)
        attrs = {key: value for key, value in node.layer.config.items() if key in known}
        results = node.done(custom, node.inputs(), attrs)
    else:
        raise RefusedError(_explain_unsupported(kind))
    if (masked and kind in KEEP_MASK) or _makes_mask(node):
        importer.masked.update(results)
    if kind in handlers():
        node.refuse_unread()
    return results


def _has_mask(node: KerasNode) -> bool:
    """Tell whether a call gives its layer a mask, by name or by position."""
    place = MASK_PLACES[node.op]
    return is_given([node.call.kwargs.get("mask"), *node.call.args[place : place + 1]])


def _makes_mask(node: KerasNode) -> bool:
    """Tell whether the results of a layer have a mask that its inputs have not."""
    is_embedding = node.op in ("Embedding", "ReversibleEmbedding")
    return node.op == "Masking" or (is_embedding and bool(node.get("mask_zero", False)))


def explain_unknown(node: ImportedNode) -> str | None:
    """Return why a layer is not supported; None if it is."""
    known = node.op in handlers() or custom_name(node.op) in node.builder.ops
    return None if known else _explain_unsupported(node.op)


def custom_name(kind: str) -> str:
    """Return the name that a plugin's op for a kind of layer has."""
    return f"keras::{kind.rpartition('>')[2]}"


def _refuse_settings(node: KerasNode) -> None:
    """Raise RefusedError for settings that change what every layer computes."""
    policy = node.layer.config.get("dtype")
    name = policy.get("class_name") if isinstance(policy, dict) else policy
    # Keras states its own quantization by the name of a dtype policy, later versions by a setting of its own
    # as well.
    prefixes = ("int8_", "float8_", "int4_", "gptq", "awq")
    quantized = isinstance(name, str) and ("Quantized" in name or name.startswith(prefixes))
    remedy = "save the model before it is quantized, or convert it to TFLite"
    node.refuse_unless(
        not quantized and not node.layer.config.get("quantization_config"),
        f"it is quantized by Keras; {remedy}",
    )


def _explain_unsupported(kind: str) -> str:
    if kind in ("Lambda", "ops.Lambda"):
        return (
            "it is Python code, which is never executed here; write it with operations of keras.ops, "
            "or cut the graph before it with output_tensors"
        )
    name = custom_name(kind)
    return (
        f"{kind} is not supported; cut the graph before it with output_tensors, or add {name!r} by a plugin"
    )
