"""Attention: with heads and projections of its own (MultiHeadAttention), and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_keras.network import Ref, is_given
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler

EXCLUDED = -1e9
"""Added to scores that do not count: far below real scores, yet finite, so that no row becomes NaN."""


def _operands(node: KerasNode) -> list[str]:
    """Return query, value and key; the key is the value where none is given."""
    # By position, or all in a list.
    tensors = node.tensors(list(node.call.args))
    problem = "it is given a mask by position; give it as attention_mask of MultiHeadAttention"
    node.refuse_unless(len(tensors) <= 3, problem)
    named = [node.keyword(key) for key in ("query", "value", "key")]
    tensors = [node.to_float(tensor) for tensor in (*tensors, *node.tensors(named[len(tensors) :]))]
    node.refuse_unless(
        len(tensors) in (2, 3), f"it is given {len(tensors)} tensors; a query and a value were expected"
    )
    return [*tensors, tensors[1]][:3]


def _apply_masks(node: KerasNode, scores: str) -> str:
    """Return scores, those that do not count so small that the softmax gives them nothing."""
    shape = node.shape(scores)
    # An argument of the call; a setting of the layer in Keras 2.
    is_causal = (node.flag("use_causal_mask"), bool(node.get("causal", False)))
    if any(is_causal):
        allowed = np.tri(shape[-2], shape[-1], dtype=bool)
        causal = node.add_float(np.where(allowed, 0, EXCLUDED), "causal")
        scores = node.emit("Add", [scores, causal], tag="causal")
    mask = node.keyword("attention_mask")
    if is_given(mask):
        scores = _mask_scores(node, scores, mask)
    keys = ("mask", "query_mask", "value_mask", "key_mask")
    others = [key for key in keys if is_given(node.keyword(key))]
    node.refuse_unless(
        not others, f"it is given {', '.join(others)}; give it as attention_mask of MultiHeadAttention"
    )
    return scores


def _mask_scores(node: KerasNode, scores: str, mask: Any) -> str:
    """Return scores [B, heads, Tq, Tk] where a mask is true, and EXCLUDED elsewhere."""
    shape = node.shape(scores)
    # A mask that no layer computes stands in the file as an array, or as a list.
    (tensor,) = node.tensors(mask if isinstance(mask, Ref) else np.asarray(mask))
    *outer, rows, columns = (1, 1, *node.shape(tensor))[-max(len(node.shape(tensor)), 2) :]
    fits = len(outer) <= 2 and rows in (1, shape[-2]) and columns in (1, shape[-1])
    node.require_supported(fits, f"it is given a mask of shape {list(node.shape(tensor))}")
    # A mask [B, Tq, Tk] counts for all heads: their axis is missing behind the batch.
    wide_shape = (*outer, *(1,) * (2 - len(outer)), rows, columns)
    wide = node.emit("Reshape", [tensor], {"shape": wide_shape}, tag="mask")
    is_bool = node.builder.tensors[wide].dtype.value == "bool"
    chosen = wide if is_bool else node.emit("Cast", [wide], {"to": "bool"}, tag="mask")
    return node.emit("Where", [chosen, scores, node.add_float(EXCLUDED)], tag="masked")


def _mix_values(node: KerasNode, scores: str, value: str) -> tuple[str, str]:
    """Return the sums of values weighted by the softmax of scores, and these weights."""
    axis = len(node.shape(scores)) - 1
    weights = node.emit("Softmax", [_apply_masks(node, scores)], {"axis": axis}, tag="weights")
    return node.emit("MatMul", [weights, value], tag="mixed"), weights


def _done_results(node: KerasNode, output: str, weights: str) -> Sequence[str]:
    """Add the call's results: the output, and the weights if the call returns them."""
    return node.done_all([output, weights] if node.flag("return_attention_scores") else [output])


def _heads(node: KerasNode, key: str, tensor: str, count: int) -> str:
    """Return a tensor [B, T, E] projected to [B, heads, T, D]."""
    projection = node.child_node(f"{node.name}/{key}", node.layer.children[f"{key}_dense"])
    kernel = projection.array("kernel")
    node.require_consistent(
        kernel.ndim == 3 and count % kernel.shape[1] == 0,
        f"its {key} projection has shape {list(kernel.shape)}",
    )
    # All heads are projected by one matrix [E, heads * D], which is faster than one for each.
    features, depth = kernel.shape[0], kernel.shape[2]
    name = projection.layer.name
    matrix = _repeat_heads(kernel, count).reshape(features, count * depth)
    inputs = [tensor, node.importer.add_shared((name, "kernel"), lambda: np.ascontiguousarray(matrix))]
    if projection.has("bias"):
        bias = _repeat_heads(projection.array("bias"), count).reshape(count * depth)
        inputs.append(node.importer.add_shared((name, "bias"), lambda: np.ascontiguousarray(bias)))
    projected = node.emit("MatMul", inputs, tag=key)
    batch, length = node.shape(tensor)[:2]
    split = node.emit("Reshape", [projected], {"shape": (batch, length, count, depth)}, tag=f"{key}-heads")
    return node.emit("Transpose", [split], {"perm": (0, 2, 1, 3)}, tag=f"{key}-turned")


