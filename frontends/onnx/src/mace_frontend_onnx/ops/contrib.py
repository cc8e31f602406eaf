"""Operators of ONNX Runtime that optimized and quantized transformers are exported with (com.microsoft).

ONNX defines none of them. Attributes, defaults and formulas are those of
onnxruntime/docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import find_function_body, inline_function

FUNCTIONS_SINCE = 23
"""The operator set of ONNX whose functions define RotaryEmbedding and Attention."""

ACTIVATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{name: (name, ()) for name in ("Relu", "Sigmoid", "Tanh")},
        "LeakyRelu": ("LeakyRelu", ("alpha",)),
        "HardSigmoid": ("HardSigmoid", ("alpha", "beta")),
        "Clip": ("Clip", ("min", "max")),
    }
)
"""Activations that ONNX Runtime fuses -> the IR's op and the names of its parameters in their order."""


def _gelu(approximate: str) -> Handler:
    """Return a handler of Gelu(input 0 + bias), the bias optional."""

    def handle(node: OnnxNode) -> Sequence[Result]:
        x = node.emit("Add", node.inputs(), tag="sum") if node.has(1) else node.input(0)
        return node.done("Gelu", [x], {"approximate": approximate})

    return handle


def _quick_gelu(node: OnnxNode) -> Sequence[Result]:
    # QuickGelu(x) = x * sigmoid(alpha * x), which is ONNX's Swish; its default of alpha is 1.702.
    return node.done("Swish", [node.input(0)], {"alpha": node.attr_or("alpha", 1.702)})


def _fused_matmul(node: OnnxNode) -> Sequence[Result]:
    """Compute alpha * A' @ B'."""
    has_batch_transpose = node.attr("transBatchA") or node.attr("transBatchB")
    node.refuse_unless(not has_batch_transpose, "transBatchA or transBatchB; export the model without them")
    factors = []
    for i, key in enumerate(("transA", "transB")):
        rank = len(node.shape(i))
        # ONNX Runtime ignores the transposition of a vector (core/providers/cpu/math/matmul.cc).
        if node.attr(key) and rank > 1:
            factors.append(node.permute(i, (*range(rank - 2), rank - 1, rank - 2)))
        else:
            factors.append(node.input(i))
    alpha = node.attr_or("alpha", 1.0)
    if alpha == 1:
        return node.done("MatMul", factors)
    return node.done("Mul", [node.emit("MatMul", factors), node.add_constant(alpha, node.dtype(0), "alpha")])


def _without_fusion(node: OnnxNode, op: str, input_count: int) -> OnnxNode:
    """Return the node as ONNX's own operator, without what was fused into it."""
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    proto.op_type, proto.domain = op, ""
    del proto.input[input_count:]
    proto.output[0] = f"{node.proto.output[0]}/linear"
    attributes = [a for a in node.proto.attribute if not a.name.startswith("activation")]
    del proto.attribute[:]
    proto.attribute.extend(attributes)
    return replace(node, proto=proto)


def _fused_handler(op: str, input_count: int) -> Handler:
    """Return a handler of ONNX's operator, the sum with a further input if present, and an activation."""

    def handle(node: OnnxNode) -> Sequence[Result]:
        # Not at the top: `ops` looks for the tables of all modules, of which this is one.
        from mace_frontend_onnx.ops import handlers

        (result,) = handlers()[op](_without_fusion(node, op, input_count))
        assert isinstance(result, str)
        if node.has(input_count):
            result = node.emit("Add", [result, node.input(input_count)], tag="sum")
        name = str(node.attr_or("activation", ""))
        node.refuse_unless(not name or name in ACTIVATIONS, f"activation {name!r}")
        if not name:
            return [result]
        activation, keys = ACTIVATIONS[name]
        return node.done(activation, [result], _activation_attributes(node, keys))

    return handle


def _activation_attributes(node: OnnxNode, keys: Sequence[str]) -> dict[str, float]:
    """Return the parameters of a fused activation; the IR's op has the same defaults for absent ones."""
    # FusedConv lists them in `activation_params`, FusedGemm has an attribute for each.
    values = node.attr("activation_params") or [node.attr(f"activation_{key}") for key in keys]
    pairs = zip(keys, values, strict=False)
    return {key: float(value) for key, value in pairs if value is not None}


def _simplified_norm(node: OnnxNode) -> Sequence[Result]:
    _refuse_statistics(node)
    attrs = {"axis": node.attr_or("axis", -1), "epsilon": node.attr_or("epsilon", 1e-5)}
    return node.done("RMSNorm", [node.input(0), node.input(1)], attrs)


