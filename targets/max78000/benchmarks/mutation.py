"""Single bits of programs turned over: which of them the known answer on the simulator finds.

    uv run targets/max78000/benchmarks/mutation.py --flips 100 --seed 1

A bit of a weight is turned over in the network: the program's weight memory must then differ in that one bit,
and the simulator must agree with the arithmetic of the changed network.  A bit of a register is turned over
in the program.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mace_frontend_ai8x.network import LayerActivation, Network
from mace_target_max78000.device import FAST_FIFO, FIFO_CONTROL, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image, Step, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import SimulationError, Simulator, find_mismatches, replay
from mace_target_max78000.simulate.decode import decode
from mace_target_max78000.simulate.layer_settings import LayerKind, LayerSettings

FAULT, ANSWER, REWRITTEN, IGNORED, ELSEWHERE, SAME = (
    "fault",
    "answer",
    "rewritten",
    "ignored",
    "elsewhere",
    "same",
)
"""What became of a flip: refused, another answer; else written again before it mattered, not modeled, only words that nobody compares,
no difference at all."""
CAUGHT = (FAULT, ANSWER)

IGNORED_BITS: Mapping[str, int] = {
    # ready-select, external ready, pipeline, planes that stream, snoop clock, done, and the loader's and
    # FIFO's speed
    "CTL": 0x2 | 0x4 | 0x10 | 0x20 | 0x40 | 0x80 | 0x1000 | 0x70000 | 0x100000 | 0x200000 | 0x800000,
    # longer waits after each column and row than are needed
    "STREAM2": 0xFFFFFFF0,
    "STREAM1": 1 << 25,
    "FIFO_CONTROL": 0xFFFF0FFF,
    "AON": 0xFFFFFFFF,
    # any value clears the registers that has these bits, or is written after it
    "TEST": 0xFFFFE77F,
}
"""Bits that the simulator does not model, because they change when something happens and not what."""

EVERY: Mapping[str, Sequence[int]] = {}
ARITHMETIC: Mapping[str, Sequence[int]] = {"POST": range(13, 18), "LCTL": (9,)}
"""Bits that mean another shift, or whether negative results become 0."""
ALWAYS_CAUGHT = frozenset(
    ["ENA", "MCNT", "MCNT1", "MCNT2", "OCHAN", "RPTR_BASE", "TPTR", "PRCNT", "PCCNT", "SRAM", "LCNT", "IFRM"]
)
"""Registers of layers with weights whose every bit matters."""


@dataclass(frozen=True)
class Subject:
    """A network on a part, and its program."""

    name: str
    network: Network
    options: Options
    device: Chip
    image: Image

    @classmethod
    def of(cls, name: str, network: Network, options: Options, device: Chip) -> Subject:
        """With its program made."""
        return cls(name, network, options, device, synthesize(network, options, device).image)


@dataclass(frozen=True)
class Flip:
    """One bit and what became of it.

    register: its name; empty for a weight's.  must: whether the arithmetic of a changed network says that the
    answer changes; None where no network means the same as the bit.  weighted: whether it belongs to a layer
    with weights, or to all layers.
    """

    what: str
    outcome: str
    register: str = ""
    must: bool | None = None
    weighted: bool = True


def weight_flips(subject: Subject, count: int, random: np.random.Generator) -> Iterator[Flip]:
    """Turn over bits of weights; AssertionError if program or simulator disagree with the changed network."""
    layers = [
        i
        for i, layer in enumerate(subject.network.layers)
        if layer.weights is not None and not subject.network.places[i].bypass
    ]
    sizes = np.array([weights_of(subject.network, i).values.size for i in layers])
    for _ in range(count if layers else 0):
        index = int(random.choice(layers, p=sizes / sizes.sum()))
        weights = weights_of(subject.network, index)
        place, bit = int(random.integers(weights.values.size)), int(random.integers(weights.bits))
        changed = with_weight(
            subject.network,
            index,
            place,
            turned(int(weights.values.flat[place]), bit, weights.bits, weights.binary),
        )
        image = synthesize(changed, subject.options, subject.device).image
        if difference(subject.image, image) != 1:
            continue  # the layer had shared its weights with another one
        flipped = replace(subject.image, kernels=image.kernels)
        simulator = replay(flipped)
        what = f"{subject.name}: layer {index}, weight {place}, bit {bit}"
        assert not list(find_mismatches(simulator, image)), (
            f"{what}: the arithmetic of the changed network finds another answer"
        )
        different = any(True for _ in find_mismatches(simulator, subject.image))
        must = [c.values for c in image.known_answer] != [c.values for c in subject.image.known_answer]
        yield Flip(what, ANSWER if different else SAME, must=must)


def weights_of(network: Network, index: int) -> Any:
    """A layer's weights."""
    return network.layers[index].weights


