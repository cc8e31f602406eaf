"""Ops whose elements are one of x or a value, by where they lie: Trilu, OneHot, ReverseSequence."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.onehot import OneHotAttributes
from mace_core.ops.reverse_sequence import ReverseSequenceAttributes
from mace_core.ops.shapes import axis_of
from mace_core.ops.trilu import TriluAttributes
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.types import c_type, storage_type
from mace_target_opencl.views import dense


def _enqueue(node: Node, lowering: Lowering, reads: Mapping[str, str], statements: str) -> None:
    """Append the call of select.cl.in.  reads: x first.  statements: C that sets `from`."""
    x, y = lowering.tensors[reads["x"]], lowering.tensors[node.outputs[0]]
    constants = {
        "count": y.elements,
        "statements": Code(statements),
        "otherwise": 0,
        "value_type": storage_type(x),
    }
    launch = Launch("select", reads, {"y": y.name}, (y.elements,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


def trilu(node: Node, lowering: Lowering) -> None:
    """Keep a triangle of each matrix."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(TriluAttributes)
    rows, columns = x.shape[-2:]
    # k may be any integer; beyond the matrix all values say the same.
    diagonal = max(-rows, min(columns, attrs.k))
    compare = ">=" if attrs.upper else "<="
    statements = (
        f"if ((int)(at % {columns}u) - (int)(at / {columns}u % {rows}u) {compare} {diagonal})\n"
        "        from = (int)at;"
    )
    _enqueue(node, lowering, {"x": x.name}, statements)


def onehot(node: Node, lowering: Lowering) -> None:
    """Compare every index with every position; one outside of -depth ... depth - 1 matches none."""
    indices, values = (lowering.tensors[name] for name in node.inputs)
    y, attrs = lowering.tensors[node.outputs[0]], node.attributes(OneHotAttributes)
    kind, depth = c_type(indices), attrs.depth
    inner = prod(y.shape[axis_of(attrs.axis, len(y.shape)) + 1 :])
    # Floats are compared as they are: an index with a fraction matches none.
    wide = "float" if indices.dtype.is_float else "long"
    place = f"at / {inner * max(1, depth)}u * {inner}u + at % {inner}u"
    unsigned = kind == "ulong"
    load = f"({wide})LOAD_indices({place})"
    if unsigned:
        # A larger index would become negative, and count from the end.
        load = f"(long)min(LOAD_indices({place}), (ulong)LONG_MAX)"
    statements = (
        f"{wide} index = {load};\n"
        f"    index = index < 0 ? index + {depth} : index;\n"
        f"    from = index == ({wide})(at / {inner}u % {depth}u);"
    )
    _enqueue(node, lowering, {"x": values.name, "indices": indices.name}, statements)


def reverse_sequence(node: Node, lowering: Lowering) -> None:
    """Read the first steps of each sequence from their end."""
    x, lengths = (lowering.tensors[name] for name in node.inputs)
    attrs, steps = node.attributes(ReverseSequenceAttributes), dense(x.shape)
    batch, time = (axis_of(axis, len(x.shape)) for axis in (attrs.batch_axis, attrs.time_axis))
    count = x.shape[time]
    load = f"(long)LOAD_lengths(at / {steps[batch]}u % {x.shape[batch]}u)"
    if c_type(lengths) == "ulong":
        load = f"(long)min(LOAD_lengths(at / {steps[batch]}u % {x.shape[batch]}u), (ulong)LONG_MAX)"
    statements = (
        f"const int length = (int)clamp({load}, (long)0, (long){count});\n"
        f"    const int step = (int)(at / {steps[time]}u % {count}u);\n"
        f"    from = (int)at + (step < length ? (length - 1 - 2 * step) * {steps[time]} : 0);"
    )
    _enqueue(node, lowering, {"x": x.name, "lengths": lengths.name}, statements)


LOWERINGS: Mapping[str, Lower] = {
    "Trilu": trilu,
    "OneHot": onehot,
    "ReverseSequence": reverse_sequence,
}