def _skip_norm(op: str, last_factor: int, bias: int) -> Handler:
    """Return a handler of the norm of input + skip + bias.

    last_factor: the last of the norm's own inputs, which begin at 2.  bias: the input that is added before
    it.
    """

    def handle(node: OnnxNode) -> Sequence[Result]:
        _refuse_statistics(node)
        total = node.emit("Add", [node.input(0), node.input(1)], tag="skip")
        if node.has(bias):
            total = node.emit("Add", [total, node.input(bias)], tag="bias")
        factors = [node.input(i) for i in range(2, last_factor + 1) if node.has(i)]
        epsilon = node.attr_or("epsilon", 1e-12)
        (y,) = node.done(op, [total, *factors], {"axis": -1, "epsilon": epsilon})
        # Output 3 is the sum: the next layer's skip connection starts from it.
        return [y, "", "", total]

    return handle


def _refuse_statistics(node: OnnxNode) -> None:
    is_read = node.is_output_read(1) or node.is_output_read(2)
    node.refuse_unless(not is_read, "its mean or deviation is read; export the model for inference")


def _call_function(
    node: OnnxNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]
) -> Sequence[Result]:
    """Translate the function by which ONNX defines an operator, on tensors of the graph."""
    scope = replace(
        node.scope,
        opsets={**node.scope.opsets, "": max(FUNCTIONS_SINCE, node.opset)},
        values={},
        parent=node.scope,
    )
    scope.values.update((name, name) for name in inputs if name)
    proto = helper.make_node(op, inputs, node.proto.output[:1], **attrs)
    function_node = replace(node, proto=proto, scope=scope)
    body = find_function_body(function_node)
    assert body is not None
    return inline_function(function_node, body)


def _rotary(node: OnnxNode) -> Sequence[Result]:
    """Express RotaryEmbedding by ONNX's, whose positions are [batch, length]."""
    shape, positions = node.shape(0), node.input(1)
    heads = node.attr_or("num_heads", 0)
    is_partial = bool(node.attr("rotary_embedding_dim"))
    node.refuse_unless(
        len(shape) == 4 or heads > 0 or not is_partial, "a part of each head without num_heads"
    )
    node.refuse_unless(node.attr_or("scale", 1.0) == 1.0, "its scale is not 1")
    if len(shape) == 3 and not heads:
        # The cosine cache [positions, head size / 2] tells the size of a head where the node does not.
        heads = shape[2] // (2 * node.shape(2)[1])
    if node.shape(1) == (1,):
        positions = _consecutive_positions(node, positions)
    attrs = {
        "interleaved": node.attr_or("interleaved", 0),
        "num_heads": heads,
        "rotary_embedding_dim": node.attr_or("rotary_embedding_dim", 0),
    }
    inputs = [node.input(0), node.input(2), node.input(3), positions]
    return _call_function(node, "RotaryEmbedding", inputs, attrs)


def _consecutive_positions(node: OnnxNode, first: str) -> str:
    """Return positions [batch, length] that count on from a first one [1], as ONNX Runtime reads it."""
    batch, length = node.shape(0)[0], node.shape(0)[-2]
    steps = node.add_constant(np.arange(length).reshape(1, length), node.dtype(1), "steps")
    start = node.emit("Reshape", [first], {"shape": (1, 1)}, tag="first")
    row = node.emit("Add", [steps, start], tag="positions")
    return node.emit("Expand", [row], {"shape": (batch, length)}, tag="each")


def _multi_head(node: OnnxNode) -> Sequence[Result]:
    """Express attention of query, key and value [batch, length, heads * size], each an input.

    Input 3 is a bias for all three in one vector.
    """
    node.refuse_unless(
        node.has(1) and node.has(2) and len(node.shape(1)) == 3,
        "packed query, key and value; export the model with three inputs",
    )
    optional = {4: "key_padding_mask", 6: "past_key", 7: "past_value"}
    present = [name for i, name in optional.items() if node.has(i)]
    node.refuse_unless(
        not present and not node.is_output_read(1),
        f"{', '.join(present) or 'present_key'}; export the model without a cache and with attention_bias",
    )
    parts = [node.input(i) for i in range(3)]
    if node.has(3):
        sizes = tuple(node.builder.shape(part)[-1] for part in parts)
        biases = node.emit_all("Split", [node.input(3)], {"axis": 0, "sizes": sizes}, count=3, tag="biases")
        pairs = zip(parts, biases, strict=True)
        parts = [node.emit("Add", [part, bias], tag="biased") for part, bias in pairs]
    return _attention(node, parts, node.input(5) if node.has(5) else "")


