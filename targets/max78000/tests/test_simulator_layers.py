"""Kinds of layers that the vendor's networks have seldom or never: the simulator must find what the layers' arithmetic says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from mace_frontend_ai8x.network import (
    INPUT,
    Eltwise,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Pool,
    Weights,
)
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import SimulationError, find_mismatches, replay
from mace_target_max78002.device import MAX78002

DEVICES = (MAX78000, MAX78002)
RANDOM = np.random.default_rng(11)
MANY, MANY_MAP = 100, (1 << 52) - 1
"""Channels of two passes, and the processors that they take."""


def weights(*shape: int, bits: int = 8) -> Weights:
    return Weights(RANDOM.integers(-(1 << bits - 1), 1 << bits - 1, shape), bits)


def convolution(channels: int, outputs: int, bits: int = 8, **changes: Any) -> Layer:
    """A 3x3 convolution of 8x7, or what the changes make of it."""
    kernel, groups = changes.setdefault("kernel", (3, 3)), changes.get("groups", 1)
    layer = Layer(
        "layer",
        Operation.CONV2D,
        (INPUT,),
        channels,
        (8, 7),
        outputs,
        weights(outputs, channels // groups, *kernel, bits=bits),
    )
    return replace(layer, output=True, pad=changes.pop("pad", (1, 1)), shift=4 - bits, **changes)


def transposed(channels: int, outputs: int, pad: int) -> Layer:
    return replace(
        convolution(channels, outputs),
        operation=Operation.CONV_TRANSPOSE2D,
        weights=weights(channels, outputs, 3, 3),
        dim=(4, 5),
        pad=(pad, pad),
    )


def one_dimensional(channels: int, outputs: int, length: int, pad: int, **changes: Any) -> Layer:
    layer = replace(
        convolution(channels, outputs),
        operation=Operation.CONV1D,
        weights=weights(outputs, channels, length),
        dim=(30, 1),
    )
    return replace(layer, kernel=(length, 1), pad=(pad, 0), **changes)


def linear(channels: int, outputs: int, bits: int) -> Layer:
    layer = convolution(channels, outputs, kernel=(1, 1), pad=(0, 0))
    return replace(
        layer,
        operation=Operation.LINEAR,
        dim=(3, 4),
        weights=weights(outputs, 12 * channels, bits=bits),
        flatten=True,
    )


def passthrough(channels: int, **changes: Any) -> Layer:
    return Layer("layer", Operation.PASSTHROUGH, (INPUT,), channels, (8, 7), channels, output=True, **changes)


def depthwise(channels: int, size: int) -> Layer:
    bias = RANDOM.integers(-50, 50, channels)
    return convolution(
        channels, channels, groups=channels, kernel=(size, size), pad=(size // 2,) * 2, bias=bias
    )


def cases() -> Iterator[tuple[str, Layer, LayerPlacement, tuple[Chip, ...]]]:
    """Name, layer, place and parts."""
    for first in (1, 2, 3):
        yield f"first-slot-{first}", convolution(5, 9), LayerPlacement(0x1F, 0x1FF << first), DEVICES
    yield "first-slot-two-passes", convolution(MANY, 9), LayerPlacement(MANY_MAP, 0x1FF << 1), DEVICES
    yield "slots-apart", convolution(5, 8), LayerPlacement(0x1F, 0xF0F), DEVICES
    yield "outputs-of-two-passes", convolution(5, MANY), LayerPlacement(0x1F, MANY_MAP, write_gap=2), DEVICES
    yield "wide", convolution(5, 9, wide=True), LayerPlacement(0x1F, 0x1FF, write_gap=1), DEVICES
    yield "wide-two-passes", convolution(5, MANY, wide=True), LayerPlacement(0x1F, MANY_MAP), DEVICES
    yield "absolute", convolution(5, 9, activation=LayerActivation.ABS), LayerPlacement(0x1F, 0x1FF), DEVICES
    yield "subsampled", convolution(5, 9, stride=2), LayerPlacement(0x1F, 0x1FF), DEVICES
    yield (
        "planes",
        convolution(3, 9, pool=Pool(False, (2, 2), 2)),
        LayerPlacement(0x10101, 0x1FF, chw=True),
        DEVICES,
    )
    for pad in (0, 1, 2):
        yield f"transposed-{pad}", transposed(5, 6, pad), LayerPlacement(0x1F, 0x3F), DEVICES
        yield (
            f"transposed-{pad}-two-passes",
            transposed(MANY, 6, pad),
            LayerPlacement(MANY_MAP, 0x3F),
            DEVICES,
        )
    yield "length-two-passes", one_dimensional(MANY, 20, 4, 0), LayerPlacement(MANY_MAP, 0xFFFFF), DEVICES
    yield (
        "length-average",
        one_dimensional(10, 20, 4, 1, pool=Pool(True, (3, 1), 2)),
        LayerPlacement(0x3FF, 0xFFFFF),
        DEVICES,
    )
    for bits in (1, 2, 4, 8):
        yield f"flattened-{bits}", linear(10, 36, bits), LayerPlacement(0x3FF, (1 << 36) - 1), DEVICES
        yield (
            f"flattened-two-passes-{bits}",
            linear(10, 70, bits),
            LayerPlacement(0x3FF, (1 << 36) - 1),
            DEVICES,
        )
    yield from eltwise_cases()
    yield from depthwise_cases()


def eltwise_cases() -> Iterator[tuple[str, Layer, LayerPlacement, tuple[Chip, ...]]]:
    for operation in Eltwise:
        for operands in (2, 3):
            for pool in (None, Pool(False, (2, 2), 2), Pool(True, (2, 2), 1)):
                for first in (True, False):
                    layer = convolution(
                        5, 9, eltwise=operation, operands=operands, pool_first=first, pool=pool
                    )
                    name = f"{operation.name.lower()}-{operands}-{'none' if pool is None else 'average' if pool.average else 'max'}-{first}"
                    yield name, layer, LayerPlacement(0x1F, 0x1FF), DEVICES
    for operands in (2, 3):
        layer = passthrough(MANY, eltwise=Eltwise.ADD, operands=operands)
        yield f"operands-two-passes-{operands}", layer, LayerPlacement(MANY_MAP, MANY_MAP), DEVICES
    yield (
        "pooled-only",
        passthrough(20, pool=Pool(True, (2, 2), 2)),
        LayerPlacement(0xFFFFF0, 0xFFFFF0, write_gap=1),
        DEVICES,
    )


def depthwise_cases() -> Iterator[tuple[str, Layer, LayerPlacement, tuple[Chip, ...]]]:
    maps = {
        "same": (20, 0xFFFFF, 0xFFFFF),
        "moved": (20, 0xFFFFF << 4, 0xFFFFF << 8),
        "two-passes": (MANY, MANY_MAP, MANY_MAP),
    }
    maps |= {"moved-two-passes": (MANY, MANY_MAP, MANY_MAP << 12), "moved-down": (20, 0xFFFFF << 8, 0xFFFFF)}
    for name, (channels, processors, slots) in maps.items():
        for size in (1, 3):
            yield (
                f"depthwise-{name}-{size}",
                depthwise(channels, size),
                LayerPlacement(processors, slots),
                (MAX78002,),
            )
    for bits in (1, 2, 4):
        layer = convolution(MANY, MANY, bits, groups=MANY)
        yield f"depthwise-{bits}", layer, LayerPlacement(MANY_MAP, MANY_MAP), (MAX78002,)


CASES = [
    (f"{name}-{device.name}", layer, place, device)
    for name, layer, place, devices in cases()
    for device in devices
]


def program(
    layers: tuple[Layer, ...], places: tuple[LayerPlacement, ...], device: Chip, options: Options
) -> Image:
    """The program of these layers, with a random sample."""
    first = layers[0]
    shape = (first.channels * first.operands, *(first.dim if not first.one_dimensional else first.dim[:1]))
    return synthesize(
        Network("layers", layers, places, RANDOM.integers(-128, 128, shape)), options, device
    ).image


@pytest.mark.parametrize(("layer", "place", "device"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_layer(layer: Layer, place: LayerPlacement, device: Chip) -> None:
    image = program((layer,), (replace(place, out_offset=0x4000),), device, Options())
    assert list(find_mismatches(replay(image), image)) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("documented", [False, True])
@pytest.mark.parametrize("rounding", [False, True])
def test_averages(device: Chip, documented: bool, rounding: bool) -> None:
    options = Options(avg_pool_rounding=rounding, documented=documented)
    for layer in (
        convolution(5, 9, pool=Pool(True, (2, 3), 2)),
        one_dimensional(5, 9, 3, 1, pool=Pool(True, (2, 1), 2)),
    ):
        image = program((layer,), (LayerPlacement(0x1F, 0x1FF, out_offset=0x4000),), device, options)
        assert list(find_mismatches(replay(image, documented), image)) == []


def pair(streaming: bool, planar: bool, biased: bool) -> tuple[tuple[Layer, ...], tuple[LayerPlacement, ...]]:
    """Two convolutions, the first of which may stream from a FIFO."""
    bias = RANDOM.integers(-99, 99, 8) if biased else None
    first = replace(convolution(3, 8, bias=bias), dim=(20, 21), output=False)
    second = replace(convolution(8, 4, pool=Pool(False, (2, 2), 2)), dim=(20, 21), inputs=(0,))
    processors = 0x100010001 if planar else 0x7
    return (first, second), (
        LayerPlacement(processors, 0xFF, out_offset=0x1000, chw=planar, streaming=streaming),
        LayerPlacement(0xFF, 0xF, in_offset=0x1000, out_offset=0x3000, streaming=streaming),
    )


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_fifos(device: Chip, planar: bool, streaming: bool) -> None:
    image = program(*pair(streaming, planar, biased=not streaming or not planar), device, Options(fifo=True))
    assert list(find_mismatches(replay(image), image)) == []


@pytest.mark.parametrize("kernels", [((3, 3), (1, 1)), ((1, 1), (3, 3)), ((1, 1), (1, 1))], ids=str)
def test_streams_with_kernels_of_one_position(kernels: tuple[tuple[int, int], ...]) -> None:
    """Such a layer needs one word of row memory, wherever it streams."""
    layers, places = pair(streaming=True, planar=False, biased=False)
    small = [
        layer
        if kernel == (3, 3)
        else replace(
            layer, kernel=kernel, pad=(0, 0), weights=weights(layer.out_channels, layer.channels, 1, 1)
        )
        for layer, kernel in zip(layers, kernels, strict=True)
    ]
    image = program(tuple(small), places, MAX78000, Options(fifo=True))
    assert list(find_mismatches(replay(image), image)) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_streams_from_data_memory(device: Chip) -> None:
    image = program(*pair(streaming=True, planar=False, biased=False), device, Options())
    assert list(find_mismatches(replay(image), image)) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_fast_fifo(device: Chip) -> None:
    image = program(
        *pair(streaming=True, planar=False, biased=False), device, Options(fast_fifo=True, riscv=True)
    )
    assert list(find_mismatches(replay(image), image)) == []


def test_linked_layers() -> None:
    image = program(*pair(streaming=False, planar=False, biased=True), MAX78002, Options(link_layer=True))
    assert list(find_mismatches(replay(image), image)) == []
    jump = MAX78002.layer_register(0, "NXTLYR", 0)
    circle = tuple(
        replace(s, value=0x80) if isinstance(s, Write) and s.address == jump else s for s in image.configure
    )
    with pytest.raises(SimulationError, match="layers follow each other without end"):
        replay(replace(image, configure=circle))


def changed(image: Image, name: str, layer: int, value: Callable[[int], int]) -> Image:
    """The same program with another value in a layer's register of quadrant 0."""
    address = image.device.layer_register(0, name, layer)
    steps = (
        replace(s, value=value(s.value)) if isinstance(s, Write) and s.address == address else s
        for s in image.configure
    )
    return replace(image, configure=tuple(steps))


