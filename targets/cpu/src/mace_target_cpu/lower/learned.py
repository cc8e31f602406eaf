"""Trees, distances to stored rows, probabilities of pairs, maps of labels: classifiers without layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import Array, Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops import tree_ensemble
from mace_core.ops.pairwise_coupling import MAX_ROUNDS, TOLERANCE, PairwiseCouplingAttributes
from mace_core.ops.tree_ensemble import TreeEnsembleAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import ROWS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import FREEZE, c_type

NODES = ("links", "modes", "roots", "targets")
"""Inputs 2 to 5 of TreeEnsemble, which say where descents go."""

NODE_BYTES = 16
"""What a step of a descent reads, for handing out rows to workers."""


def tree_ensemble_rows(node: Node, lowering: Lowering) -> None:
    """Rows are independent.

    Links that could lead a descent astray are refused here, so that the kernel need not look.
    """
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    links, modes, roots, targets = (_need_constant(node, index, lowering) for index in range(2, 6))
    # Checked once at build time, because the kernel follows links without looking.
    wrong = tree_ensemble.fault(links, modes, roots, targets, (x.shape[1], y.shape[1]))
    if wrong:
        raise Refused(wrong, code="attribute", remedy="export the model again: its trees are damaged")
    aggregate = node.attributes(TreeEnsembleAttributes).aggregate
    has_base = len(node.inputs) == 8 and bool(node.inputs[7])
    codes = set(np.asarray(modes)[np.asarray(links)[:, 0] != tree_ensemble.LEAF].tolist())
    # Trees of one kind of test, the usual case, compare without a switch.
    general = len(codes) > 1 or any(code >= tree_ensemble.MISSING for code in codes)
    code = min(codes) if codes and not general else 0
    params = {
        "ctype": c_type(x),
        "general": general,
        "test": Code(tree_ensemble.TESTS[code]),
        "base": has_base,
        "average": aggregate == "average",
        "pick": Code({"min": "<", "max": ">"}.get(aggregate, "")),
    }
    variant = "any" if general else f"test{code}"
    name = f"tree_ensemble_{variant}_{aggregate}{'_base' if has_base else ''}_{x.dtype.value}"
    fields = (("features", "i64"), ("outputs", "i32"), ("trees", "i32"), *ROWS)
    kernel = Kernel(name, KERNELS / "tree_ensemble.c.in", fields, params, (MOVE,))
    # An estimate of the nodes that a row meets: the depth of balanced trees.
    depth = max(1, int(np.log2(max(len(links) / max(len(roots), 1), 2))))
    args = {
        "features": x.shape[1],
        "outputs": y.shape[1],
        "trees": len(roots),
        **chunks(x.shape[0], len(roots) * depth * NODE_BYTES),
    }
    packed = [
        _pack_table(lowering, node.inputs[i + 2], array, "uint8" if i == 1 else "int32")
        for i, array in enumerate((links, modes, roots, targets))
    ]
    reads = [node.inputs[0], node.inputs[1], *packed, node.inputs[6], *([node.inputs[7]] if has_base else [])]
    lowering.call(node, Call(kernel, args, reads, node.outputs, scratch=y.shape[1] if params["pick"] else 0))


def _need_constant(node: Node, index: int, lowering: Lowering) -> Array:
    array = lowering.constant(node.inputs[index])
    if array is None:
        raise Refused(f"{NODES[index - 2]} of its trees are computed at run time", remedy=FREEZE)
    return array


def _pack_table(lowering: Lowering, name: str, array: Array, dtype: str) -> str:
    """The nodes' numbers in the width that the kernel reads."""
    if array.dtype == np.dtype(dtype):
        return name
    return lowering.once(
        (name, dtype),
        lambda: lowering.weight(f"{name}.{dtype}", array.shape, dtype, lambda: array.astype(dtype)),
    )


def squared_distance(node: Node, lowering: Lowering) -> None:
    """A task takes elements of the result, so that one row against many is shared as well."""
    x, y = (lowering.tensors[name] for name in node.inputs)
    result = lowering.tensors[node.outputs[0]]
    if result.elements == 0:
        return
    fields = (("count", "i64"), ("n", "i64"), *ROWS)
    kernel = Kernel(
        f"squared_distance_{x.dtype.value}",
        KERNELS / "squared_distance.c.in",
        fields,
        {"ctype": c_type(x)},
        (MOVE,),
    )
    args = {
        "count": y.shape[0],
        "n": x.shape[1],
        **chunks(result.elements, max(x.shape[1], 1) * x.dtype.size),
    }
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def pairwise_coupling(node: Node, lowering: Lowering) -> None:
    """Row by row; the matrix of each lies in scratch memory."""
    pairs, classes = lowering.tensors[node.inputs[0]], node.attributes(PairwiseCouplingAttributes).classes
    params = {"ctype": c_type(pairs), "rounds": MAX_ROUNDS, "tolerance": TOLERANCE}
    fields = (("rows", "i64"), ("classes", "i32"))
    kernel = Kernel(
        f"pairwise_coupling_{pairs.dtype.value}", KERNELS / "pairwise_coupling.c.in", fields, params, (MOVE,)
    )
    args = {"rows": pairs.shape[0], "classes": classes}
    if pairs.shape[0]:
        lowering.call(
            node, Call(kernel, args, node.inputs, node.outputs, scratch=8 * classes * (classes + 2))
        )


def map_values(node: Node, lowering: Lowering) -> None:
    """Element by element; the keys must be known to be in order."""
    x, keys, values = (lowering.tensors[name] for name in node.inputs[:3])
    array = lowering.constant(node.inputs[1])
    if array is None:
        raise Refused("its keys are computed at run time", remedy=FREEZE)
    # A binary search needs order, and NaN has none: the kernel expects it last.
    real = array[~np.isnan(array)] if array.dtype.kind == "f" else array
    if not (
        np.all(real[1:] > real[:-1])
        and np.array_equal(array[: len(real)], real)
        and len(array) - len(real) <= 1
    ):
        raise Refused(
            "its keys are not in ascending order",
            code="attribute",
            remedy="sort keys and values in the model",
        )
    if x.elements == 0:
        return
    params = {"ktype": c_type(x), "vtype": c_type(values), "float": x.dtype.is_float}
    kernel = Kernel(
        f"map_values_{x.dtype.value}_{values.dtype.value}",
        KERNELS / "map_values.c.in",
        (("n", "i64"), ("count", "i64")),
        params,
    )
    lowering.call(node, Call(kernel, {"n": x.elements, "count": keys.elements}, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {
    "MapValues": map_values,
    "PairwiseCoupling": pairwise_coupling,
    "SquaredDistance": squared_distance,
    "TreeEnsemble": tree_ensemble_rows,
}