def turned(value: int, bit: int, bits: int, binary: bool) -> int:
    """A weight with one of its stored bits turned over."""
    if binary:
        return -value
    field = (value ^ 1 << bit) & (1 << bits) - 1
    return field - (field >> bits - 1 << bits)


def with_weight(network: Network, index: int, place: int, value: int) -> Network:
    """The network with another weight."""
    weights = weights_of(network, index)
    values = weights.values.copy()
    values.flat[place] = value
    layers = list(network.layers)
    layers[index] = replace(layers[index], weights=replace(weights, values=values))
    return replace(network, layers=tuple(layers))


def difference(one: Image, other: Image) -> int:
    """How many bits of weight memory differ."""
    if [(c.address, c.count) for c in one.kernels] != [(c.address, c.count) for c in other.kernels]:
        return -1
    return sum(
        (a ^ b).bit_count()
        for c, d in zip(one.kernels, other.kernels, strict=True)
        for a, b in zip(c.words, d.words, strict=True)
    )


def register_flips(
    subject: Subject, count: int, random: np.random.Generator, bits: Mapping[str, Sequence[int]] = EVERY
) -> Iterator[Flip]:
    """Turn over bits of register writes that are not 0.

    bits: of these registers only; of all where it is empty.
    """
    image = subject.image
    whole = replay(image)
    kinds = [setting.kind for setting in settings(whole, image)]
    phases = ("init", "configure", "start")
    writes = [
        (p, i, s) for p in phases for i, s in enumerate(getattr(image, p)) if isinstance(s, Write) and s.value
    ]
    if bits:
        writes = [w for w in writes if register(subject.device, w[2].address)[0] in bits]
    for _ in range(count if writes else 0):
        phase, i, write = writes[int(random.integers(len(writes)))]
        name, layer = register(subject.device, write.address)
        bit = int(random.choice(bits.get(name, range(32))))
        steps: list[Step] = list(getattr(image, phase))
        steps[i] = Write(write.address, write.value ^ 1 << bit)
        changes: dict[str, Any] = {phase: tuple(steps)}
        outcome = judge(subject, whole, replace(image, **changes), name, bit)
        if outcome not in CAUGHT and again(image, phase, i, write.address):
            outcome = REWRITTEN
        what = f"{subject.name}: {phase}, {name} of layer {layer}, bit {bit} of {write.value:#x}"
        needed = must(subject, name, layer, steps[i]) if outcome != FAULT else None
        yield Flip(what, outcome, name, needed, weighted=kinds[layer] is not LayerKind.PASSTHROUGH)


def again(image: Image, phase: str, index: int, address: int) -> bool:
    """Whether a register is written a second time after step `index` of a phase."""
    phases = ("init", "configure", "start")
    later = [
        getattr(image, phase)[index + 1 :],
        *(getattr(image, p) for p in phases[phases.index(phase) + 1 :]),
    ]
    return any(step.address == address for steps in later for step in steps if isinstance(step, Write))


def judge(subject: Subject, whole: Simulator, changed: Image, name: str, bit: int) -> str:
    """What becomes of a changed program."""
    try:
        simulator = replay(changed)
    except SimulationError:
        return FAULT
    if any(True for _ in find_mismatches(simulator, subject.image)):
        return ANSWER
    if (
        settings(simulator, subject.image) == settings(whole, subject.image)
        and IGNORED_BITS.get(name, 0) >> bit & 1
    ):
        return IGNORED
    return SAME if np.array_equal(simulator.data.data, whole.data.data) else ELSEWHERE


