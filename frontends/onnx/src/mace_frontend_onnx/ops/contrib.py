"""Operators of ONNX Runtime that optimised and quantized transformers are exported with (domain com.microsoft)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from mace_core.importer import RefusedError
from mace_core.ir import Array
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import call, function_body

FUNCTIONS_SINCE = 23
"""The operator set whose functions define RotaryEmbedding and Attention."""

ACTIVATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{name: (name, ()) for name in ("Relu", "Sigmoid", "Tanh")},
        "LeakyRelu": ("LeakyRelu", ("alpha",)),
        "HardSigmoid": ("HardSigmoid", ("alpha", "beta")),
        "Clip": ("Clip", ("min", "max")),
    }
)
"""Activations that are fused, and what their parameters are called."""


def _or(node: OnnxNode, attr: str, default: Any) -> Any:
    """An attribute; these operators have no definition that would tell its default."""
    value = node.attr(attr)
    return default if value is None else value


def _gelu(approximate: str) -> Handler:
    """Gelu of the sum of what is given."""

    def handle(node: OnnxNode) -> Sequence[Held]:
        x = node.emit("Add", node.inputs(), tag="sum") if node.has(1) else node.input(0)
        return node.done("Gelu", [x], {"approximate": approximate})

    return handle


def _quick_gelu(node: OnnxNode) -> Sequence[Held]:
    return node.done("Swish", [node.input(0)], {"alpha": _or(node, "alpha", 1.702)})


def _fused_matmul(node: OnnxNode) -> Sequence[Held]:
    """Compute alpha * A' @ B'."""
    node.refuse_unless(
        not (node.attr("transBatchA") or node.attr("transBatchB")),
        "transBatchA or transBatchB; export the model without them",
    )
    sides = []
    for i, key in enumerate(("transA", "transB")):
        rank = len(node.shape(i))
        turn = node.attr(key) and rank > 1
        sides.append(node.permuted(i, (*range(rank - 2), rank - 1, rank - 2)) if turn else node.input(i))
    alpha = _or(node, "alpha", 1.0)
    if alpha == 1:
        return node.done("MatMul", sides)
    return node.done("Mul", [node.emit("MatMul", sides), node.add_constant(alpha, node.dtype(0), "alpha")])


def _standard(node: OnnxNode, op: str, inputs: int) -> OnnxNode:
    """The same node as ONNX's own operator, without what was fused into it."""
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    proto.op_type, proto.domain = op, ""
    del proto.input[inputs:]
    proto.output[0] = f"{node.proto.output[0]}/linear"
    kept = [a for a in node.proto.attribute if not a.name.startswith("activation")]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    return replace(node, proto=proto)


def _fused(op: str, inputs: int) -> Handler:
    """ONNX's operator, then perhaps the sum with a further input, then an activation."""

    def handle(node: OnnxNode) -> Sequence[Held]:
        from mace_frontend_onnx.ops import handlers

        (held,) = handlers()[op](_standard(node, op, inputs))
        assert isinstance(held, str)
        if node.has(inputs):
            held = node.emit("Add", [held, node.input(inputs)], tag="sum")
        name = str(_or(node, "activation", ""))
        node.refuse_unless(not name or name in ACTIVATIONS, f"activation {name!r}")
        if not name:
            return [held]
        activation, keys = ACTIVATIONS[name]
        values = _or(node, "activation_params", None) or [node.attr(f"activation_{key}") for key in keys]
        given = {key: float(v) for key, v in zip(keys, values, strict=False) if v is not None}
        return node.done(activation, [held], given)

    return handle


def _simplified_norm(node: OnnxNode) -> Sequence[Held]:
    _refuse_statistics(node)
    attrs = {"axis": _or(node, "axis", -1), "epsilon": _or(node, "epsilon", 1e-5)}
    return node.done("RMSNorm", [node.input(0), node.input(1)], attrs)


def _skip_norm(op: str, gamma: int, bias: int) -> Handler:
    """The norm of input + skip + bias; the sum itself is output 3. gamma, bias: where these inputs are."""

    def handle(node: OnnxNode) -> Sequence[Held]:
        _refuse_statistics(node)
        total = node.emit("Add", [node.input(0), node.input(1)], tag="skip")
        if node.has(bias):
            total = node.emit("Add", [total, node.input(bias)], tag="bias")
        factors = [node.input(i) for i in range(2, gamma + 1) if node.has(i)]
        (y,) = node.done(op, [total, *factors], {"axis": -1, "epsilon": _or(node, "epsilon", 1e-12)})
        return [y, "", "", total]

    return handle


def _refuse_statistics(node: OnnxNode) -> None:
    node.refuse_unless(
        not (node.wants(1) or node.wants(2)), "its mean or deviation is read; export the model for inference"
    )


