"""How many work-items share a group."""

from __future__ import annotations

from mace_core.lowering import Lowering
from mace_target_opencl.enqueue import GROUP
from mace_target_opencl.kernel_request import NO_REQUEST, KernelRequest
from mace_target_opencl.lower.product_tile import DeviceSize
from mace_target_opencl.options import OpenclOptions

MAX_COLUMNS = 16
"""Work-items along the first axis, which read neighboring columns or channels."""


def square_group(columns: int) -> tuple[int, int, int]:
    """Return a group of work-items for so many along the first axis, and rows along the second."""
    # A power of two, which divides the work-items of a group.
    across = 1
    while across < columns and across < MAX_COLUMNS:
        across *= 2
    return across, GROUP // across, 1


def choose_group(lowering: Lowering, columns: int) -> tuple[int, ...]:
    """Return the group that a candidate asks for, else the target's; () where the device is to choose."""
    across = read_request(lowering).group
    if across is None:
        return square_group(columns)
    return (across, GROUP // across, 1) if across else ()


def read_request(lowering: Lowering) -> KernelRequest:
    """Return what a candidate asks for."""
    options = lowering.parameters
    return options.request if isinstance(options, OpenclOptions) else NO_REQUEST


def read_device_size(lowering: Lowering) -> DeviceSize:
    """Return what the options state about the device."""
    options = lowering.parameters
    return DeviceSize.of(options) if isinstance(options, OpenclOptions) else DeviceSize()
