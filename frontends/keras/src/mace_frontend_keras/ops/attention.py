"""Attention: with heads and projections of its own, and plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_keras.network import Ref, refs
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler

LEAST = -1e9
"""What is added to scores that do not count."""


def _operands(node: KerasNode) -> list[str]:
    """Query, value and key: by place, by name, or as a list."""
    given = [a for a in node.call.args if isinstance(a, Ref | list)]
    found = [ref for a in given for ref in refs(a)][:3]
    named = [node.call.kwargs.get(key) for key in ("query", "value", "key")]
    tensors = [
        node.to_float(node.importer.tensor(ref))
        for ref in (*found, *(n for n in named[len(found) :] if isinstance(n, Ref)))
    ]
    node.refuse_unless(
        len(tensors) in (2, 3), f"it is given {len(tensors)} tensors; a query and a value were expected"
    )
    return [*tensors, tensors[1]][:3]


def _masked(node: KerasNode, scores: str) -> str:
    """Scores, those that do not count made so small that softmax gives them nothing."""
    shape = node.shape(scores)
    if node.flag("use_causal_mask") or node.get("causal", False):
        allowed = np.tri(shape[-2], shape[-1], dtype=bool)
        scores = node.emit(
            "Add", [scores, node.add_float(np.where(allowed, 0, LEAST), "causal")], tag="causal"
        )
    mask = node.call.kwargs.get("attention_mask")
    if isinstance(mask, Ref):
        tensor = node.importer.tensor(mask)
        own = node.shape(tensor)
        wide = node.emit(
            "Reshape", [tensor], {"shape": (*own[:1], *(1,) * (len(shape) - len(own)), *own[1:])}, tag="mask"
        )
        is_bool = node.builder.tensors[wide].dtype.value == "bool"
        chosen = wide if is_bool else node.emit("Cast", [wide], {"to": "bool"}, tag="mask")
        scores = node.emit("Where", [chosen, scores, node.add_float(LEAST)], tag="masked")
    others = [
        key
        for key in ("mask", "query_mask", "value_mask", "key_mask")
        if list(refs(node.call.kwargs.get(key)))
    ]
    node.refuse_unless(
        not others, f"it is given {', '.join(others)}; give it as attention_mask of MultiHeadAttention"
    )
    return scores


def _mixed(node: KerasNode, scores: str, value: str) -> tuple[str, str]:
    """Values mixed by the softmax of scores, and that softmax."""
    weights = node.emit(
        "Softmax", [_masked(node, scores)], {"axis": len(node.shape(scores)) - 1}, tag="weights"
    )
    return node.emit("MatMul", [weights, value], tag="mixed"), weights


def _results(node: KerasNode, made: str, weights: str) -> Sequence[str]:
    wants = node.flag("return_attention_scores") or (len(node.call.args) > 3 and node.call.args[-1] is True)
    return node.named([made, weights] if wants else [made])


def _heads(node: KerasNode, key: str, tensor: str, count: int) -> str:
    """A tensor [B, T, E] projected to [B, heads, T, D]."""
    part = node.part(f"{node.name}/{key}", node.layer.children[f"{key}_dense"])
    kernel = part.array("kernel")
    node.refuse_unless(
        kernel.ndim == 3 and count % kernel.shape[1] == 0,
        f"its {key} projection has shape {list(kernel.shape)}",
    )
    matrix, bias = (
        _repeated(a, count) for a in (kernel, part.array("bias") if part.has("bias") else kernel[0] * 0)
    )
    wide, depth = count * kernel.shape[2], kernel.shape[2]
    w = node.importer.shared(
        (part.layer.name, "kernel"), lambda: np.ascontiguousarray(matrix.reshape(kernel.shape[0], wide))
    )
    b = (
        [node.importer.shared((part.layer.name, "bias"), lambda: np.ascontiguousarray(bias.reshape(wide)))]
        if part.has("bias")
        else []
    )
    made = node.emit("MatMul", [tensor, w, *b], tag=key)
    batch, length = node.shape(tensor)[:2]
    split = node.emit("Reshape", [made], {"shape": (batch, length, count, depth)}, tag=f"{key}-heads")
    return node.emit("Transpose", [split], {"perm": (0, 2, 1, 3)}, tag=f"{key}-turned")


def _repeated(array: Array, count: int) -> Array:
    """Heads that several queries share, once for each of them."""
    return np.repeat(array, count // array.shape[-2], axis=-2)


def _multi_head(node: KerasNode) -> Sequence[str]:
    """Softmax of the scaled products of queries and keys (A. Vaswani et al., "Attention is all you need", 2017)."""
    for key in ("use_gate", "sliding_window"):
        node.refuse_unless(not node.get(key, False), f"{key} is not supported; build it of operations")
    query, value, keys = _operands(node)
    shapes = [node.shape(t) for t in (query, value)]
    axes = node.get("attention_axes")
    middle = list(range(1, len(shapes[0]) - 1))
    whole = (
        axes is None or [a % len(shapes[0]) for a in (axes if isinstance(axes, list) else [axes])] == middle
    )
    node.refuse_unless(whole, f"attention along axes {axes!r} only; transpose the others into the batch")
    flat = [
        node.emit("Reshape", [t], {"shape": (s[0], prod(s[1:-1]), s[-1])}, tag="rows")
        for t, s in _paired(node, query, value, keys)
    ]
    count = node.integer("num_heads", node.get("num_query_heads"))
    q, v, k = (_heads(node, key, t, count) for key, t in zip(("query", "value", "key"), flat, strict=True))
    scaled = node.emit("Mul", [q, node.add_float(1 / sqrt(node.shape(q)[-1]), "scale")], tag="scaled")
    scores = node.emit(
        "MatMul", [scaled, node.emit("Transpose", [k], {"perm": (0, 1, 3, 2)}, tag="keys")], tag="scores"
    )
    mixed, weights = _mixed(node, scores, v)
    batch, _, length, depth = node.shape(mixed)
    joined = node.emit("Transpose", [mixed], {"perm": (0, 2, 1, 3)}, tag="joined")
    rows = node.emit("Reshape", [joined], {"shape": (batch, length, count * depth)}, tag="joined-rows")
    part = node.part(f"{node.name}/output", node.layer.children["output_dense"])
    kernel = part.array("kernel")
    results = kernel.shape[2:]
    w = node.importer.shared(
        (part.layer.name, "kernel"), lambda: kernel.reshape(count * depth, prod(results))
    )
    b = (
        [node.importer.shared((part.layer.name, "bias"), lambda: part.array("bias").reshape(-1))]
        if part.has("bias")
        else []
    )
    made = node.emit("MatMul", [rows, w, *b], tag="output")
    return _results(
        node, node.emit("Reshape", [made], {"shape": (*shapes[0][:-1], *results)}, tag="output-rows"), weights
    )


def _paired(node: KerasNode, *tensors: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(tensor, node.shape(tensor)) for tensor in tensors]


def _apart(node: KerasNode, query: str, keys: str) -> str:
    """Each query plus each key: [B, Tq, Tk, D]."""
    (b, tq, d), (_, tk, _) = node.shape(query), node.shape(keys)
    wide = node.emit("Reshape", [query], {"shape": (b, tq, 1, d)}, tag="queries")
    return node.emit(
        "Add", [wide, node.emit("Reshape", [keys], {"shape": (b, 1, tk, d)}, tag="keys")], tag="pairs"
    )


def _plain(node: KerasNode) -> Sequence[str]:
    """Softmax of the products of queries and keys, or of the tanh of their sums."""
    query, value, keys = _operands(node)
    node.refuse_unless(
        all(len(node.shape(t)) == 3 for t in (query, value, keys)), "tensors of rank 3 were expected"
    )
    scale: Any = node.weight("scale") if node.has("scale") else None
    if node.get("score_mode", "dot") == "dot":
        scores = node.emit(
            "MatMul", [query, node.emit("Transpose", [keys], {"perm": (0, 2, 1)}, tag="keys")], tag="scores"
        )
        scores = node.emit("Mul", [scores, scale], tag="scaled") if scale else scores
    else:
        pairs = _apart(node, query, keys)
        pairs = node.emit("Mul", [pairs, scale], tag="scaled") if scale else pairs
        total = node.emit(
            "ReduceSum", [node.emit("Tanh", [pairs])], {"axes": (3,), "keepdims": False}, tag="sums"
        )
        scores = node.emit("Mul", [total, node.weight("concat_score_weight")], tag="scores")
    return _results(node, *_mixed(node, scores, value))


def _additive(node: KerasNode) -> Sequence[str]:
    """Softmax of the sum of the tanh of queries plus keys, each feature with a weight (D. Bahdanau et al., 2014)."""
    query, value, keys = _operands(node)
    node.refuse_unless(
        all(len(node.shape(t)) == 3 for t in (query, value, keys)), "tensors of rank 3 were expected"
    )
    bent = node.emit("Tanh", [_apart(node, query, keys)])
    bent = node.emit("Mul", [bent, node.weight("scale")], tag="scaled") if node.has("scale") else bent
    return _results(
        node,
        *_mixed(node, node.emit("ReduceSum", [bent], {"axes": (3,), "keepdims": False}, tag="scores"), value),
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention"), _multi_head),
        "Attention": _plain,
        "AdditiveAttention": _additive,
    }
)