def _call(node: OnnxNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> Sequence[Held]:
    """Write out the function by which ONNX defines an operator, on tensors of the graph."""
    scope = replace(
        node.scope,
        opsets={**node.scope.opsets, "": max(FUNCTIONS_SINCE, node.opset)},
        values={},
        parent=node.scope,
    )
    scope.values.update((name, name) for name in inputs if name)
    proto = helper.make_node(op, inputs, node.proto.output[:1], **attrs)
    made = replace(node, proto=proto, scope=scope)
    body = function_body(made)
    assert body is not None
    return call(made, body)


def _rotary(node: OnnxNode) -> Sequence[Held]:
    """Positions are one for each element, or the first of them."""
    shape, positions = node.shape(0), node.input(1)
    heads = _or(node, "num_heads", 0)
    node.refuse_unless(
        len(shape) == 4 or heads > 0 or not node.attr("rotary_embedding_dim"),
        "a part of each head without num_heads",
    )
    node.refuse_unless(_or(node, "scale", 1.0) == 1.0, "its scale is not 1")
    x = node.input(0)
    if len(shape) == 3 and not heads:
        heads = shape[2] // (2 * node.shape(2)[1])
    count = shape[-2]
    if node.shape(1) == (1,):
        steps = node.add_constant(np.arange(count).reshape(1, count), node.dtype(1), "steps")
        every = node.emit(
            "Add", [steps, node.emit("Reshape", [positions], {"shape": (1, 1)}, tag="first")], tag="positions"
        )
        positions = node.emit("Expand", [every], {"shape": (shape[0], count)}, tag="each")
    attrs = {
        "interleaved": _or(node, "interleaved", 0),
        "num_heads": heads,
        "rotary_embedding_dim": _or(node, "rotary_embedding_dim", 0),
    }
    return _call(node, "RotaryEmbedding", [x, node.input(2), node.input(3), positions], attrs)


def _multi_head(node: OnnxNode) -> Sequence[Held]:
    """Query, key and value [batch, length, heads * size] beside each other.

    A bias for all three in one vector.
    """
    node.refuse_unless(
        node.has(1) and node.has(2) and len(node.shape(1)) == 3,
        "packed query, key and value; export the model with three inputs",
    )
    later = ("key_padding_mask", "", "past_key", "past_value")
    given = [what for i, what in enumerate(later, 4) if what and node.has(i)]
    node.refuse_unless(
        not given and not node.wants(1),
        f"{', '.join(given) or 'present_key'}; export the model without a cache and with attention_bias",
    )
    parts = [node.input(i) for i in range(3)]
    if node.has(3):
        sizes = tuple(node.builder.shape(p)[-1] for p in parts)
        biases = node.emit_all("Split", [node.input(3)], {"axis": 0, "sizes": sizes}, count=3, tag="biases")
        parts = [node.emit("Add", [p, b], tag="biased") for p, b in zip(parts, biases, strict=True)]
    return _attention(node, parts, node.input(5) if node.has(5) else "")


def _packed_attention(node: OnnxNode) -> Sequence[Held]:
    """Query, key and value by one matrix product."""
    given = [what for i, what in ((3, "mask_index"), (4, "past")) if node.has(i)]
    node.refuse_unless(
        not given and not node.wants(1),
        f"{', '.join(given) or 'present'}; export the model without a mask and a cache",
    )
    sizes = tuple(_or(node, "qkv_hidden_sizes", ()) or (node.shape(1)[1] // 3,) * 3)
    bias = [node.input(2)] if node.has(2) else []
    product = node.emit("MatMul", [node.input(0), node.input(1), *bias])
    parts = node.emit_all("Split", [product], {"axis": 2, "sizes": sizes}, count=3, tag="parts")
    return _attention(node, list(parts), node.input(5) if node.has(5) else "")


def _attention(node: OnnxNode, parts: list[str], mask: str) -> Sequence[Held]:
    heads = node.attr("num_heads")
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": _or(node, "unidirectional", 0)}
    if scale := _or(node, "scale", 0.0):
        attrs["scale"] = scale
    return _call(node, "Attention", [*parts, mask] if mask else parts, attrs)


def _matmul_bits(node: OnnxNode) -> Sequence[Held]:
    """A matrix product with weights of few bits, written out as floats: blocks along K share a scale and a zero point."""
    node.refuse_unless(not node.has(4), "an order of groups (g_idx)")
    weights = _unpacked(node)
    bias = [node.input(5)] if node.has(5) else []
    return node.done(
        "MatMul", [node.input(0), node.builder.weight(f"{node.proto.input[1]}.real", weights), *bias]
    )


def _unpacked(node: OnnxNode) -> Array:
    """Weights [K, N] of a MatMulNBits: integers from the lowest bits on, their zero points likewise, half the range by default."""
    rows, columns, bits, block = (int(node.attr(key)) for key in ("K", "N", "bits", "block_size"))
    if bits not in (2, 4, 8):
        raise RefusedError(f"weights of {bits} bits")
    blocks = -(-rows // block)
    packed = node.constant(1, "weights").reshape(columns, blocks, -1)
    scales = node.constant(2, "scales").reshape(columns, blocks, 1)
    stored = _bits(packed, bits)[..., :block].astype(np.float32)
    zeros: Array = np.full((columns, blocks, 1), 1 << (bits - 1), np.float32)
    if node.has(3):
        given = node.constant(3, "zero points").reshape(columns, -1)
        zeros = (given if given.dtype.kind == "f" else _bits(given, bits))[:, :blocks, None].astype(
            np.float32
        )
    real = (stored - zeros) * scales
    return np.ascontiguousarray(real.reshape(columns, -1)[:, :rows].T.astype(scales.dtype))


def _bits(packed: Array, bits: int) -> Array:
    """Small integers packed into bytes along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


CONTRIB: Mapping[str, Handler] = MappingProxyType(
    {
        "Attention": _packed_attention,
        "BiasGelu": _gelu("none"),
        "FastGelu": _gelu("tanh"),
        "FusedConv": _fused("Conv", 3),
        "FusedGemm": _fused("Gemm", 3),
        "FusedMatMul": _fused_matmul,
        "Gelu": _gelu("none"),
        "MatMulNBits": _matmul_bits,
        "MultiHeadAttention": _multi_head,
        "QuickGelu": _quick_gelu,
        "RotaryEmbedding": _rotary,
        "SkipLayerNormalization": _skip_norm("LayerNorm", 3, 4),
        "SkipSimplifiedLayerNormalization": _skip_norm("RMSNorm", 2, 3),
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "SimplifiedLayerNormalization": _simplified_norm,
        **{f"com.microsoft::{name}": handler for name, handler in CONTRIB.items()},
    }
)
