"""What the accelerator cannot do: each limit by a layer that breaks it, and the mistakes that users make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from references import MODELS, Reference, references

from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import load_checkpoint
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Activation,
    Buffer,
    Eltwise,
    Layer,
    Network,
    Operation,
    Place,
    Pool,
    Unload,
    Weights,
    processors_needed,
)
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Device
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

MNIST = MODELS / "mnist"


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("reference", references(), ids=lambda r: r.name)
def test_the_makers_networks_are_legal(reference: Reference) -> None:
    assert find_faults(reference.network, reference.device, reference.options) == []


# The mistakes that users make, each in a description that is right otherwise

MISTAKES: Mapping[str, tuple[tuple[str, str, int], str]] = {
    "a pad": (
        ("pad: 2", "pad: 1", 0),
        "layer1: pad: found 1, expected 2, with which layer4 gets the 192 values that its weights have instead of 12 channels of 3x3 = 108;"
        " write pad: 2 if the model has it (so would pad: 2 in layer2)",
    ),
    "a pool beyond the limit": (
        ("max_pool: 2", "max_pool: 20", 0),
        "layer1: max_pool: found 20x20, expected 1 to 16 in each direction; pool in several layers",
    ),
    "processors of 59 bits": (
        ("0xfffffffffffffff0", "0x7ffffffffffffff0", 1),
        "layer2: processors: found 59 bits in 0x7ffffffffffffff0, expected 60 bits for 60 channels;"
        " write processors: 0xfffffffffffffff0 or other processors, as many as that",
    ),
    "output over the input": (
        ("out_offset: 0\n", "out_offset: 0x2000\n", 0),
        "layer1: out_offset: found its output from 0x2000 to 0x2400, expected memory outside its own input,"
        " which lies from 0x2000 to 0x2c40; write out_offset: 0x0000, which is free",
    ),
    "weights wider than quantization": (
        ("op: conv2d", "op: conv2d\n    quantization: 4", 1),
        "layer1: quantization: found weights from -128 to 127, expected 4: weights from -8 to 7;"
        " write quantization: 8, or quantize the weights to 4 bits",
    ),
    "a misaligned offset": (
        ("out_offset: 0x2000", "out_offset: 0x2002", 0),
        "layer0: out_offset: found 0x2002, expected a multiple of 4; write out_offset: 0x2000 or 0x2004",
    ),
    "a pool's stride": (
        ("pool_stride: 2", "pool_stride: 1", 0),
        "layer1: pool_stride: found 1, expected 2, with which layer4 gets the 192 values that its weights have"
        " instead of 12 channels of 7x7 = 588; write pool_stride: 2 if the model has it"
        " (so would pool_stride: 4 in layer3; max_pool: 3, pool_stride: 3 in layer2)",
    ),
    "a kernel": (
        ("op: conv2d", "op: conv2d\n    kernel_size: 1x1", 2),
        "layer2: kernel_size: found 1x1, expected 3x3, as the weights have; write kernel_size: 3x3, or correct the order of layers",
    ),
    "two channels for one": (
        ("0x0000000000000001", "0x0000000000000003", 0),
        "layer0: processors: found 2 bits in 0x0000000000000003, expected 1 bit for 1 channel;"
        " write processors: 0x0000000000000001 or other processors, as many as that",
    ),
    "another operation": (
        ("op: conv2d", "op: conv1d", 2),
        "layer2: operation: found 4: [56, 60, 3, 3], expected weights of 3 axes for conv1d;"
        " check that layers and parameters have the same order",
    ),
}


def mnist(folder: Path, *changes: tuple[str, str, int]) -> Network:
    """The description of the digits' network with other text at the n-th place where the old one stands."""
    (reference,) = (r for r in references() if r.name == "mnist-MAX78000")
    text = (MNIST / reference.content["network"]).read_text()
    for old, new, nth in changes:
        parts = text.split(old)
        text = old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])
    path = folder / "mnist.yaml"
    path.write_text(text)
    checkpoint = load_checkpoint(MNIST / reference.content["checkpoint"])
    return read_description(path, checkpoint, np.load(MNIST / reference.content["sample"]), Options())


