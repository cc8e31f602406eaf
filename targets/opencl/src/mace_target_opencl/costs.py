"""Estimates whether the GPU computes a region faster than the processor, with its launches and copies.

The constants are of a phone of the middle class, from what vendors publish; nothing here was measured on one.
A deployment file overrides them, and a tuner on the device will.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

from mace_core.errors import MaceError
from mace_core.ir import Graph, Node
from mace_core.json_types import Json
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

    @classmethod
    def of(cls, stated: object, place: str) -> Costs:
        """Return the costs of a deployment file; one MaceError with every fault.

        place: where they stand, for messages.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(stated, dict):
            raise MaceError(place, f"{stated!r:.40} is no mapping", f"write some of {', '.join(names)}")
        faults = [
            f"{place}: {str(name)[:40]!r} is unknown; choose among {', '.join(names)}"
            for name in stated
            if name not in names
        ]
        faults += [
            f"{place}: {name}: {value!r:.40} is no positive number; write one"
            for name, value in stated.items()
            if name in names and not _is_positive(value)
        ]
        if faults:
            raise MaceError.of(faults)
        return cls(**{str(name): float(value) for name, value in stated.items()})

    def estimate_cpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the processor for a region."""
        macs = sum(multiply_adds(node, graph) for node in graph.nodes)
        return macs / self.cpu_gmacs / 1e3 + _count_bytes(graph.nodes, graph) / self.cpu_gb_s / 1e3

    def estimate_gpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the GPU for a region, with the copies from host memory and back."""
        macs = sum(multiply_adds(node, graph) for node in graph.nodes)
        copied = sum(graph.tensors[name].bytes for name in (*graph.inputs, *graph.outputs))
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


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def read_costs(options: Json, place: str) -> Costs:
    """Return the costs under an option `costs`, or the defaults."""
    return Costs.of(options["costs"], f"{place}: costs") if "costs" in options else Costs()