@pytest.mark.parametrize(
    ("name", "layer", "value", "message"),
    [
        ("STREAM1", 0, lambda _: 0x4000, "which never come"),
        ("STREAM1", 1, lambda v: v - 3, "its first window is there after"),
        ("FMAX", 1, lambda _: 20, "wraps after 20 words"),
        ("STREAM2", 1, lambda v: v ^ 2, "3 passes of earlier layers, expected 1$"),
        ("TPTR", 1, lambda v: v + 0x10001, "row memory from word"),
        ("RPTR_BASE", 1, lambda v: v + 1, "the layer before writes"),
        ("IFRM", 0, lambda _: 0, "words of the input's frame"),
        ("IFRM", 0, lambda v: v + 1, "FIFO 0 had 420 of 421 words"),
        ("WPTR_BASE", 1, lambda _: 0x410, "are written while others use"),
    ],
)
def test_streams_that_cannot_work(name: str, layer: int, value: Callable[[int], int], message: str) -> None:
    image = program(*pair(streaming=True, planar=False, biased=False), MAX78000, Options(fifo=True))
    with pytest.raises(SimulationError, match=message):
        replay(changed(image, name, layer, value))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_input_that_is_overwritten_too_early(device: Chip) -> None:
    run = partial(program, device=device, options=Options(overlap_data=True))
    layer = convolution(4, 4)
    behind = run(layers=(layer,), places=(LayerPlacement(0xF, 0xF, in_offset=0x40, out_offset=0x40),))
    assert list(find_mismatches(replay(behind), behind)) == []
    ahead = run(layers=(layer,), places=(LayerPlacement(0xF, 0xF, in_offset=0x40, out_offset=0x80),))
    assert list(find_mismatches(replay(ahead), ahead)) != []
    one_word_ahead = run(
        layers=(passthrough(4),), places=(LayerPlacement(0xF, 0xF, in_offset=0x40, out_offset=0x44),)
    )
    with pytest.raises(SimulationError, match="word 17 of its own input is overwritten before it is read"):
        replay(one_word_ahead)


def test_two_channels_in_one_place() -> None:
    image = program(
        (passthrough(20),),
        (LayerPlacement(0xFFFFF << 4, 0xFFFFF << 8, out_offset=0x4000),),
        MAX78000,
        Options(),
    )
    with pytest.raises(SimulationError, match="two channels are written to the same place"):
        replay(image)