@pytest.mark.skipif(not MNIST.is_dir(), reason=f"no networks in {MODELS}; MACE_MODELS names another folder")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_users_mistake_is_told_once_and_at_its_place(mistake: str, tmp_path: Path) -> None:
    change, expected = MISTAKES[mistake]
    network = mnist(tmp_path, change)
    assert [str(fault) for fault in find_faults(network, MAX78000, Options())] == [expected]


@pytest.mark.skipif(not MNIST.is_dir(), reason=f"no networks in {MODELS}; MACE_MODELS names another folder")
def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    names = ("a pad", "processors of 59 bits", "weights wider than quantization", "a misaligned offset")
    network = mnist(tmp_path, *(MISTAKES[name][0] for name in names))
    assert {str(fault) for fault in find_faults(network, MAX78000, Options())} == {
        MISTAKES[name][1] for name in names
    }


# Limits, each broken by one small network


def mask(channels: int, first: int = 0) -> int:
    return (1 << processors_needed(channels)) - 1 << first


def layer(operation: Operation, shape: tuple[int, ...], out: int | None = None, **changes: Any) -> Layer:
    """A layer that is legal but for its changes, on an input of [channels, rows, columns] or [channels, length]."""
    channels, rows, columns = (*shape, 1)[:3]
    out = channels if out is None else out
    kernel = {Operation.CONV2D: (3, 3), Operation.CONV_TRANSPOSE2D: (3, 3), Operation.CONV1D: (3, 1)}.get(
        operation, (1, 1)
    )
    kernel = changes.pop("kernel", kernel)
    pad = {Operation.CONV2D: (1, 1), Operation.CONV_TRANSPOSE2D: (1, 1)}.get(operation, (0, 0))
    given: dict[str, Any] = {
        "inputs": (INPUT,),
        "channels": channels,
        "dim": (rows, columns),
        "out_channels": out,
        "pad": pad,
        **changes,
    }
    made = Layer("one", operation, kernel=kernel, **given)
    if operation is Operation.PASSTHROUGH or "weights" in changes:
        return made
    return replace(made, weights=Weights(np.ones(weights_shape(made), np.int64)))


def weights_shape(made: Layer) -> tuple[int, ...]:
    inputs = made.channels // made.groups
    if made.operation is Operation.LINEAR:
        return made.out_channels, made.channels * (made.dim[0] * made.dim[1] if made.flatten else 1)
    if made.operation is Operation.CONV1D:
        return made.out_channels, inputs, made.kernel[0]
    ends = (
        (made.channels, made.out_channels)
        if made.operation is Operation.CONV_TRANSPOSE2D
        else (made.out_channels, inputs)
    )
    return *ends, *made.kernel


def network(
    *layers: Layer, sample: Array | None = None, places: tuple[Place, ...] = (), **changes: Any
) -> Network:
    """Layers one after the other, each writing behind what it reads."""
    named = (
        [
            replace(made, name=name)
            for made, name in zip(layers, ("one", "two", "three", "four"), strict=False)
        ]
        if len(layers) < 5
        else layers
    )
    if sample is None:
        first = layers[0]
        sample = np.zeros((first.channels * first.operands, *first.dim), np.int64)
    if not places:
        begin = (0 if made.inputs == (INPUT,) else 0x4000 * (i % 2) for i, made in enumerate(layers))
        places = tuple(
            place(made, offset, 0x4000 * (1 - i % 2))
            for i, (made, offset) in enumerate(zip(layers, begin, strict=True))
        )
    return Network("net", tuple(named), places, sample, **changes)


def place(made: Layer, in_offset: int = 0, out_offset: int = 0x4000, **changes: Any) -> Place:
    return replace(Place(mask(made.channels), mask(made.out_channels), in_offset, out_offset), **changes)


def told(given: Network, device: Device = MAX78000, **options: Any) -> list[str]:
    """Layer and key of each fault."""
    return [f"{fault.layer}: {fault.key}" for fault in find_faults(given, device, Options(**options))]


C1, C2, T2, FC, NO = (
    Operation.CONV1D,
    Operation.CONV2D,
    Operation.CONV_TRANSPOSE2D,
    Operation.LINEAR,
    Operation.PASSTHROUGH,
)


