"""Chooses which tensors of a program lie in images, and which images they share.

A tensor that passes between kernels lies in an image if a kernel that was asked for images multiplies it, and
every kernel that reads or writes it can do so four channels at a time. All others lie in buffers: nothing is
converted between the two, because a kernel reaches each operand as it lies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mace_core.ir import DType
from mace_core.program import Call, Program
from mace_target_opencl.enqueue import make_kernel, operands_of
from mace_target_opencl.images import IMAGES
from mace_target_opencl.kernel_operand import QUAD, ImageForm, KernelOperand
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import FLOAT, HALF
from mace_target_opencl.views import View

TEMPLATES = ("product.cl.in", "windows.cl.in", "tile.cl.in", "map.cl.in")
"""Templates that can reach images; all but "map" read x by row and column of a pixel.

"tile" does so where it computes a depthwise convolution as well: other tiles have no width, and read buffers.
"""


@dataclass(frozen=True)
class Access:
    """An operand of a call."""

    call: Call
    operand: KernelOperand

    @property
    def is_wish(self) -> bool:
        """Whether the call was asked for images, and multiplies this operand."""
        return bool(self.call.kernel.params.get(IMAGES)) and str(self.operand.name) == "x"

    @property
    def is_possible(self) -> bool:
        """Whether the kernel can reach this operand in an image."""
        params = self.call.kernel.params
        template = self.call.kernel.template.name
        if template not in TEMPLATES or params.get("width") != QUAD or self.operand.type not in (FLOAT, HALF):
            return False
        # At this width the templates store whole pixels alone.
        if self.operand.is_written:
            return True
        if not all(map(_is_quad, _list_views(self.call, self.operand))):
            return False
        if str(self.operand.name) != "x" or template == "map.cl.in":
            return True
        # Pools have no filters, and take their input as it lies; products do what they were asked for.
        is_asked = self.is_wish or (template == "windows.cl.in" and not params["weighted"])
        axes = params.get("window_axes") or params["axes"]
        return is_asked and len(axes) in (0, 2)  # type: ignore[arg-type]


def store_in_images(program: Program) -> Program:
    """Return the program with the forms of tensors that lie in images at their kernels' operands."""
    forms = _choose_tensors(program)
    return replace(program, calls=tuple(_convert_call(call, forms) for call in program.calls))


def _choose_tensors(program: Program) -> dict[str, ImageForm]:
    accesses: dict[str, list[Access]] = defaultdict(list)
    for call in program.calls:
        names = (*call.reads, *call.writes)
        for operand, name in zip(operands_of(call), names, strict=True):
            accesses[name].append(Access(call, operand))
    # Bytes under a second name may have another shape there.
    shared = {program.root(name) for name in (*program.aliases, *program.inputs, *program.outputs)}
    forms = {}
    for name, tensor in program.tensors.items():
        is_inner = name not in shared and program.root(name) == name and name not in program.weights
        form = ImageForm.of_activation(tensor.shape) if tensor.dtype in (DType.F32, DType.F16) else None
        users = accesses[name]
        is_wanted = any(access.is_wish for access in users)
        if is_inner and form and is_wanted and all(access.is_possible for access in users):
            forms[name] = form
    return forms


def _convert_call(call: Call, forms: Mapping[str, ImageForm]) -> Call:
    """Return the call with the kernel for its operands' images."""
    tensors = (*call.reads, *call.writes)
    if not forms.keys() & {*tensors}:
        return call
    pairs = zip(operands_of(call), tensors, strict=True)
    operands = tuple(replace(operand, image=forms.get(name, operand.image)) for operand, name in pairs)
    params: Mapping[str, object] = {**call.kernel.params, "operands": operands}
    template = call.kernel.template.name.removesuffix(".cl.in")
    # In OpenCL 1.2 no kernel reads and writes one image.
    return replace(call, kernel=make_kernel(template, params), inplace=False)


def _list_views(call: Call, operand: KernelOperand) -> list[View]:
    """Return how a kernel walks an operand in flat indices of its result."""
    params = call.kernel.params
    steps: Sequence[ElementStep] = params["steps"]  # type: ignore[assignment]
    window_steps: Sequence[ElementStep] = params.get("window_steps", ())  # type: ignore[assignment]
    lookups = chain.from_iterable(step.arguments for step in (*steps, *window_steps))
    views = [lookup.view for lookup in lookups if lookup is not None and lookup.operand == operand.name]
    view = params.get("view")
    return [view, *views] if isinstance(view, View) and str(operand.name) == "x" else views


def _is_quad(view: View) -> bool:
    """Tell whether four elements from a multiple of four on are one pixel."""
    return view.is_identity or (view.can_load(QUAD) and view.strides[-1:] == (1,) and view.is_aligned(QUAD))


@dataclass(frozen=True)
class ImageTensor:
    """A tensor in an image.

    slot: the number of the first tensor of the image that it lies in; its own where it is a constant.
    unit: bytes of an element.
    """

    name: str
    form: ImageForm
    unit: int
    slot: int
    is_constant: bool


@dataclass
class _Slot:
    """An image that tensors share one after another.  last: the last call that touches it."""

    number: int
    unit: int
    rows: int
    width: int
    last: int

    def grow(self, form: ImageForm) -> int:
        """Return by how many pixels it grows to hold a tensor as well."""
        return max(self.rows, form.rows) * max(self.width, form.width) - self.rows * self.width


def plan_images(program: Program) -> tuple[ImageTensor, ...]:
    """Return the tensors that lie in images, in the order of their first calls, with the images they share.

    A tensor takes the image that grows least to hold it, of those that no live tensor has: kernels may not
    read and write one image.
    """
    lives: dict[str, tuple[KernelOperand, int, int]] = {}
    for number, call in enumerate(program.calls):
        for operand, name in zip(operands_of(call), (*call.reads, *call.writes), strict=True):
            if operand.image is not None:
                known = lives.get(name, (operand, number, number))
                lives[name] = (known[0], known[1], number)
    slots: list[_Slot] = []
    planned = []
    for number, (name, (operand, first, last)) in enumerate(lives.items()):
        form, unit = operand.image, 2 if operand.type == HALF else 4
        assert form is not None
        is_constant = name in program.weights
        # A constant is written once, when its image is made, so that no tensor may share that.
        slot = (
            number
            if is_constant
            else _take_slot(slots, _Slot(number, unit, form.rows, form.width, last), first, form)
        )
        planned.append(ImageTensor(name, form, unit, slot, is_constant))
    return tuple(planned)


def _take_slot(slots: list[_Slot], fresh: _Slot, first: int, form: ImageForm) -> int:
    # The format of an image is fixed when it is made, so halves and floats share none.
    free = [slot for slot in slots if slot.last < first and slot.unit == fresh.unit]
    best = min(free, key=lambda slot: slot.grow(form), default=None)
    # An image that would grow by more than the tensor's own size saves nothing.
    if best is None or best.grow(form) > form.rows * form.width:
        slots.append(fresh)
        return fresh.number
    best.rows, best.width, best.last = max(best.rows, form.rows), max(best.width, form.width), fresh.last
    return best.number


def count_bytes(images: Sequence[ImageTensor]) -> int:
    """Return the bytes of the images that tensors share."""
    sizes: dict[int, tuple[int, int, int]] = {}
    for image in images:
        rows, width, _ = sizes.get(image.slot, (0, 0, 0))
        sizes[image.slot] = (max(rows, image.form.rows), max(width, image.form.width), image.unit)
    return sum(rows * width * QUAD * unit for rows, width, unit in sizes.values())
