"""Kernels of an OpenCL program: how lowerings ask for one, and how its source is made.

The contract with what makes a part of a `Program` (the blob and the driver):

- `Call.kernel.name` is unique for a kernel's source: equal names have equal source, to be compiled once.
- `render_kernel(kernel)` returns the OpenCL C source of one kernel, `render_program(kernels)` that of all.
- The kernel's arguments are a pair for each of `call.reads`, then for each of `call.writes`: the buffer
  (`__global T *`, a cl_mem) and the offset of the tensor in it in elements (`ulong`, 8 bytes); for an operand
  with an `image`, the image alone.
- `call.args["global_size"]` and `call.args["local_size"]` hold three sizes each. A local size of (0, 0, 0)
  leaves the choice to the device; otherwise it divides the global size, and the kernel requires it.
- Tensors lie dense, in the order of their axes, aligned to their element size.
- An operand may be one of several names of the same bytes: nothing is `restrict`.
- A tensor without elements is never computed and may have no buffer; kernels read none of it.
- A kernel with the parameter `CHECKS` takes two more arguments, see `bounds`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from math import prod

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Node
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_opencl.bounds import CHECKS
from mace_target_opencl.bounds import PRELUDE as CHECK_PRELUDE
from mace_target_opencl.exact import DOT_PRELUDE, needs_functions
from mace_target_opencl.exact import PRELUDE as EXACT_PRELUDE
from mace_target_opencl.images import PRELUDE as IMAGE_PRELUDE
from mace_target_opencl.kernel_operand import ImageForm, KernelOperand
from mace_target_opencl.source import KernelSource, constants_of
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import (
    HALF,
    HALF_PRELUDE,
    HALF_STORAGE_PRELUDE,
    HALF_VALUE,
    MAX_ELEMENTS,
    storage_type,
)

KERNELS = files("mace_target_opencl") / "kernels"

FIELDS = (("global_size", "i64[3]"), ("local_size", "i64[3]"))
"""What a call tells the driver besides its operands."""

MAX_OPERANDS = 24
"""Operands of a kernel: with 16 bytes each they fit the 1024 bytes of arguments of OpenCL's full profile.

The embedded profile guarantees 256 bytes; the driver refuses a device that takes fewer than a kernel has.
"""

GROUP = 64
"""Work-items of a group where a kernel has no reason for another number.

OpenCL guarantees groups of one work-item alone; the driver refuses a device that has smaller ones.
"""


@dataclass(frozen=True)
class Launch:
    """One kernel at work, as a lowering asks for it.

    template: name of a file `kernels/NAME.cl.in`.
    reads, writes: the template's name of each operand -> tensor, in the order of the arguments.
    global_size: work-items along one to three axes; rounded up to a multiple of `local_size`, so a template
        must check its ids where that is not exact.
    constants: what the template prints: numbers, tuples of numbers, and types of `mace_core.emit.text`.
    local_size: () leaves the choice to the device.
    steps: what is computed with each result before it is stored, for a template that calls `store`; None for
        one that does not.
    types: C types of operands that are packed weights, where they are not float; and of others that are
        loaded as another type of their size.
    in_place: whether the result may take the place of a dead operand of its size.
    images: forms of operands that are constants in images.
    """

    template: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    global_size: Sequence[int]
    constants: Mapping[str, object] = field(default_factory=dict)
    local_size: Sequence[int] = ()
    steps: tuple[ElementStep, ...] | None = None
    types: Mapping[str, Code] = field(default_factory=dict)
    in_place: bool = False
    images: Mapping[str, ImageForm] = field(default_factory=dict)


def enqueue(lowering: Lowering, node: Node, launch: Launch) -> None:
    """Append the call of a kernel, unless it has nothing to write.

    Raises Refused for tensors with more elements, and for more operands, than kernels take.
    """
    written = [lowering.tensors[tensor] for tensor in launch.writes.values()]
    # OpenCL 1.2 enqueues no kernel of 0 work-items, and the driver refuses such a call.
    if all(tensor.elements == 0 for tensor in written):
        return
    operands = [
        _operand(lowering, launch, (name, tensor), name in launch.writes)
        for name, tensor in (*launch.reads.items(), *launch.writes.items())
    ]
    if len(operands) > MAX_OPERANDS:
        reason = f"reads and writes {len(operands)} tensors; OpenCL kernels take {MAX_OPERANDS}"
        raise Refused(reason, code="shape", remedy="split the node into several")
    params = {
        **launch.constants,
        "operands": tuple(operands),
        "local_size": _pad_sizes(launch.local_size),
        "steps": launch.steps or (),
        "is_fusible": launch.steps is not None,
    }
    call = Call(
        make_kernel(launch.template, params),
        _sizes(launch),
        tuple(launch.reads.values()),
        tuple(launch.writes.values()),
        inplace=launch.in_place,
    )
    lowering.call(node, call)


def operands_of(call: Call) -> Sequence[KernelOperand]:
    """Return the operands of a call's kernel, in the order of `call.reads` and `call.writes`."""
    return call.kernel.params["operands"]  # type: ignore[return-value]