@pytest.mark.parametrize(
    ("made", "device", "expected"),
    [
        (layer(C2, (3, 8, 8)), MAX78000, None),
        (layer(C2, (3, 8, 8), kernel=(1, 1), pad=(0, 0)), MAX78000, None),
        (layer(C2, (3, 8, 8), kernel=(5, 5)), MAX78000, "kernel_size"),
        (layer(C2, (3, 8, 8), kernel=(2, 2)), MAX78002, "kernel_size"),
        (layer(C2, (3, 8, 8), kernel=(1, 3)), MAX78000, "kernel_size"),
        (layer(C2, (3, 8, 8), pad=(3, 3)), MAX78000, "pad"),
        (layer(C2, (3, 2, 2), pad=(0, 0)), MAX78000, "pad"),
        (layer(C2, (3, 8, 8), dilation=(2, 2)), MAX78002, "dilation"),
        (layer(C2, (4, 8, 8), groups=4), MAX78000, "groups"),
        (layer(C2, (4, 8, 8), groups=4), MAX78002, None),
        (layer(C2, (4, 8, 8), groups=2), MAX78002, "groups"),
        (layer(T2, (4, 8, 8), 4, groups=4), MAX78002, "groups"),
        (layer(T2, (3, 8, 8)), MAX78000, None),
        (layer(T2, (3, 8, 8), kernel=(1, 1), pad=(0, 0)), MAX78000, "kernel_size"),
        (layer(C1, (3, 30), kernel=(9, 1)), MAX78000, None),
        (layer(C1, (3, 30), kernel=(10, 1)), MAX78000, "kernel_size"),
        (layer(C1, (3, 30), pad=(4, 0)), MAX78000, "pad"),
        (layer(C1, (80, 30), 8, pad=(1, 0)), MAX78000, None),
        (layer(C1, (80, 30), 8, pad=(1, 0)), MAX78002, "pad"),
        (layer(C1, (3, 100), dilation=(20, 1)), MAX78000, None),
        (layer(C1, (3, 100), dilation=(20, 1), pad=(1, 0)), MAX78000, "pad"),
        (layer(C1, (3, 100), dilation=(20, 1), pool=Pool(False, (2, 1), 1)), MAX78000, "dilation"),
        (layer(C1, (3, 100), kernel=(4, 1), dilation=(2, 1)), MAX78000, None),
        (layer(C1, (3, 100), kernel=(4, 1), dilation=(3, 1)), MAX78000, "dilation"),
        (layer(C1, (3, 4, 4)), MAX78000, "in_dim"),
        (layer(C1, (3, 1025)), MAX78000, "in_dim"),
        (layer(C1, (3, 1024)), MAX78002, None),
        (layer(C2, (3, 8, 8), pool=Pool(False, (17, 1), 1)), MAX78000, "max_pool"),
        (layer(C2, (3, 8, 8), pool=Pool(True, (9, 9), 1)), MAX78000, "avg_pool"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (2, 2), 17)), MAX78000, "pool_stride"),
        (layer(C2, (3, 40, 40), stride=17), MAX78000, "pool_stride"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (2, 1))), MAX78000, "pool_dilation"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (2, 1))), MAX78002, None),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (8, 1))), MAX78002, "pool_dilation"),
        (layer(NO, (80, 8, 8), pool=Pool(False, (2, 2), 2)), MAX78000, "max_pool"),
        (layer(NO, (80, 2, 2), pool=Pool(False, (2, 2), 2)), MAX78000, None),
        (layer(NO, (80, 8, 8), pool=Pool(False, (2, 2), 2)), MAX78002, None),
        (layer(NO, (4, 8, 8), wide=True), MAX78000, "output_width"),
        (layer(NO, (4, 8, 8), activation=Activation.RELU), MAX78000, "activate"),
        (layer(C2, (4, 8, 8), activation=Activation.ABS, wide=True), MAX78000, "activate"),
        (layer(FC, (4, 16, 16), 5, flatten=True), MAX78000, None),
        (layer(FC, (4, 17, 16), 5, flatten=True), MAX78000, "flatten"),
        (layer(FC, (80, 16, 16), 5, flatten=True), MAX78000, "flatten"),
        (
            layer(
                FC,
                (4, 4, 4),
                5,
                flatten=True,
                pool=Pool(False, (2, 2), 2),
                weights=Weights(np.ones((5, 16), int)),
            ),
            MAX78000,
            "flatten",
        ),
        (layer(C2, (4, 2, 2), 4, flatten=True), MAX78000, "flatten"),
        (layer(C2, (1025, 1, 1), 4), MAX78000, "in_channels"),
        (layer(C2, (4, 1, 1), 1025), MAX78000, "out_channels"),
        (layer(C2, (4, 8, 8), shift=16), MAX78000, "output_shift"),
        (layer(C2, (4, 8, 8), shift=16, wide=True), MAX78000, None),
        (layer(C2, (4, 8, 8), weights=None), MAX78000, "operation"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((4, 5, 3, 3), int))), MAX78000, "in_channels"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((5, 4, 3, 3), int))), MAX78000, "out_channels"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((4, 4, 1, 1), int))), MAX78000, "kernel_size"),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 2), 2)), MAX78000, "quantization"),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 3)), MAX78000, "quantization"),
        (
            layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 1, binary=True)),
            MAX78000,
            "quantization",
        ),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 1, binary=True)), MAX78002, None),
        (
            layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 0), 1, binary=True)),
            MAX78002,
            "quantization",
        ),
        (layer(C2, (4, 8, 8), bias=np.zeros(3)), MAX78000, "bias"),
        (layer(C2, (4, 8, 8), bias=np.full(4, 128)), MAX78000, "bias"),
        (layer(C2, (4, 1, 1), 513, bias=np.full(513, 1)), MAX78000, "bias"),
        (layer(C2, (4, 1, 1), 513, bias=np.full(513, 1)), MAX78002, None),
    ],
)
def test_one_layer(made: Layer, device: Device, expected: str | None) -> None:
    assert told(network(made), device) == ([f"one: {expected}"] if expected else [])


