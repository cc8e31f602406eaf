"""Half precision: in memory only, for runtimes whose kernels compute in single precision."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import DType, Graph
from mace_tflite_writer.rewrites.site import Site, rewrite_sites


def widen_halves(graph: Graph) -> Graph:
    """Compute nodes of half precision in single precision between two casts.

    Exact: the reference of an op computes in double precision and rounds once. Rounded to single precision
    first, a result may be one step of half precision away where it lies at a tie of both.
    """
    return rewrite_sites(graph, _widen)


def _widen(site: Site) -> Sequence[str] | None:
    # The format has casts of half precision, and the nodes added here are such.
    if site.node.op.name == "Cast":
        return None
    tensors = [site.input(i) for i in range(len(site.node.inputs))]
    if not any(t is not None and t.dtype is DType.F16 for t in tensors):
        return None
    inputs = [
        site.inner("Cast", [t.name], {"to": "f32"}) if t is not None and t.dtype is DType.F16 else name
        for t, name in zip(tensors, site.node.inputs, strict=True)
    ]
    names = [f"{name}/f32" for name in site.node.outputs]
    results = site.builder.add(site.node.op, inputs, site.node.attrs, outputs=names, like=site.node)
    return [
        site.builder.one("Cast", [result], {"to": "f16"}, outputs=[name], like=site.node)
        if site.old.tensors[name].dtype is DType.F16
        else result
        for result, name in zip(results, site.node.outputs, strict=True)
    ]
