"""An example: a device with a memory of its own, which the CPU cannot address, and with kernels of its own.

A region becomes a list of calls (`encode.py`), which the driver (`driver/island_driver.c`) reads on the
device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from mace_core.api import (
    BlobBody,
    BuildConfig,
    Manifest,
    MemorySpace,
    Part,
    PartPort,
    Refusal,
    Region,
    Target,
    Unit,
)
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import DType, Graph, Node

SPACE = MemorySpace("island", alignment=256, granule=4096, slack=64)
"""The kernels read blocks of 64 bytes, the next one early, so they touch that many bytes behind a tensor."""

GENERATION = "island generation 1"
OPS = ("Abs", "Add", "Maximum", "Minimum", "Mul", "Neg", "Relu", "Sub")


class Island(Target):
    """Computes element by element, in single precision."""

    name = "island"
    device = "island"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None for an op of the device over floats of one shape, or with a constant that broadcasts to that shape."""
        if node.op.name not in OPS:
            return Refusal(
                "unsupported-op",
                f"the island has no kernel for {node.op.name}",
                f"it computes {', '.join(OPS)}",
            )
        (result,) = graph.outputs_of(node)
        for tensor in (*filter(None, graph.inputs_of(node)), result):
            if tensor.dtype is not DType.F32 or tensor.quant:
                return Refusal(
                    "dtype", f"{tensor.name} is {tensor.dtype.value}, and the island computes in f32"
                )
            if tensor.shape != result.shape and tensor.name not in graph.weights:
                return Refusal(
                    "shape",
                    f"{tensor.name} has shape {list(tensor.shape)}, and the island broadcasts constants only",
                )
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the calls of a region, with all its tensors in the memory of the device."""
        from mace_target_island.encode import encode

        graph = region.graph
        result = encode(graph)
        inputs, outputs = (
            tuple(PartPort(graph.tensors[name], SPACE) for name in names)
            for names in (graph.inputs, graph.outputs)
        )
        return Part(
            region.name,
            self.name,
            inputs,
            outputs,
            BlobBody(result.code, result.weights, "mace-target-island 0.1.0", GENERATION),
            driver="mace_island_driver",
            scratch=result.scratch,
            nodes=tuple(node.name for node in graph.nodes),
        )

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which is compiled into the library."""
        source = Path(str(files("mace_target_island"))) / "driver/island_driver.c"
        unit = Unit("island_driver.c")
        return (
            Manifest(library, copies={unit.source: source}, units=(unit,), drivers=("mace_island_driver",)),
        )


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the target."""
    return (Island(),)