def eltwise(shape: tuple[int, ...], operation: Operation = NO, **changes: Any) -> Layer:
    return layer(operation, shape, **{"eltwise": Eltwise.ADD, "operands": 2, **changes})


@pytest.mark.parametrize(
    ("made", "device", "expected"),
    [
        (eltwise((64, 4, 4)), MAX78000, None),
        (eltwise((64, 4, 4), C2), MAX78000, None),
        (eltwise((128, 4, 4), C2, out=64), MAX78000, None),
        (eltwise((192, 4, 4), C2, out=64), MAX78000, "eltwise"),
        (eltwise((128, 4, 4), operands=3), MAX78000, None),
        (eltwise((128, 2, 2), operands=3, pool=Pool(False, (2, 2), 2)), MAX78000, "eltwise"),
        (eltwise((192, 4, 4), C2, out=64), MAX78002, None),
        (eltwise((192, 4, 4), C2, out=64, bias=np.ones(64)), MAX78002, "eltwise"),
        (eltwise((4, 4, 4), operands=17), MAX78000, "operands"),
        (eltwise((4, 4, 4), FC), MAX78000, "eltwise"),
    ],
)
def test_element_wise_operations(made: Layer, device: Device, expected: str | None) -> None:
    assert told(network(made), device) == ([f"one: {expected}"] if expected else [])


def test_the_input_must_be_what_the_first_layer_reads() -> None:
    conv = layer(C2, (4, 8, 8))
    assert told(network(conv, sample=np.zeros((3, 8, 8)))) == ["one: in_channels"]
    assert told(network(conv, sample=np.zeros((4, 8, 9)))) == ["one: in_dim"]
    assert told(network(eltwise((4, 8, 8)), sample=np.zeros((4, 8, 8)))) == ["one: in_channels"]


def test_inputs_must_fit_together() -> None:
    a, b = layer(C2, (4, 8, 8), 6), layer(C2, (4, 8, 8), 4, pad=(0, 0))
    joined = layer(NO, (10, 8, 8), inputs=(0, 1))
    assert told(network(a, b, joined)) == ["three: in_sequences", "three: in_sequences"]
    summed = eltwise((6, 8, 8), inputs=(0, 1))
    assert told(network(a, b, summed)) == ["three: in_sequences"]
    assert told(network(layer(C2, (4, 8, 8), wide=True), layer(C2, (4, 8, 8), inputs=(0,)))) == [
        "two: in_sequences"
    ]