def _repeat_heads(array: Array, count: int) -> Array:
    """Return weights [..., heads, D] with each head once for each query that shares it (grouped queries)."""
    return np.repeat(array, count // array.shape[-2], axis=-2)


def _multi_head(node: KerasNode) -> Sequence[str]:
    """Add the softmax of scaled products of queries and keys, times the values.

    A. Vaswani et al., "Attention is all you need", 2017.
    """
    for key in ("use_gate", "sliding_window"):
        node.refuse_unless(not node.get(key, False), f"{key} is not supported; build it of operations")
    query, value, keys = _operands(node)
    shape = node.shape(query)
    _refuse_axes(node, len(shape))
    # All axes between batch and features are one sequence.
    rows = []
    for tensor in (query, value, keys):
        batch, *middle, width = node.shape(tensor)
        rows.append(node.emit("Reshape", [tensor], {"shape": (batch, prod(middle), width)}, tag="rows"))
    count = node.integer("num_heads", node.get("num_query_heads"))
    q, v, k = (_heads(node, key, t, count) for key, t in zip(("query", "value", "key"), rows, strict=True))
    # The query is scaled before the product, as in Keras: it is smaller than the scores.
    scaled = node.emit("Mul", [q, node.add_float(1 / sqrt(node.shape(q)[-1]), "scale")], tag="scaled")
    transposed = node.emit("Transpose", [k], {"perm": (0, 1, 3, 2)}, tag="keys")
    scores = node.emit("MatMul", [scaled, transposed], tag="scores")
    mixed, weights = _mix_values(node, scores, v)
    output, features = _project_output(node, mixed)
    output = node.emit("Reshape", [output], {"shape": (*shape[:-1], *features)}, tag="output-rows")
    return _done_results(node, output, weights)


def _refuse_axes(node: KerasNode, rank: int) -> None:
    axes = node.get("attention_axes")
    listed = axes if isinstance(axes, list) else [axes]
    is_all = axes is None or [axis % rank for axis in listed] == list(range(1, rank - 1))
    node.refuse_unless(is_all, f"attention along axes {axes!r} only; transpose the others into the batch")


def _project_output(node: KerasNode, mixed: str) -> tuple[str, tuple[int, ...]]:
    """Return the heads [B, heads, T, D] projected to rows [B, T, features], and the shape of the features."""
    batch, count, length, depth = node.shape(mixed)
    by_time = node.emit("Transpose", [mixed], {"perm": (0, 2, 1, 3)}, tag="joined")
    rows = node.emit("Reshape", [by_time], {"shape": (batch, length, count * depth)}, tag="joined-rows")
    projection = node.child_node(f"{node.name}/output", node.layer.children["output_dense"])
    name, kernel = projection.layer.name, projection.array("kernel")
    features = kernel.shape[2:]
    matrix = kernel.reshape(count * depth, prod(features))
    inputs = [rows, node.importer.add_shared((name, "kernel"), lambda: matrix)]
    if projection.has("bias"):
        inputs.append(node.importer.add_shared((name, "bias"), lambda: projection.array("bias").reshape(-1)))
    return node.emit("MatMul", inputs, tag="output"), features


def _add_pairs(node: KerasNode, query: str, keys: str) -> str:
    """Return the sums of each query and each key: [B, Tq, Tk, D]."""
    (b, tq, d), (_, tk, _) = node.shape(query), node.shape(keys)
    queries = node.emit("Reshape", [query], {"shape": (b, tq, 1, d)}, tag="queries")
    wide_keys = node.emit("Reshape", [keys], {"shape": (b, 1, tk, d)}, tag="keys")
    return node.emit("Add", [queries, wide_keys], tag="pairs")


def _plain(node: KerasNode) -> Sequence[str]:
    """Add attention by the products of queries and keys, or by the tanh of their sums ("concat")."""
    query, value, keys = _operands(node)
    _refuse_other_ranks(node, query, value, keys)
    scale: Any = node.weight("scale") if node.has("scale") else None
    if node.get("score_mode", "dot") == "dot":
        # Unlike MultiHeadAttention this layer does not divide by the root of the depth.
        transposed = node.emit("Transpose", [keys], {"perm": (0, 2, 1)}, tag="keys")
        scores = node.emit("MatMul", [query, transposed], tag="scores")
        scores = node.emit("Mul", [scores, scale], tag="scaled") if scale else scores
    else:
        pairs = _add_pairs(node, query, keys)
        pairs = node.emit("Mul", [pairs, scale], tag="scaled") if scale else pairs
        axes = {"axes": (3,), "keepdims": False}
        total = node.emit("ReduceSum", [node.emit("Tanh", [pairs])], axes, tag="sums")
        scores = node.emit("Mul", [total, node.weight("concat_score_weight")], tag="scores")
    return _done_results(node, *_mix_values(node, scores, value))


def _refuse_other_ranks(node: KerasNode, *tensors: str) -> None:
    node.require_supported(
        all(len(node.shape(tensor)) == 3 for tensor in tensors),
        "it is given tensors of other ranks; tensors of rank 3 were expected",
    )


def _additive(node: KerasNode) -> Sequence[str]:
    """Add attention by the tanh of sums of queries and keys, each feature with a weight.

    D. Bahdanau et al., "Neural machine translation by jointly learning to align and translate", 2014.
    """
    query, value, keys = _operands(node)
    _refuse_other_ranks(node, query, value, keys)
    features = node.emit("Tanh", [_add_pairs(node, query, keys)])
    if node.has("scale"):
        features = node.emit("Mul", [features, node.weight("scale")], tag="scaled")
    scores = node.emit("ReduceSum", [features], {"axes": (3,), "keepdims": False}, tag="scores")
    return _done_results(node, *_mix_values(node, scores, value))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention"), _multi_head),
        "Attention": _plain,
        "AdditiveAttention": _additive,
    }
)
