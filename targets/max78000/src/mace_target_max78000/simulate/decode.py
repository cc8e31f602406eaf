"""Decodes the registers of all quadrants to the settings of a layer, and checks that they agree.

Quadrants run in lockstep, so that registers that they share must match. Registers of a layer that contradict
each other are refused: the hardware would compute something, but nothing that a program can want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, Chip
from mace_target_max78000.simulate.layer_settings import (
    Fields,
    KernelSettings,
    LayerKind,
    LayerSettings,
    StreamSettings,
    Writing,
    first_generation,
    second_generation,
)
from mace_target_max78000.simulate.memory import NotModeledError
from mace_target_max78000.wording import format_count

WEIGHT_BITS: Mapping[int, int] = {0: 8, 1: 1, 2: 2, 3: 4}
OWN_BITS: Mapping[str, int] = {"ENA": 0xFFFFFFFF, "LCTL": 0xF000, "POST": 0x1FFF}
"""Bits that may differ between the quadrants of a layer."""
JUMP, END = 0x80, 0x100


def decode(device: Chip, layer: int, registers: Mapping[int, Mapping[str, int]]) -> LayerSettings:
    """Return a layer's settings from its registers by quadrant, the master's first.

    Quadrants whose registers are all 0 are idle.

    Raises SimulationError where registers contradict each other or ask for what the hardware does not have.
    """
    quadrants = [Fields(device, layer, q, values) for q, values in registers.items() if any(values.values())]
    master = Fields(device, layer, *next(iter(registers.items())))
    enabled = {f.quadrant: f.take("ENA") for f in quadrants}
    kind = _kind(master, enabled)
    _agree(master, quadrants, kind)
    reading = (second_generation if device.generation == 2 else first_generation)(master)
    setting = LayerSettings(
        layer=layer,
        kind=kind,
        reading=reading,
        kernel=_kernel(master, kind),
        writing=_writing(master, quadrants, kind),
        stream=_stream(master),
        processors=_list_processors(enabled),
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


def _list_processors(enabled: Mapping[int, int]) -> tuple[int, ...]:
    """Return the numbers of the enabled processors; enabled: the mask of each quadrant."""
    processors: list[int] = []
    for quadrant, mask in enabled.items():
        processors += (quadrant * PER_QUADRANT + p for p in range(PER_QUADRANT) if mask >> p & 1)
    return tuple(processors)


def _kind(master: Fields, enabled: Mapping[int, int]) -> LayerKind:
    """Convolution where weight memories are enabled; every reading processor needs its own."""
    if not any(enabled.values()):
        raise master.fault(
            "ENA", "no processor is enabled in any quadrant", "enable those that hold the layer's input"
        )
    weighted = any(mask >> 16 for mask in enabled.values())
    for quadrant, mask in enabled.items():
        if weighted and mask >> 16 != mask & 0xFFFF:
            masks = f"{mask & 0xFFFF:#06x} with the weights of {mask >> 16:#06x}"
            problem = f"quadrant {quadrant} enables processors {masks}"
            raise master.fault("ENA", problem, "enable the weights of the processors that read")
    depthwise = master.device.generation == 2 and master.flag("POST", 30)
    if depthwise:
        return LayerKind.DEPTHWISE
    return LayerKind.CONVOLUTION if weighted or _bypass(master) else LayerKind.PASSTHROUGH


def _agree(master: Fields, quadrants: Sequence[Fields], kind: LayerKind) -> None:
    """Raise SimulationError if a register differs between quadrants though it may not."""
    free_bits = dict(OWN_BITS)
    if kind is not LayerKind.CONVOLUTION:
        # Without a sum over quadrants each of them writes its own results.
        free_bits["WPTR_BASE"] = 0xFFFFFFFF
    for fields in quadrants:
        for name in sorted(master.values.keys() | fields.values.keys()):
            ours, theirs = master.values.get(name, 0), fields.values.get(name, 0)
            if (ours ^ theirs) & ~free_bits.get(name, 0):
                problem = f"quadrant {master.quadrant} has {ours:#x}, and quadrants work in step"
                raise fields.fault(name, problem, "write the same to both")
        if fields.quadrant != master.quadrant and fields.take("LCTL", 12, 4):
            raise fields.fault("LCTL", "a quadrant that is not the master adds the sums of others")
    if master.flag("LCTL", 12 + master.quadrant):
        raise master.fault("LCTL", "the master adds its own sums a second time")


def _always(master: Fields) -> None:
    """Bits that are set in every program; what the hardware does without them is not documented."""
    # Every program of the vendor sets both, so nothing is known of programs that do not.
    if not (master.flag("LCTL", 5) and master.flag("LCTL", 11)):
        raise master.fault(
            "LCTL", "results are not written to other quadrants' memories", "set bits 5 and 11"
        )
    for name in ("ENA", "IFRM"):
        master.take(name)
    master.take("STREAM1", 25, 1)
    master.take("POST", 0, 13)


def _bypass(master: Fields) -> bool:
    return not _reads_ahead(master) and master.flag("LCTL", 30)


def _reads_ahead(master: Fields) -> bool:
    """Whether the layer reads ahead, which the second generation can; then the highest bits count shifts."""
    ahead = master.device.generation == 2 and master.flag("LCTL", 17)
    if ahead and master.flag("POST", 30):
        # the count of shifts and the switch of layers that write where they read share a bit
        raise NotModeledError(
            f"layer {master.layer}, LCTL", "depthwise layers that read ahead are not simulated"
        )
    if ahead and master.take("LCTL", 26, 6) != master.take("LCTL2", 0, 4) // (4 if _in_fours(master) else 1):
        raise master.fault(
            "LCTL", "shifts of the read-ahead that are not one for each further pass, or four of them"
        )
    return ahead


def _kernel(master: Fields, kind: LayerKind) -> KernelSettings:
    """Return which kernels a layer uses."""
    if master.device.generation == 2:
        first, last = master.take("MCNT2", 0, 19), master.take("MCNT1", 0, 19)
    else:
        first, last = master.take("MCNT", 16, 16), master.take("MCNT", 0, 16)
    bits = WEIGHT_BITS[master.take("POST", 22, 2)]
    rows, columns = _kernel_size(master, kind)
    if kind is LayerKind.PASSTHROUGH:
        passes = (first if master.device.generation == 2 else last) // 8 + 1
        return KernelSettings(rows, columns, 0, passes, bits, one_dimensional=False, bypassed=False)
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
        raise master.fault("MCNT1", f"{format_count(count, 'kernel')} for {lanes} memories")
    return KernelSettings(rows, columns, byte, count, bits, master.flag("ONED", 12), _bypass(master), lanes)


def _lanes(master: Fields, rows: int, columns: int) -> int:
    """Output channels that are computed at once."""
    if not (master.device.generation == 2 and master.flag("POST", 29)):
        return 1
    if (rows, columns) != (3, 3):
        # how fewer than nine weights are spread over the four memories is not known
        raise NotModeledError(
            f"layer {master.layer}, POST", "kernels that are not 3x3 in four memories are not simulated"
        )
    return 4


def _kernel_size(master: Fields, kind: LayerKind) -> tuple[int, int]:
    """Return rows and columns of a kernel.

    The second generation has them a second time, where they must be the same.
    """
    length = master.take("ONED", 8, 4)
    if master.flag("ONED", 12):
        size = length, 1
    elif length > 1:
        raise master.fault("ONED", f"a length of {length} without a one-dimensional kernel")
    else:
        size = (1, 1) if length or kind is LayerKind.PASSTHROUGH else (3, 3)
    if not 1 <= size[0] <= 9:
        raise master.fault("ONED", f"a kernel of {size[0]} values", "use 1 to 9")
    if master.device.generation == 2:
        repeated = master.take("LCTL", 22, 4) + 1, master.take("LCTL", 18, 4) + 1
        if repeated != size:
            raise master.fault(
                "LCTL", f"the kernel is {repeated[0]}x{repeated[1]} here and {size[0]}x{size[1]} in ONED"
            )
    return size


def _writing(master: Fields, quadrants: Sequence[Fields], kind: LayerKind) -> Writing:
    """Return where results go."""
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
        aligned=second
        and not _reads_ahead(master)
        and kind is LayerKind.DEPTHWISE
        and master.flag("LCTL", 29),
    )


def _stream(master: Fields) -> StreamSettings:
    """When it begins, and how long it waits."""
    passes = master.take("LCTL2", 0, 4) + 1
    return StreamSettings(
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
    """Return the layer that comes next."""
    value = master.take("NXTLYR", 0, 9)
    if value & END:
        return None
    return value & 0x7F if value & JUMP else master.layer + 1


def check(setting: LayerSettings, master: Fields) -> None:
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


def _slots(setting: LayerSettings, master: Fields) -> None:
    """Time slots must be those that the enabled processors need."""
    code = master.take("POST", 24, 2)
    expected = {
        LayerKind.CONVOLUTION: 0,
        LayerKind.DEPTHWISE: 1,
        LayerKind.PASSTHROUGH: 1 if setting.reading.operands > 1 else 3,
    }[setting.kind]
    if code != expected:
        raise master.fault(
            "POST",
            f"time slots and one-by-one writing are {code}, a {setting.kind.value} layer needs {expected}",
        )
    busy = max(sum(p // PER_QUADRANT == q for p in setting.processors) for q in range(QUADRANTS))
    width = 4 if setting.writing.wide else 1
    if setting.kind is LayerKind.CONVOLUTION:
        needed = 0
    elif setting.kind is LayerKind.PASSTHROUGH:
        needed = (busy * width - 1) // PER_MEMORY
    else:
        needed = min(busy, PER_MEMORY) * width - 1 if setting.writing.aligned else busy * width - 1
    if setting.timeslots != needed:
        raise master.fault(
            "ONED",
            f"{setting.timeslots} further time slots where {busy} processors of a quadrant need {needed}",
        )
    if setting.kind is LayerKind.PASSTHROUGH and _groups(setting) > setting.timeslots + 1:
        slots = format_count(setting.timeslots + 1, "time slot")
        problem = f"results for {_groups(setting)} data memories in {slots}"
        raise master.fault("ENA", problem, "let the first processor be the first of its memory")


def _groups(setting: LayerSettings) -> int:
    """Return the most data memories that the packed results of a quadrant lie in."""
    quadrants = [[p for p in setting.processors if p // PER_QUADRANT == q] for q in range(QUADRANTS)]
    return max((q[0] % PER_MEMORY + len(q) - 1) // PER_MEMORY + 1 for q in quadrants if q)


def _bias(setting: LayerSettings, master: Fields) -> None:
    """Raise SimulationError if nothing reads a bias.

    It is read by processors of its quadrant, or by the master, which adds the sums of the quadrants in LCTL.
    """
    if setting.kind is LayerKind.PASSTHROUGH and setting.biases:
        raise master.fault("POST", "a bias in a layer without weights")
    if setting.kind is LayerKind.DEPTHWISE:
        reading = {p // PER_QUADRANT for p in setting.processors}
        if setting.biases and set(setting.biases) != reading:
            problem = f"quadrants {sorted(setting.biases)} have a bias, and {sorted(reading)} have channels"
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


def _kernels(setting: LayerSettings, master: Fields) -> None:
    """The number of kernels must be that of outputs and passes."""
    passes, count = setting.reading.passes, setting.kernel.count
    register = "MCNT1" if master.device.generation == 2 else "MCNT"
    if setting.kind is LayerKind.CONVOLUTION and count % passes:
        raise master.fault(
            register, f"{format_count(count, 'kernel')} for {passes} passes, expected a multiple"
        )
    if setting.kind is not LayerKind.CONVOLUTION and not setting.kernel.bypassed and count != passes:
        raise master.fault(
            register,
            f"{format_count(count, 'kernel')} or output passes, "
            f"the input takes {format_count(passes, 'pass')}",
        )
    if master.device.generation == 1:
        return
    channels = master.take("OCHAN", 0, 16) + 1
    slots = setting.timeslots + 1
    count = count // setting.kernel.lanes
    expected = {
        LayerKind.CONVOLUTION: count,
        LayerKind.DEPTHWISE: slots * passes,
        LayerKind.PASSTHROUGH: slots,
    }[setting.kind]
    if channels != expected:
        raise master.fault("OCHAN", f"{channels} output channels where the other registers have {expected}")


def _eltwise(setting: LayerSettings, master: Fields) -> None:
    """Switches of element-wise operations belong to layers that have them."""
    reading = setting.reading
    single = master.take("ONED", 8, 4)
    if setting.kind is LayerKind.PASSTHROUGH and single != (reading.eltwise is None):
        raise master.fault(
            "ONED",
            "a layer without weights has kernels of one value where it has no operands, and only there",
        )
    if reading.eltwise is None:
        return
    if master.flag("ONED", 17) != (setting.kind is not LayerKind.PASSTHROUGH):
        raise master.fault("ONED", "whether a convolution follows the element-wise operation contradicts ENA")
    if master.flag("ONED", 16) and not master.flag("LCTL", 7):
        raise master.fault("ONED", "pooling comes first but is off")


def _row_memory(setting: LayerSettings, master: Fields) -> None:
    """The row memory must be as long as a row of the input is wider than the kernel."""
    reading, (last, first) = setting.reading, setting.row_memory
    if reading.flattened:
        return
    columns = reading.columns * (2 if reading.transposed else 1) + 2 * reading.pad[1]
    # A kernel of one column reads no neighbors in a row.
    length = max(0, columns - setting.kernel.columns) if setting.kernel.columns > 1 else 0
    if last - first != length:
        raise master.fault("TPTR", f"row memory of {last - first + 1} words where rows need {length + 1}")
    if (last + 1) * reading.passes > master.device.tram_words:
        raise master.fault(
            "TPTR",
            f"row memory of {last + 1} words and {format_count(reading.passes, 'pass')}, "
            f"{master.device.tram_words} exist",
        )