# Processors


@pytest.mark.parametrize(
    ("made", "changes", "device", "expected"),
    [
        (layer(C2, (4, 4, 4)), {"processors": 0x1F}, MAX78000, ["one: processors"]),
        (layer(C2, (4, 4, 4)), {"output_processors": 0x7}, MAX78000, ["one: output_processors"]),
        (layer(C2, (100, 4, 4), 4), {"processors": mask(100) << 4}, MAX78000, []),
        (layer(C2, (100, 4, 4), 4), {"processors": mask(100) << 1}, MAX78000, ["one: processors"]),
        (layer(C2, (100, 4, 4), 4), {"processors": (1 << 50) - 1}, MAX78000, ["one: processors"]),
        (layer(NO, (4, 4, 4)), {"output_processors": 0xF0}, MAX78000, []),
        (layer(NO, (5, 4, 4)), {"processors": 0x11111, "output_processors": 0x1000F}, MAX78000, []),
        (layer(NO, (4, 4, 4)), {"output_processors": 0x33}, MAX78000, ["one: output_processors"]),
        (
            layer(NO, (4, 4, 4)),
            {"processors": 0x33, "output_processors": 0x33},
            MAX78000,
            ["one: output_processors"],
        ),
        (layer(NO, (4, 4, 4)), {"output_processors": 0xF << 16}, MAX78000, ["one: output_processors"]),
        (layer(C2, (4, 4, 4), groups=4), {"output_processors": 0x1E0}, MAX78002, ["one: output_processors"]),
        (layer(C2, (2, 4, 4)), {"chw": True, "processors": 0x11}, MAX78000, []),
        (layer(C2, (2, 4, 4)), {"chw": True}, MAX78000, ["one: processors"]),
        (layer(C2, (17, 4, 4)), {"chw": True}, MAX78000, ["one: data_format"]),
        (layer(C2, (4, 4, 4)), {"bias_groups": (2,)}, MAX78000, ["one: bias_group"]),
        (
            layer(C2, (4, 4, 4)),
            {"processors": 0xF << 16, "output_processors": 0xF << 16},
            MAX78000,
            [": processors"],
        ),
        (layer(C2, (4, 4, 4)), {"read_gap": 1}, MAX78000, ["one: read_gap"]),
        (layer(C2, (80, 4, 4)), {"read_gap": 1}, MAX78002, ["one: read_gap"]),
        (layer(C2, (4, 4, 4)), {"next": 1}, MAX78000, ["one: next_sequence"]),
    ],
)
def test_places(made: Layer, changes: dict[str, Any], device: Device, expected: list[str]) -> None:
    assert told(network(made, places=(place(made, **changes),)), device) == expected


@pytest.mark.parametrize(
    ("channels", "changes", "options", "expected"),
    [
        (16, {"processors": 0x000F_000F_000F_000F}, {"fifo": True}, []),
        (4, {"processors": 0xF0}, {"fifo": True}, ["one: processors"]),
        (4, {}, {"fast_fifo": True, "riscv": True}, []),
        (4, {}, {"fast_fifo": True}, ["one: fast_fifo"]),
        (4, {"processors": 0xF0000}, {"fast_fifo": True, "riscv": True}, ["one: processors"]),
        (2, {"processors": 0x10001}, {"fast_fifo": True, "fast_fifo_quad": True, "riscv": True}, []),
    ],
)
def test_fifos(channels: int, changes: dict[str, Any], options: dict[str, Any], expected: list[str]) -> None:
    made = layer(C2, (channels, 4, 4))
    assert told(network(made, places=(place(made, **changes),)), **options) == expected


# Data memory


