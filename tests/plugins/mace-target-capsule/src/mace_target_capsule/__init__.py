"""An example: regions become bytes, which a library of the hardware's vendor executes.

The driver finds that library at run time.

`encode.py` makes the bytes, `driver/capsule_driver.c` loads the library with dlopen, and
`runtime/capsule_runtime.c` is what a vendor would install on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from mace_core.api import BlobBody, BuildConfig, Manifest, Part, Refusal, Region, Target, Unit
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import DType, Graph, Node

GENERATION = "capsule 2"
OPS = ("Abs", "Add", "Maximum", "Mul", "Neg", "Relu", "Sub")
LIBRARIES = ("libcapsule_rt.so.2", "libcapsule_rt.so", "libcapsule.so")
"""In the order in which the driver looks for them."""


class Capsule(Target):
    """Computes element by element, in single precision, by a library of its vendor."""

    name = "capsule"
    device = "capsule"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None for an op of the vendor's compiler over floats of one shape, or with a constant that broadcasts to that shape."""
        if node.op.name not in OPS:
            return Refusal(
                "unsupported-op", f"capsules hold no {node.op.name}", f"they hold {', '.join(OPS)}"
            )
        (result,) = graph.outputs_of(node)
        for tensor in (*filter(None, graph.inputs_of(node)), result):
            if tensor.dtype is not DType.F32 or tensor.quant:
                return Refusal("dtype", f"{tensor.name} is {tensor.dtype.value}, and capsules compute in f32")
            if tensor.shape != result.shape and tensor.name not in graph.weights:
                return Refusal(
                    "shape",
                    f"{tensor.name} has shape {list(tensor.shape)}, and capsules broadcast constants only",
                )
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the region as bytes.

        Its tensors lie in host memory, which the vendor's library reads and writes.
        """
        from mace_target_capsule.encode import encode

        inputs, outputs = region.ports()
        body = BlobBody(encode(region.graph), built_by="mace-target-capsule 0.1.0", built_for=GENERATION)
        nodes = tuple(node.name for node in region.graph.nodes)
        return Part(region.name, self.name, inputs, outputs, body, driver="mace_capsule_driver", nodes=nodes)

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which is compiled into the library, and what it looks for at run time."""
        source = Path(str(files("mace_target_capsule"))) / "driver/capsule_driver.c"
        unit = Unit("capsule_driver.c")
        remedy = f"install Capsule Runtime 2 ({', '.join(LIBRARIES)}) where dlopen finds it"
        driver = ("mace_capsule_driver",)
        return (
            Manifest(
                library,
                copies={unit.source: source},
                units=(unit,),
                libraries=("dl",),
                loads={LIBRARIES[0]: remedy},
                drivers=driver,
            ),
        )


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the target."""
    return (Capsule(),)