def _packed_attention(node: OnnxNode) -> Sequence[Result]:
    """Express attention whose query, key and value are computed by one matrix product."""
    optional = {3: "mask_index", 4: "past"}
    present = [name for i, name in optional.items() if node.has(i)]
    node.refuse_unless(
        not present and not node.is_output_read(1),
        f"{', '.join(present) or 'present'}; export the model without a mask and a cache",
    )
    node.refuse_unless(not node.attr("do_rotary"), "do_rotary; export it with RotaryEmbedding before it")
    sizes = tuple(node.attr("qkv_hidden_sizes") or (node.shape(1)[1] // 3,) * 3)
    bias = [node.input(2)] if node.has(2) else []
    product = node.emit("MatMul", [node.input(0), node.input(1), *bias])
    parts = node.emit_all("Split", [product], {"axis": 2, "sizes": sizes}, count=3, tag="parts")
    return _attention(node, list(parts), node.input(5) if node.has(5) else "")


def _attention(node: OnnxNode, parts: list[str], bias: str) -> Sequence[Result]:
    """Express attention by ONNX's; bias: what is added to the scores, "" for nothing."""
    heads = node.attr("num_heads")
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": node.attr_or("unidirectional", 0)}
    # A scale of 0 stands for the default, 1 / sqrt(head size), which ONNX takes without the attribute.
    if scale := node.attr_or("scale", 0.0):
        attrs["scale"] = scale
    return _call_function(node, "Attention", [*parts, bias] if bias else parts, attrs)


def _matmul_bits(node: OnnxNode) -> Sequence[Result]:
    """Multiply by weights of few bits."""
    # They are decoded to floats here: no kernel reads them packed.
    node.refuse_unless(not node.has(4), "an order of groups (g_idx)")
    weights = node.builder.weight(f"{node.proto.input[1]}.real", _decode_weights(node))
    others = [node.input(index) for index in (0, 5) if node.has(index)]
    if node.dtype(0) is DType.F32:
        x, *bias = others
        return node.done("MatMul", [x, weights, *bias])
    # ONNX Runtime widens half precision to floats, with which a product of scale and integer is exact, and
    # rounds each result once (matmul_nbits.cc).
    x, *bias = (node.emit("Cast", [other], {"to": DType.F32.value}, tag="float") for other in others)
    product = node.emit("MatMul", [x, weights, *bias])
    return node.done("Cast", [product], {"to": node.dtype(0).value})


def _decode_weights(node: OnnxNode) -> Array:
    """Return the weights [K, N] of a MatMulNBits: (integer - zero point) * scale, per block of K.

    The file has them as [N, blocks, bytes of a block].
    """
    rows, columns, bits, block = (int(node.attr(key)) for key in ("K", "N", "bits", "block_size"))
    if bits not in (2, 4, 8):
        raise RefusedError(f"weights of {bits} bits")
    blocks = -(-rows // block)
    packed = node.constant(1, "weights").reshape(columns, blocks, -1)
    scales = node.constant(2, "scales").reshape(columns, blocks, 1).astype(np.float32)
    integers = _unpack_bits(packed, bits)[..., :block].astype(np.float32)
    # Without zero points it is half the range: 8 for 4 bits.
    zeros: Array = np.full((columns, blocks, 1), 1 << (bits - 1), np.float32)
    if node.has(3):
        points = node.constant(3, "zero points").reshape(columns, -1)
        # Floats lie as they are; integers are packed as the weights, each row padded to whole bytes.
        if points.dtype.kind != "f":
            points = _unpack_bits(points, bits)
        zeros = points[:, :blocks, None].astype(np.float32)
    real = (integers - zeros) * scales
    # The last block may reach beyond K.
    return np.ascontiguousarray(real.reshape(columns, -1)[:, :rows].T)


def _unpack_bits(packed: Array, bits: int) -> Array:
    """Return integers that are packed into bytes along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


CONTRIB: Mapping[str, Handler] = MappingProxyType(
    {
        "Attention": _packed_attention,
        "BiasGelu": _gelu("none"),
        "FastGelu": _gelu("tanh"),
        "FusedConv": _fused_handler("Conv", 3),
        "FusedGemm": _fused_handler("Gemm", 3),
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
        # ONNX Runtime exports this one under ONNX's domain.
        "SimplifiedLayerNormalization": _simplified_norm,
        **{f"com.microsoft::{name}": handler for name, handler in CONTRIB.items()},
    }
)