@pytest.mark.parametrize(
    ("made", "changes", "expected"),
    [
        (layer(C2, (4, 90, 91), 4), {"in_offset": 0, "out_offset": 0, "output_processors": 0xF0}, []),
        (layer(C2, (4, 90, 92), 4), {}, ["one: in_offset", "one: out_offset"]),
        (layer(C2, (4, 8, 8), 4), {"in_offset": 0x7F04}, ["one: in_offset"]),
        (layer(C2, (4, 8, 8), 4), {"out_offset": 0x7F00}, []),
        (layer(C2, (4, 8, 8), 4), {"out_offset": 0x7F04}, ["one: out_offset"]),
        (layer(C2, (4, 8, 8), 80), {"out_offset": 0x7E04}, ["one: out_offset"]),
        (layer(C2, (4, 8, 8), 4, wide=True), {"out_offset": 0x7C04}, ["one: out_offset"]),
        (layer(C2, (4, 8, 8), 4), {"out_offset": 0x7F00, "write_gap": 1}, ["one: out_offset"]),
        (
            layer(C2, (4, 8, 8), 4),
            {"in_offset": 2, "out_offset": 0x4001},
            ["one: in_offset", "one: out_offset"],
        ),
        (layer(C1, (3, 100), dilation=(20, 1)), {"in_offset": 0x200, "out_offset": 76}, ["one: out_offset"]),
        (layer(C2, (4, 8, 8), 4), {"in_offset": 0x100, "out_offset": 0x1FC}, ["one: out_offset"]),
        (layer(C2, (4, 8, 8), 4), {"in_offset": 0x100, "out_offset": 0x200}, []),
    ],
)
def test_offsets(made: Layer, changes: dict[str, Any], expected: list[str]) -> None:
    assert told(network(made, places=(place(made, **changes),))) == expected


def test_output_over_the_own_input_may_be_allowed() -> None:
    made = layer(C2, (4, 8, 8))
    given = network(made, places=(place(made, 0x100, 0x80),))
    assert told(given) == ["one: out_offset"]
    assert told(given, overlap_data=True) == []


def chain(*offsets: tuple[int, int], inputs: tuple[tuple[int, ...], ...], **changes: Any) -> Network:
    """Convolutions of 4 channels of 8x8."""
    layers = [layer(C2, (4, 8, 8), inputs=i) for i in inputs]
    return network(
        *layers, places=tuple(place(made, *o) for made, o in zip(layers, offsets, strict=True)), **changes
    )


def test_data_that_a_later_layer_reads_are_kept() -> None:
    given = chain(
        (0, 0x100), (0x100, 0x200), (0x200, 0x100), (0x100, 0x400), inputs=((INPUT,), (0,), (1,), (0,))
    )
    (fault,) = find_faults(given, MAX78000, Options())
    assert (fault.layer, fault.key) == ("three", "out_offset")
    assert fault.expected == "memory without data of one, which four reads later"
    assert fault.remedy == "write out_offset: 0x0000, which is free"
    assert told(given, overlap_data=True) == ["three: out_offset"]


def test_results_are_kept() -> None:
    given = chain((0, 0x100), (0x100, 0x200), (0x200, 0x100), inputs=((INPUT,), (0,), (1,)))
    assert told(given) == []
    result = replace(given, layers=(replace(given.layers[0], output=True), *given.layers[1:]))
    (fault,) = find_faults(result, MAX78000, Options())
    assert (fault.layer, fault.expected) == ("three", "memory without data of one, which are results")
    assert told(result, overlap_data=True) == []


def test_layers_read_where_data_were_written() -> None:
    given = chain((0, 0x100), (0x104, 0x400), inputs=((INPUT,), (0,)))
    (fault,) = find_faults(given, MAX78000, Options())
    assert (
        str(fault)
        == "two: in_offset: found 0x0104, expected 0x0100, where one is read from; write in_offset: 0x0100"
    )
    moved = replace(given, places=(given.places[0], place(given.layers[1], 0x100, 0x400, processors=0xF0)))
    assert told(moved) == ["two: processors"]


def test_operands_lie_word_by_word_in_turn() -> None:
    a, b = layer(C2, (4, 8, 8)), layer(C2, (4, 8, 8))
    total = eltwise((4, 8, 8), inputs=(0, 1))
    right = (place(a, 0, 0x200, write_gap=1), place(b, 0, 0x204, write_gap=1), place(total, 0x200, 0x600))
    assert told(network(a, b, total, places=right)) == []
    no_gap = (replace(right[0], write_gap=0), *right[1:])
    (fault,) = find_faults(network(a, b, total, places=no_gap), MAX78000, Options())
    assert (fault.layer, fault.key, fault.remedy) == ("three", "in_sequences", "write write_gap: 1 in one")
    (fault,) = find_faults(network(a, b, replace(total, inputs=(1, 0)), places=right), MAX78000, Options())[
        :1
    ]
    assert fault.remedy == "write out_offset: 0x0200 in two, or correct in_offset"


