"""Registers of a layer that must fit each other: what the hardware would do otherwise is not an answer but a wrong one."""

from __future__ import annotations

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS
from mace_target_max78000.simulator.fields import Fields
from mace_target_max78000.simulator.setting import Kind, Setting


def check(setting: Setting, master: Fields) -> None:
    """Raise SimulationError for the first contradiction."""
    _slots(setting, master)
    _kernels(setting, master)
    _eltwise(setting, master)
    _row_memory(setting, master)
    if setting.kind is Kind.PASSTHROUGH and setting.biases:
        raise master.fault("POST", "a bias in a layer without weights")
    if setting.writing.slots > PROCESSORS:
        raise master.fault("LCTL2", f"{setting.writing.slots} output channels in one pass, {PROCESSORS} slots exist")
    if setting.reading.planar and len({p // PER_MEMORY for p in setting.processors}) < len(setting.processors):
        raise master.fault("LCTL", "channels in planes share a data memory", "enable one processor of each four")


def _slots(setting: Setting, master: Fields) -> None:
    """Time slots must be those that the enabled processors need."""
    code = master.take("POST", 24, 2)
    expected = {Kind.CONVOLUTION: 0, Kind.DEPTHWISE: 1, Kind.PASSTHROUGH: 1 if setting.reading.operands > 1 else 3}[setting.kind]
    if code != expected:
        raise master.fault("POST", f"time slots and one-by-one writing are {code}, a {setting.kind.value} layer needs {expected}")
    busy = max(sum(p // PER_QUADRANT == q for p in setting.processors) for q in range(QUADRANTS))
    width = 4 if setting.writing.wide else 1
    if setting.kind is Kind.CONVOLUTION:
        needed = 0
    elif setting.kind is Kind.PASSTHROUGH:
        needed = (busy * width - 1) // PER_MEMORY
    else:
        needed = min(busy, PER_MEMORY) * width - 1 if setting.writing.aligned else busy * width - 1
    if setting.timeslots != needed:
        raise master.fault("ONED", f"{setting.timeslots} further time slots where {busy} processors of a quadrant need {needed}")
    if setting.kind is Kind.PASSTHROUGH and _groups(setting) > setting.timeslots + 1:
        raise master.fault("ENA", f"{_groups(setting)} data memories in {setting.timeslots + 1} time slots", "enable adjacent processors")


def _groups(setting: Setting) -> int:
    """The most data memories, gaps included, that the enabled processors of a quadrant span."""
    memories = [{p // PER_MEMORY for p in setting.processors if p // PER_QUADRANT == q} for q in range(QUADRANTS)]
    return max(max(m) - min(m) + 1 for m in memories if m)


def _kernels(setting: Setting, master: Fields) -> None:
    """The number of kernels must be that of outputs and passes."""
    passes, count = setting.reading.passes, setting.kernel.count
    register = "MCNT1" if master.device.pipelined else "MCNT"
    if setting.kind is Kind.CONVOLUTION and count % passes:
        raise master.fault(register, f"{count} kernels are no whole number of {passes} passes")
    if setting.kind is not Kind.CONVOLUTION and not setting.kernel.bypassed and count != passes:
        raise master.fault(register, f"{count} kernels or output passes where the input takes {passes} passes")
    if not master.device.pipelined:
        return
    told = master.take("OCHAN", 0, 16) + 1
    slots = setting.timeslots + 1
    expected = {Kind.CONVOLUTION: count, Kind.DEPTHWISE: slots * passes, Kind.PASSTHROUGH: slots}[setting.kind]
    if told != expected:
        raise master.fault("OCHAN", f"{told} output channels where the other registers have {expected}")


def _eltwise(setting: Setting, master: Fields) -> None:
    """Switches of element-wise operations belong to layers that have them."""
    reading = setting.reading
    single = master.take("ONED", 8, 4)
    if setting.kind is Kind.PASSTHROUGH and single != (reading.eltwise is None):
        raise master.fault("ONED", "a layer without weights has kernels of one value where it has no operands, and only there")
    if reading.eltwise is None:
        return
    if master.flag("ONED", 17) != (setting.kind is not Kind.PASSTHROUGH):
        raise master.fault("ONED", "whether a convolution follows the element-wise operation contradicts ENA")
    if master.flag("ONED", 16) and not master.flag("LCTL", 7):
        raise master.fault("ONED", "pooling comes first but is off")


def _row_memory(setting: Setting, master: Fields) -> None:
    """The row memory must be as long as a row of the input is wider than the kernel."""
    reading, (last, first) = setting.reading, setting.row_memory
    if reading.joined:
        return
    columns = reading.columns * (2 if reading.transposed else 1) + 2 * reading.pad[1]
    streaming = first > 0
    rows = setting.kernel.rows > 1 and setting.kernel.columns > 1
    length = max(0, columns - setting.kernel.columns) if rows or (streaming and setting.kernel.columns > 1) else 0
    if last - first != length:
        raise master.fault("TPTR", f"row memory of {last - first + 1} words where rows need {length + 1}")
    if (last + 1) * reading.passes > master.device.tram_words:
        raise master.fault("TPTR", f"row memory of {last + 1} words and {reading.passes} passes, {master.device.tram_words} exist")
