"""Storages of real numbers that the format's operators do not convert on their way."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph, Storage
from mace_tflite_writer.operator import is_same_storage
from mace_tflite_writer.rewrites.site import Site, rewrite_sites

SELECTING = ("Maximum", "Minimum", "ReduceMax", "ReduceMin")
"""Ops beside those that move data each of whose results is one of its operands."""


def requantize_inputs(graph: Graph) -> Graph:
    """Convert operands to the storage of the result in front of ops that only select or move elements.

    Exact: each element is rounded once, as before, and rounding keeps the order that a maximum selects by.
    Means and interpolations stay as they are, because they would round twice.
    """
    return rewrite_sites(graph, _requantize_inputs)


def _requantize_inputs(site: Site) -> Sequence[str] | None:
    op, storage = site.node.op, site.y.storage
    if storage is None or storage.quant.axis is not None or not (op.moves or op.name in SELECTING):
        return None
    # Parts of a Split may have several storages, and its operand can be converted to one of them only.
    if any(site.old.tensors[name].storage != storage for name in site.node.outputs):
        return None
    inputs = [_convert(site, name, storage) for name in site.node.inputs]
    if inputs == list(site.node.inputs):
        return None
    return site.match.emit(op, inputs, site.node.attrs)


def _convert(site: Site, name: str, storage: Storage) -> str:
    tensor = site.builder.tensors.get(name)
    if tensor is None or tensor.storage is None or is_same_storage(tensor.storage, storage):
        return name
    return site.inner("Quantize", [name], storage=storage)
