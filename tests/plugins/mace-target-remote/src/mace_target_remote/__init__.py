"""An example: regions run on a processor with another ABI, in a program of its own that the driver talks to.

A region is lowered to the kernels of the CPU target and compiled for 64-bit ARM by that ABI's toolchain; the
program is the body of the part (`program.py`). The driver (`driver/remote_driver.c`) starts it, under an
emulator where the processor is another, and sends inputs and receives outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from mace_core.api import BlobBody, BuildConfig, Manifest, Part, Refusal, Region, Target, Unit
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph, Node

ABI = "arm64"
GENERATION = f"Linux, {ABI}"
OPS = ("Abs", "Add", "Maximum", "MatMul", "Mul", "Neg", "Relu", "Softmax", "Sub")


class Remote(Target):
    """Computes with the kernels of the CPU, in a program for another ABI."""

    name = "remote"
    device = "remote"
    abis = ("host", "amd64")

    def missing(self) -> str | None:
        """None if there is a toolchain for the other ABI, and something that executes its programs."""
        from mace_target_remote.program import find_missing

        return find_missing(ABI)

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None for the ops that are worth a message, where the CPU's kernels take the node."""
        from mace_target_cpu import Cpu

        if node.op.name not in OPS:
            return Refusal(
                "unsupported-op", f"{node.op.name} is not computed remotely", f"those are: {', '.join(OPS)}"
            )
        return Cpu().refuses(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return a program for the other ABI that computes the region."""
        from mace_target_remote.program import build_program

        inputs, outputs = region.ports()
        body = BlobBody(build_program(region, ABI), built_by="mace-target-remote 0.1.0", built_for=GENERATION)
        nodes = tuple(node.name for node in region.graph.nodes)
        return Part(region.name, self.name, inputs, outputs, body, driver="mace_remote_driver", nodes=nodes)

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which is compiled into the library, and what it starts."""
        source = Path(str(files("mace_target_remote"))) / "driver/remote_driver.c"
        unit = Unit("remote_driver.c")
        remedy = "apt-get install qemu-user"
        driver = ("mace_remote_driver",)
        return (
            Manifest(
                library,
                copies={unit.source: source},
                units=(unit,),
                loads={"qemu-aarch64": remedy},
                drivers=driver,
            ),
        )


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the target."""
    return (Remote(),)
