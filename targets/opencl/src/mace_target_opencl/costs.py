"""Estimates whether the GPU computes a region faster than the processor, with its launches and copies.

The constants are of a phone of the middle class, from what vendors publish; nothing here was measured on one.
`mace tune` measures those of a device, see `calibration`, and a deployment file overrides all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mace_core.ir import Graph, Node
from mace_core.run.operators import multiply_adds

HYSTERESIS = 0.8
"""The share of the processor's time at which a region goes to the GPU.

Estimates are rough, and a region that goes back and forth with each change of a model would change its bits.
"""


@dataclass(frozen=True)
class Costs:
    """What the estimate assumes.

    sync_us: of one change to the GPU and back, besides the copies.  launch_us: of one kernel.
    cpu_gmacs, gpu_gmacs: 10^9 multiply-adds a second.  cpu_gb_s, gpu_gb_s, copy_gb_s: 10^9 bytes a second
    that kernels read and write, and that copies between the two move.
    """

    sync_us: float = 200.0
    launch_us: float = 10.0
    cpu_gmacs: float = 30.0
    gpu_gmacs: float = 150.0
    cpu_gb_s: float = 8.0
    gpu_gb_s: float = 15.0
    copy_gb_s: float = 4.0

    def estimate_cpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the processor for a region."""
        macs = sum(multiply_adds(node, graph) for node in graph.nodes)
        return macs / self.cpu_gmacs / 1e3 + _count_bytes(graph.nodes, graph) / self.cpu_gb_s / 1e3

    def estimate_gpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the GPU for a region, with the copies from host memory and back."""
        macs = sum(multiply_adds(node, graph) for node in graph.nodes)
        copied = sum(graph.tensors[name].bytes for name in (*graph.inputs, *graph.outputs))
        # Each node counts as a launch: a region is judged before it is lowered, when no call is fused yet.
        launches = len(graph.nodes) * self.launch_us + self.sync_us
        kernels = macs / self.gpu_gmacs / 1e3 + _count_bytes(graph.nodes, graph) / self.gpu_gb_s / 1e3
        return launches + kernels + copied / self.copy_gb_s / 1e3

    def is_worth(self, graph: Graph) -> bool:
        """Tell whether the GPU is clearly faster."""
        return self.estimate_gpu_us(graph) < HYSTERESIS * self.estimate_cpu_us(graph)


def _count_bytes(nodes: Iterable[Node], graph: Graph) -> int:
    """Count the bytes that nodes read and write, weights included."""
    count = 0
    for node in nodes:
        count += sum(graph.tensors[name].bytes for name in (*node.inputs, *node.outputs) if name)
    return count