def make_kernel(template: str, params: Mapping[str, object]) -> Kernel:
    """Return the kernel of a template and everything that its source depends on, named after both."""
    # Two sources that share these 12 digits are no danger: `blob` compares kernels of one name.
    digest = hashlib.sha256(f"{template} {constants_of(params)}".encode()).hexdigest()[:12]
    return Kernel(f"{template}_{digest}", KERNELS / f"{template}.cl.in", FIELDS, params)


def render_kernel(kernel: Kernel) -> Code:
    """Return the OpenCL C source of a kernel."""
    return KernelSource(kernel).render()


def render_program(kernels: Iterable[Kernel]) -> Code:
    """Return the OpenCL C source of all kernels, each once."""
    unique = {kernel.name: kernel for kernel in kernels}
    sources = [render_kernel(kernel) for kernel in unique.values()]
    # Each only where a kernel needs it: a type or pragma that the device lacks would fail the whole build.
    if any(map(uses_images, unique.values())):
        sources.insert(0, IMAGE_PRELUDE)
    if any(map(stores_half, unique.values())):
        sources.insert(0, HALF_STORAGE_PRELUDE)
    if any(map(needs_half, unique.values())):
        sources.insert(0, HALF_PRELUDE)
    if any(map(needs_functions, sources)):
        sources.insert(0, EXACT_PRELUDE)
    if any(map(has_dots, unique.values())):
        sources.insert(0, DOT_PRELUDE)
    if any(kernel.params.get(CHECKS) for kernel in unique.values()):
        sources.insert(0, CHECK_PRELUDE)
    return Code("\n".join(sources))


def has_dots(kernel: Kernel) -> bool:
    """Tell whether a kernel multiplies bytes four at a time."""
    return bool(kernel.params.get("dots"))


def needs_half(kernel: Kernel) -> bool:
    """Tell whether a kernel computes in half precision, for which devices have the extension cl_khr_fp16."""
    return kernel.params.get("type") == HALF_VALUE


def stores_half(kernel: Kernel) -> bool:
    """Tell whether operands of a kernel lie in half precision."""
    operands: Sequence[KernelOperand] = kernel.params["operands"]  # type: ignore[assignment]
    return any(operand.type == HALF for operand in operands)


def uses_images(kernel: Kernel) -> bool:
    """Tell whether a kernel reads or writes images."""
    operands: Sequence[KernelOperand] = kernel.params["operands"]  # type: ignore[assignment]
    return any(operand.image is not None for operand in operands)


def _operand(lowering: Lowering, launch: Launch, pair: tuple[str, str], is_written: bool) -> KernelOperand:
    name, tensor = pair
    # Weights that a lowering has packed are no tensors of the graph, and floats unless it says otherwise.
    described = lowering.tensors.get(tensor)
    elements = prod(lowering.weights[tensor].shape) if described is None else described.elements
    if elements > MAX_ELEMENTS:
        reason = f"{tensor} has {elements} elements; OpenCL kernels count to {MAX_ELEMENTS}"
        raise Refused(reason, code="too-large", remedy="make its tensors smaller, as with input_shapes")
    kind = launch.types.get(name) or (Code("float") if described is None else storage_type(described))
    return KernelOperand(CIdentifier(name), kind, elements, is_written, launch.images.get(name))


def _sizes(launch: Launch) -> dict[str, tuple[int, ...]]:
    local = tuple(launch.local_size)
    total = tuple(launch.global_size)
    assert 1 <= len(total) <= 3, launch
    if local:
        assert len(local) == len(total), launch
        # OpenCL 1.2 takes only groups that divide the work.
        total = tuple(-(-n // group) * group for n, group in zip(total, local, strict=True))
        local = local + (1,) * (3 - len(local))
    return {"global_size": total + (1,) * (3 - len(total)), "local_size": local or (0, 0, 0)}


def _pad_sizes(local_size: Sequence[int]) -> tuple[int, ...]:
    """Return a local size with three numbers; () where the device chooses."""
    return (*local_size, *(1,) * (3 - len(local_size))) if local_size else ()