def settings(simulator: Simulator, image: Image) -> list[LayerSettings]:
    """What the layers' registers say to the simulator."""
    registers = simulator.registers
    last = registers.control[image.quadrants[0]]["LCNT"] & 0xFF
    return [
        decode(simulator.device, n, {q: registers.layers[q].get(n, {}) for q in image.quadrants})
        for n in range(last + 1)
    ]


def must(subject: Subject, name: str, layer: int, step: Step) -> bool | None:
    """Whether the answer changes, where a register's new value means another shift or activation.

    None where it means something else.

    Only programs of one quadrant are asked, and of networks whose layers are the hardware's.
    """
    if name not in ARITHMETIC or len(subject.image.quadrants) > 1 or layer >= len(subject.network.layers):
        return None
    assert isinstance(step, Write)
    described = subject.network.layers[layer]
    if subject.device.layer_register(0, name, layer) != step.address or described.weights is None:
        return None
    if name == "POST":
        shift = -(step.value >> 13 & 15) if step.value >> 17 & 1 else step.value >> 13 & 15
        other = replace(described, shift=shift)
    else:
        other = replace(
            described, activation=LayerActivation.RELU if step.value >> 9 & 1 else LayerActivation.NONE
        )
    if (other.shift, other.activation) == (
        described.shift,
        described.activation,
    ) or described.activation is LayerActivation.ABS:
        return None
    layers = [other if i == layer else each for i, each in enumerate(subject.network.layers)]
    changed = synthesize(
        replace(subject.network, layers=tuple(layers)), subject.options, subject.device
    ).image
    return changed.known_answer != subject.image.known_answer


def register(device: Chip, address: int) -> tuple[str, int]:
    """A register's name and layer; layer 0 for those that no layer has."""
    if address < device.control:
        return (
            "FIFO_CONTROL"
            if address == FIFO_CONTROL
            else "FAST_FIFO"
            if address // 0x100 == FAST_FIFO // 0x100
            else "AON",
            0,
        )
    offset = (address - device.control) % device.quadrant_pitch
    for number, name in enumerate(("CTL", "SRAM", "LCNT", "TEST")):
        if offset == 4 * number:
            return name, 0
    for name in (*device.registers, *device.stream_registers, "IFRM"):
        for layer in range(8 if name in device.stream_registers else device.layers):
            if device.control + offset == device.layer_register(0, name, layer):
                return name, layer
    raise ValueError(f"{address:#x} is no register")


def table(flips: Iterable[Flip]) -> str:
    """Counts of outcomes, and the share that was caught."""
    counts = Counter(flip.outcome for flip in flips)
    total = sum(counts.values())
    caught = sum(counts[c] for c in CAUGHT)
    return f"{total} flips, {caught} caught ({100 * caught / max(total, 1):.1f} %): " + ", ".join(
        f"{k} {v}" for k, v in counts.most_common()
    )


def subjects() -> Iterator[Subject]:
    """All networks beside the checkout."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))  # a script's own folder is not theirs
    from references import IMPOSSIBLE, references

    for reference in (r for r in references() if not r.conditional):
        if reference.name not in IMPOSSIBLE:
            yield Subject.of(reference.name, reference.network, reference.options, reference.device)


def main() -> None:
    """Print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=10, help="of weights and of registers, for each network")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="name every flip that changed nothing")
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    weights: list[Flip] = []
    registers: list[Flip] = []
    for subject in subjects():
        weights += weight_flips(subject, arguments.flips, random)
        registers += register_flips(subject, arguments.flips, random)
    if arguments.list:
        for flip in registers:
            if flip.outcome not in CAUGHT:
                sys.stdout.write(f"{flip.outcome}: {flip.what}\n")
    sys.stdout.write(f"weights: {table(weights)}\nregisters: {table(registers)}\n")


if __name__ == "__main__":
    main()
