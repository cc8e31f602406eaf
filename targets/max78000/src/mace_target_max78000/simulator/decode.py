"""From the registers of all quadrants to a layer's setting.

The quadrants work in step: what is not each one's own must be the same in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_target_max78000.device import PER_QUADRANT, QUADRANTS, Device
from mace_target_max78000.simulator.checks import check
from mace_target_max78000.simulator.counters import first_generation, second_generation
from mace_target_max78000.simulator.faults import NotModelledError
from mace_target_max78000.simulator.fields import Fields
from mace_target_max78000.simulator.setting import Kernel, Kind, Setting, Stream, Writing

WEIGHT_BITS: Mapping[int, int] = {0: 8, 1: 1, 2: 2, 3: 4}
OWN_BITS: Mapping[str, int] = {"ENA": 0xFFFFFFFF, "LCTL": 0xF000, "POST": 0x1FFF}
"""Bits that may differ between the quadrants of a layer."""
JUMP, END = 0x80, 0x100


def decode(device: Device, layer: int, registers: Mapping[int, Mapping[str, int]]) -> Setting:
    """A layer's setting from its registers by quadrant, the master's first.

    Quadrants whose registers are all 0 are idle.

    Raises SimulationError where registers contradict each other or ask for what the hardware does not have.
    """
    quadrants = [Fields(device, layer, q, values) for q, values in registers.items() if any(values.values())]
    master = Fields(device, layer, *next(iter(registers.items())))
    enabled = {f.quadrant: f.take("ENA") for f in quadrants}
    kind = _kind(master, enabled)
    _agree(master, quadrants, kind)
    reading = (second_generation if device.generation == 2 else first_generation)(master)
    setting = Setting(
        layer=layer,
        kind=kind,
        reading=reading,
        kernel=_kernel(master, kind),
        writing=_writing(master, quadrants, kind),
        stream=_stream(master),
        processors=tuple(
            q * PER_QUADRANT + p for q, mask in enabled.items() for p in range(PER_QUADRANT) if mask >> p & 1
        ),
        sources=frozenset(q for q in range(QUADRANTS) if master.flag("LCTL", 12 + q)),
        biases={f.quadrant: f.take("POST", 0, 12) for f in quadrants if f.flag("POST", 12)},
        timeslots=master.take("ONED", 0, 4),
        shift=-master.take("POST", 13, 4) if master.flag("POST", 17) else master.take("POST", 13, 4),
        relu=master.flag("LCTL", 9),
        absolute=master.flag("POST", 26),
        row_memory=(master.take("TPTR", 0, 16), master.take("TPTR", 16, 16)),
        following=_following(master),
    )
    _always(master)
    check(setting, master)
    master.refuse_unknown()
    return setting


def _kind(master: Fields, enabled: Mapping[int, int]) -> Kind:
    """Convolution where weight memories are enabled; every reading processor needs its own."""
    if not any(enabled.values()):
        raise master.fault(
            "ENA", "no processor is enabled in any quadrant", "enable those that hold the layer's input"
        )
    weighted = any(mask >> 16 for mask in enabled.values())
    for quadrant, mask in enabled.items():
        if weighted and mask >> 16 != mask & 0xFFFF:
            problem = f"quadrant {quadrant} enables processors {mask & 0xFFFF:#06x} with the weights of {mask >> 16:#06x}"
            raise master.fault("ENA", problem, "enable the weights of the processors that read")
    depthwise = master.device.generation == 2 and master.flag("POST", 30)
    if depthwise:
        return Kind.DEPTHWISE
    return Kind.CONVOLUTION if weighted or _bypassed(master) else Kind.PASSTHROUGH


def _agree(master: Fields, quadrants: Sequence[Fields], kind: Kind) -> None:
    """Raise SimulationError if a register differs between quadrants though it may not."""
    own = dict(OWN_BITS)
    if kind is not Kind.CONVOLUTION:
        own["WPTR_BASE"] = 0xFFFFFFFF
    for fields in quadrants:
        for name in sorted(master.values.keys() | fields.values.keys()):
            ours, theirs = master.values.get(name, 0), fields.values.get(name, 0)
            if (ours ^ theirs) & ~own.get(name, 0):
                problem = f"quadrant {master.quadrant} has {ours:#x}, and quadrants work in step"
                raise fields.fault(name, problem, "write the same to both")
        if fields.quadrant != master.quadrant and fields.take("LCTL", 12, 4):
            raise fields.fault("LCTL", "a quadrant that is not the master adds the sums of others")
    if master.flag("LCTL", 12 + master.quadrant):
        raise master.fault("LCTL", "the master adds its own sums a second time")


def _always(master: Fields) -> None:
    """Bits that are set in every program; what the hardware does without them is not documented."""
    if not (master.flag("LCTL", 5) and master.flag("LCTL", 11)):
        raise master.fault(
            "LCTL", "results are not written to other quadrants' memories", "set bits 5 and 11"
        )
    for name in ("ENA", "IFRM"):
        master.take(name)
    master.take("STREAM1", 25, 1)
    master.take("POST", 0, 13)


def _bypassed(master: Fields) -> bool:
    return not _reads_ahead(master) and master.flag("LCTL", 30)


def _reads_ahead(master: Fields) -> bool:
    """Whether the second generation reads while it computes; then the highest bits count shifts."""
    ahead = master.device.generation == 2 and master.flag("LCTL", 17)
    if ahead and master.flag("POST", 30):
        # the count of shifts and the switch of layers that write where they read share a bit
        raise NotModelledError(
            f"layer {master.layer}, LCTL", "depthwise layers that read ahead are not simulated"
        )
    if ahead and master.take("LCTL", 26, 6) != master.take("LCTL2", 0, 4) // (4 if _in_fours(master) else 1):
        raise master.fault(
            "LCTL", "shifts of the read-ahead that are not one for each further pass, or four of them"
        )
    return ahead


def _kernel(master: Fields, kind: Kind) -> Kernel:
    """Which kernels a layer uses."""
    if master.device.generation == 2:
        first, last = master.take("MCNT2", 0, 19), master.take("MCNT1", 0, 19)
    else:
        first, last = master.take("MCNT", 16, 16), master.take("MCNT", 0, 16)
    bits = WEIGHT_BITS[master.take("POST", 22, 2)]
    rows, columns = _kernel_size(master, kind)
    if kind is Kind.PASSTHROUGH:
        passes = (first if master.device.generation == 2 else last) // 8 + 1
        return Kernel(rows, columns, 0, passes, bits, one_dimensional=False, bypassed=False)
    if first % 8 or (last - first) % bits or last < first:
        raise master.fault(
            "MCNT1" if master.device.generation == 2 else "MCNT",
            f"kernels from bit {first} to bit {last} of {bits} bits each",
        )
    byte = first // 8 * rows * columns + master.take("ONED", 4, 4)
    count, lanes = (last - first) // bits + 1, _lanes(master, rows, columns)
    if lanes > 1 and master.layer == 0:
        count *= lanes  # the first layer counts the kernels of one memory, later ones those of all four
    if count % lanes:
        raise master.fault("MCNT1", f"{count} kernels for {lanes} memories")
    return Kernel(rows, columns, byte, count, bits, master.flag("ONED", 12), _bypassed(master), lanes)


def _lanes(master: Fields, rows: int, columns: int) -> int:
    """Output channels that are computed at once."""
    if not (master.device.generation == 2 and master.flag("POST", 29)):
        return 1
    if (rows, columns) != (3, 3):
        # how fewer than nine weights are spread over the four memories is not known
        raise NotModelledError(
            f"layer {master.layer}, POST", "kernels that are not 3x3 in four memories are not simulated"
        )
    return 4


def _kernel_size(master: Fields, kind: Kind) -> tuple[int, int]:
    """Rows and columns of a kernel.

    The second generation has them a second time, where they must be the same.
    """
    length = master.take("ONED", 8, 4)
    if master.flag("ONED", 12):
        size = length, 1
    elif length > 1:
        raise master.fault("ONED", f"a length of {length} without a one-dimensional kernel")
    else:
        size = (1, 1) if length or kind is Kind.PASSTHROUGH else (3, 3)
    if not 1 <= size[0] <= 9:
        raise master.fault("ONED", f"a kernel of {size[0]} values", "use 1 to 9")
    if master.device.generation == 2:
        told = master.take("LCTL", 22, 4) + 1, master.take("LCTL", 18, 4) + 1
        if told != size:
            raise master.fault(
                "LCTL", f"the kernel is {told[0]}x{told[1]} here and {size[0]}x{size[1]} in ONED"
            )
    return size


def _writing(master: Fields, quadrants: Sequence[Fields], kind: Kind) -> Writing:
    """Where results go."""
    second, pointer = master.device.generation == 2, master.device.offset_bits + 4
    span, bits = master.take("LCTL2", 12 if second else 8, 9), WEIGHT_BITS[master.take("POST", 22, 2)]
    if span % bits:
        raise master.fault("LCTL2", f"output channels of {span} bits with weights of {bits}")
    return Writing(
        bases={f.quadrant: f.take("WPTR_BASE", 0, pointer) for f in (*quadrants, master)},
        time_step=master.take("WPTR_TOFFS", 0, pointer),
        memory_step=master.take("WPTR_MOFFS", 0, pointer),
        channel_step=master.take("WPTR_CHOFFS", 0, pointer),
        pixel=master.take("LCTL2", 4, 8 if second else 4) + 1,
        slots=span // bits + 1,
        wide=master.flag("LCTL", 16),
        aligned=second and not _reads_ahead(master) and kind is Kind.DEPTHWISE and master.flag("LCTL", 29),
    )


def _stream(master: Fields) -> Stream:
    """When it begins, and how long it waits."""
    passes = master.take("LCTL2", 0, 4) + 1
    return Stream(
        start=master.take("STREAM1", 0, 15),
        passes=master.take("STREAM2", 0, 4),
        rollover=master.take("FMAX", 0, 20),
        columns=master.take("STREAM2", 4, 5),
        rows=master.take("STREAM2", 16, 14 if master.device.generation == 2 else 12),
        own_passes=-(-passes // 4) * 4 if _in_fours(master) else passes,
    )


def _in_fours(master: Fields) -> bool:
    """Whether the second generation moves four passes of the input at a time."""
    return master.device.generation == 2 and master.flag("POST", 31)


def _following(master: Fields) -> int | None:
    """The layer that comes next."""
    value = master.take("NXTLYR", 0, 9)
    if value & END:
        return None
    return value & 0x7F if value & JUMP else master.layer + 1