def test_copies_may_be_read_where_the_original_lies() -> None:
    """The maker's residual example: the layer after the one that reformats reads what that one read."""
    first, gap, main = (
        layer(C2, (4, 8, 8)),
        layer(NO, (4, 8, 8), inputs=(0,)),
        layer(C2, (4, 8, 8), inputs=(1,)),
    )
    total = eltwise((4, 8, 8), C2, inputs=(1, 2))
    places = [
        place(first, 0x1000, 0),
        place(gap, 0, 0x2000, write_gap=1),
        place(main, 0, 0x2004, write_gap=1),
        place(total, 0x2000, 0x3000),
    ]
    assert told(network(first, gap, main, total, places=tuple(places))) == []
    pooled = replace(gap, pool=Pool(False, (1, 1), 1))
    assert told(network(first, pooled, main, total, places=tuple(places))) == ["three: in_sequences"]
    places[1] = replace(places[1], out_offset=0x10)
    assert told(network(first, gap, main, total, places=tuple(places)))[0] == "four: in_sequences"


def test_an_original_that_is_read_is_kept() -> None:
    first, copy, other = (
        layer(C2, (4, 8, 8)),
        layer(NO, (4, 8, 8), inputs=(0,)),
        layer(NO, (4, 8, 8), inputs=(0,)),
    )
    last = layer(C2, (4, 8, 8), inputs=(1,))
    places = (
        place(first, 0x1000, 0),
        place(copy, 0, 0x2000),
        place(other, 0x2000, 0),
        place(last, 0, 0x3000),
    )
    other = replace(other, inputs=(1,))
    (fault,) = find_faults(network(first, copy, other, last, places=places), MAX78000, Options())
    assert (fault.layer, fault.expected) == ("three", "memory without data of one, which four reads later")


def test_later_layers_read_the_networks_input_where_it_lies() -> None:
    a, b = layer(C2, (4, 8, 8)), layer(C2, (4, 8, 8))
    assert told(network(a, b, places=(place(a, 0, 0x400), place(b, 0, 0x800)))) == []
    assert told(network(a, b, places=(place(a, 0, 0x400), place(b, 0x20, 0x800)))) == ["two: in_offset"]
    assert told(network(a, b, places=(place(a, 0, 0x400), place(b, 0, 0x800))), fifo=True) == [
        "two: in_sequences"
    ]


def test_joined_data_lie_side_by_side_or_in_passes() -> None:
    a, b = layer(C2, (4, 8, 8), 64), layer(C2, (4, 8, 8), 64)
    joined = layer(C2, (128, 8, 8), 4, inputs=(0, 1))
    places = (place(a, 0, 0x200, write_gap=1), place(b, 0, 0x204, write_gap=1), place(joined, 0x200, 0x600))
    assert told(network(a, b, joined, places=places)) == []
    c, d = layer(C2, (4, 8, 8)), layer(C2, (4, 8, 8))
    side = layer(C2, (8, 8, 8), 4, inputs=(0, 1))
    places = (place(c, 0, 0x200), place(d, 0, 0x200, output_processors=0xF0), place(side, 0x200, 0x600))
    assert told(network(c, d, side, places=places)) == []
    assert told(network(c, d, replace(side, inputs=(1, 0)), places=places)) == [
        "three: processors",
        "three: processors",
    ]


def test_cropping_moves_the_offset() -> None:
    first, second = layer(C2, (4, 8, 8)), layer(C2, (4, 5, 8), inputs=(0,))
    places = (place(first, 0, 0x200), place(second, 0x200 + 4 * 8, 0x600, in_crop=(1, 2)))
    assert told(network(first, second, places=places)) == []
    assert told(network(first, second, places=(places[0], replace(places[1], in_offset=0x200)))) == [
        "two: in_offset"
    ]
    assert told(network(first, second, places=(places[0], replace(places[1], in_crop=(1, 1))))) == [
        "two: in_crop"
    ]


