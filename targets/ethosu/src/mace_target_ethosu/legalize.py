"""Rewrites a region to operators of the format that Vela compiles for a generation."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.rewrite import Match, rewrite
from mace_tflite_writer.rewrites import legalize


def legalize_region(graph: Graph, generation: str) -> Graph:
    """Return a graph of the same integers that the format states and that Vela compiles.

    generation: "u55", "u65" or "u85".
    """
    legal = legalize(graph)
    return widen_in_two_steps(legal) if generation == "u85" else legal


def widen_in_two_steps(graph: Graph) -> Graph:
    """Convert eight bits to int16 of the same scale through int16 of half the scale.

    Exact: int16 holds twice each number, and half of that is the number again.
    """
    # Vela 5.2 for Ethos-U85 merges such a conversion into the one convolution, product or mean that reads it,
    # and then ends by SIGSEGV. It does not merge conversions that change the scale, nor those with several
    # readers. Which operators merge through which movements is nowhere stated, so all conversions are split.
    return rewrite(graph, _widen)


def _widen(match: Match) -> Sequence[str] | None:
    node, tensors = match.node, match.builder.tensors
    if node.op.name != "Quantize" or match.uses[node.outputs[0]] != 1:
        return None
    x, wide = tensors[node.inputs[0]], match.builder.storages.get(node.outputs[0])
    if x.dtype not in (DType.I8, DType.U8) or x.quant is None or x.quant.axis is not None:
        return None
    if wide != Storage(DType.I16, Quant.of(x.quant.scale[0])):
        return None
    # Half of a scale has the same bits but for the exponent, so that the file states it exactly.
    half = Storage(DType.I16, Quant.of(x.quant.scale[0] / 2))
    name = match.builder.reserve_output(f"{node.outputs[0]}/doubled", half)
    return match.emit("Quantize", [match.builder.one("Quantize", node.inputs, outputs=[name], like=node)])
