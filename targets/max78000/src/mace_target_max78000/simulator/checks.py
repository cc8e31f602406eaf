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
    _bias(setting, master)
    if setting.writing.slots > PROCESSORS:
        raise master.fault(
            "LCTL2", f"{setting.writing.slots} output channels in one pass, {PROCESSORS} slots exist"
        )
    if setting.reading.planar and len({p // PER_MEMORY for p in setting.processors}) < len(
        setting.processors
    ):
        raise master.fault(
            "LCTL", "channels in planes share a data memory", "enable one processor of each four"
        )


def _slots(setting: Setting, master: Fields) -> None:
    """Time slots must be those that the enabled processors need."""
    code = master.take("POST", 24, 2)
    expected = {
        Kind.CONVOLUTION: 0,
        Kind.DEPTHWISE: 1,
        Kind.PASSTHROUGH: 1 if setting.reading.operands > 1 else 3,
    }[setting.kind]
    if code != expected:
        raise master.fault(
            "POST",
            f"time slots and one-by-one writing are {code}, a {setting.kind.value} layer needs {expected}",
        )
    busy = max(sum(p // PER_QUADRANT == q for p in setting.processors) for q in range(QUADRANTS))
    width = 4 if setting.writing.wide else 1
    if setting.kind is Kind.CONVOLUTION:
        needed = 0
    elif setting.kind is Kind.PASSTHROUGH:
        needed = (busy * width - 1) // PER_MEMORY
    else:
        needed = min(busy, PER_MEMORY) * width - 1 if setting.writing.aligned else busy * width - 1
    if setting.timeslots != needed:
        raise master.fault(
            "ONED",
            f"{setting.timeslots} further time slots where {busy} processors of a quadrant need {needed}",
        )
    if setting.kind is Kind.PASSTHROUGH and _groups(setting) > setting.timeslots + 1:
        problem = f"results for {_groups(setting)} data memories in {setting.timeslots + 1} time slots"
        raise master.fault("ENA", problem, "let the first processor be the first of its memory")


def _groups(setting: Setting) -> int:
    """The most data memories that the packed results of a quadrant lie in."""
    quadrants = [[p for p in setting.processors if p // PER_QUADRANT == q] for q in range(QUADRANTS)]
    return max((q[0] % PER_MEMORY + len(q) - 1) // PER_MEMORY + 1 for q in quadrants if q)


def _bias(setting: Setting, master: Fields) -> None:
    """A bias must be read by somebody: by processors of its quadrant, or by the master, which adds those of the quadrants it listens to."""
    if setting.kind is Kind.PASSTHROUGH and setting.biases:
        raise master.fault("POST", "a bias in a layer without weights")
    if setting.kind is Kind.DEPTHWISE:
        reading = {p // PER_QUADRANT for p in setting.processors}
        if setting.biases and set(setting.biases) != reading:
            problem = f"quadrants {sorted(setting.biases)} have a bias where {sorted(reading)} have channels of their own"
            raise master.fault("POST", problem, "give each quadrant that reads its bias, and no other")
        return
    unheard = set(setting.biases) - setting.sources - {master.quadrant}
    if unheard:
        problem = f"the bias of quadrants {sorted(unheard)}, whose sums are not added"
        raise master.fault("POST", problem, "set their bits in the master's LCTL")
    if len(setting.biases) > 1:
        raise master.fault(
            "POST",
            f"a bias in each of the quadrants {sorted(setting.biases)}, which would be added",
            "keep one of them",
        )


def _kernels(setting: Setting, master: Fields) -> None:
    """The number of kernels must be that of outputs and passes."""
    passes, count = setting.reading.passes, setting.kernel.count
    register = "MCNT1" if master.device.generation == 2 else "MCNT"
    if setting.kind is Kind.CONVOLUTION and count % passes:
        raise master.fault(register, f"{count} kernels are no whole number of {passes} passes")
    if setting.kind is not Kind.CONVOLUTION and not setting.kernel.bypassed and count != passes:
        raise master.fault(
            register, f"{count} kernels or output passes where the input takes {passes} passes"
        )
    if master.device.generation == 1:
        return
    told = master.take("OCHAN", 0, 16) + 1
    slots = setting.timeslots + 1
    count = count // setting.kernel.lanes
    expected = {Kind.CONVOLUTION: count, Kind.DEPTHWISE: slots * passes, Kind.PASSTHROUGH: slots}[
        setting.kind
    ]
    if told != expected:
        raise master.fault("OCHAN", f"{told} output channels where the other registers have {expected}")


def _eltwise(setting: Setting, master: Fields) -> None:
    """Switches of element-wise operations belong to layers that have them."""
    reading = setting.reading
    single = master.take("ONED", 8, 4)
    if setting.kind is Kind.PASSTHROUGH and single != (reading.eltwise is None):
        raise master.fault(
            "ONED",
            "a layer without weights has kernels of one value where it has no operands, and only there",
        )
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
    length = (
        max(0, columns - setting.kernel.columns) if rows or (streaming and setting.kernel.columns > 1) else 0
    )
    if last - first != length:
        raise master.fault("TPTR", f"row memory of {last - first + 1} words where rows need {length + 1}")
    if (last + 1) * reading.passes > master.device.tram_words:
        raise master.fault(
            "TPTR",
            f"row memory of {last + 1} words and {reading.passes} passes, {master.device.tram_words} exist",
        )
