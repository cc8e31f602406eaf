"""Places tensors in images and in buffers in one memory of the device, where its images can lie in it.

An image in the pool is a range of a buffer (cl_khr_image2d_from_buffer), so a tensor in an image may take
the bytes of a dead tensor in a buffer, and the reverse. `driver/opencl_pool.c` decides at run time whether
the device can do so; elsewhere the images have memory of their own and the buffers the arena without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mace_core.memory import Arena, arrange, list_spans, touches_of
from mace_core.program import Program
from mace_target_opencl.image_storage import ImageTensor
from mace_target_opencl.kernel_operand import QUAD

PITCH = 64
"""Pixels: rows of an image in the pool begin at multiples of it.

The build does not know the device, and OpenCL lets each choose its own multiple. Devices that want a divisor
of this one have pools; wider rows would make narrow images larger than in memory of their own.
"""

ORIGIN = 1024
"""Bytes: tensors in the pool begin at multiples of it, 64 pixels of floats."""


def find_pitch(image: ImageTensor) -> int:
    """Return the pixels from row to row of a tensor in the pool."""
    return _round_up(image.form.width, PITCH)


def plan_pool(program: Program, images: Sequence[ImageTensor], apart: int) -> Arena | None:
    """Return where tensors that pass between calls lie, images among them; None if that saves nothing.

    apart: bytes of images and buffers that have memory of their own.
    """
    if all(image.is_constant for image in images):
        return None
    owner, spans = list_spans(program, touches_of(program))
    sizes = {image.name: image.form.rows * find_pitch(image) * QUAD * image.unit for image in images}
    sized = [replace(span, size=_round_up(sizes.get(span.name, span.size), ORIGIN)) for span in spans]
    placed = arrange(sized)
    # Rows that are padded to the pitch can cost more than sharing saves.
    if placed.bytes >= apart:
        return None
    roots = {name: program.root(name) for name in program.tensors}
    offsets = {name: placed.offsets[owner[root]] for name, root in roots.items() if root in owner}
    return replace(placed, offsets=offsets)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