def test_buffers_are_read_inside_and_written_by_their_own_layers_only() -> None:
    buffer = Buffer("past", 0xF, 4, (16, 1), 0x400)
    read = layer(C1, (4, 16), inputs=(BUFFER,))
    other = layer(C2, (4, 4, 4), 5)
    sample = np.zeros((4, 4, 4))
    right = (place(other, 0, 0x100), place(read, 0x400, 0x600))
    assert told(network(other, read, sample=sample, places=right, buffers=(buffer,))) == []
    assert told(
        network(other, read, sample=sample, places=(right[0], place(read, 0x404, 0x600)), buffers=(buffer,))
    ) == ["two: in_offset"]
    over = (place(other, 0, 0x3F0), right[1])
    assert told(network(other, read, sample=sample, places=over, buffers=(buffer,))) == ["one: out_offset"]


def test_unloaded_blocks_lie_in_memory() -> None:
    made = layer(C2, (4, 8, 8))
    assert told(network(made, unloads=(Unload(0xF, 4, (8, 8), 0x7F00), Unload(0xF, 4, (8, 8), 0x7F04)))) == [
        ": unload 1"
    ]


# Streaming


def streaming(count: int, *, among: int, device: Device = MAX78000, **changes: Any) -> list[str]:
    layers = [layer(C2, (4, 8, 8), inputs=(i - 1,), **changes) for i in range(among)]
    layers = [replace(made, name=f"layer{i}") for i, made in enumerate(layers)]
    places = tuple(
        place(made, 0x100 * i, 0x100 * (i + 1), streaming=i < count) for i, made in enumerate(layers)
    )
    return told(network(*layers, places=places), device, fifo=True)


def test_streaming_layers() -> None:
    assert streaming(8, among=9) == []
    assert streaming(9, among=9) == ["layer8: streaming"]
    assert streaming(1, among=2, pad=(0, 0), kernel=(1, 1)) == []
    layers = [
        layer(C2, (4, 8, 8)),
        layer(C2, (4, 8, 8), inputs=(0,), pad=(0, 0)),
        layer(C2, (4, 6, 6), inputs=(1,)),
    ]
    places = [place(made, 0x100 * i, 0x100 * (i + 1), streaming=i < 2) for i, made in enumerate(layers)]
    assert told(network(*layers, places=tuple(places)), fifo=True) == ["two: pad"]
    assert told(network(*layers, places=tuple(places)), MAX78002, fifo=True) == []
    late = (replace(places[0], streaming=False), *places[1:])
    assert told(network(*layers, places=late), MAX78002, fifo=True) == ["two: streaming"]
    assert told(network(*layers, places=tuple(places)), MAX78002) == [": streaming"]


def test_streaming_stops_before_linear_layers() -> None:
    layers = [layer(C2, (4, 4, 4)), layer(FC, (4, 4, 4), 4, inputs=(0,), flatten=True)]
    places = tuple(place(made, 0x100 * i, 0x100 * (i + 1), streaming=True) for i, made in enumerate(layers))
    assert "two: streaming" in told(network(*layers, places=places), fifo=True)


def test_more_layers_than_there_are_registers() -> None:
    layers = [replace(layer(NO, (4, 4, 4), inputs=(i - 1,)), name=f"layer{i}") for i in range(33)]
    assert told(network(*layers)) == [": layers"]
    assert told(network(*layers), MAX78002) == []


def test_rows_longer_than_row_memory_and_registers() -> None:
    wide = layer(C2, (256, 2, 900), 4)
    assert told(network(wide, places=(place(wide, 0, 0),)), overlap_data=True) == ["one: in_dim"]
    rows = [layer(C2, (4, 20, 1000)), layer(C2, (4, 20, 1000), inputs=(0,), pool=Pool(False, (16, 16), 16))]
    places = tuple(place(made, 0x100 * i, 0x100 * (i + 1), streaming=True) for i, made in enumerate(rows))
    assert told(network(*rows, places=places), fifo=True) == ["two: streaming", "two: streaming"]
