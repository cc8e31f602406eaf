"""What processors, FIFOs, offsets and streaming cannot do: each limit by a network that breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from check_networks import C1, C2, FC, NO, eltwise, layer, list_faults, mask, network, place

from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Buffer,
    Layer,
    Network,
    Pool,
    Unload,
)
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002


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
def test_places(made: Layer, changes: dict[str, Any], device: Chip, expected: list[str]) -> None:
    assert list_faults(network(made, places=(place(made, **changes),)), device) == expected


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
    result = layer(C2, (channels, 4, 4))
    assert list_faults(network(result, places=(place(result, **changes),)), **options) == expected


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
    assert list_faults(network(made, places=(place(made, **changes),))) == expected


def test_output_over_the_own_input_may_be_allowed() -> None:
    result = layer(C2, (4, 8, 8))
    given = network(result, places=(place(result, 0x100, 0x80),))
    assert list_faults(given) == ["one: out_offset"]
    assert list_faults(given, overlap_data=True) == []


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
    assert list_faults(given, overlap_data=True) == ["three: out_offset"]


def test_results_are_kept() -> None:
    given = chain((0, 0x100), (0x100, 0x200), (0x200, 0x100), inputs=((INPUT,), (0,), (1,)))
    assert list_faults(given) == []
    result = replace(given, layers=(replace(given.layers[0], output=True), *given.layers[1:]))
    (fault,) = find_faults(result, MAX78000, Options())
    assert (fault.layer, fault.expected) == ("three", "memory without data of one, which are results")
    assert list_faults(result, overlap_data=True) == []


def test_layers_read_where_data_were_written() -> None:
    given = chain((0, 0x100), (0x104, 0x400), inputs=((INPUT,), (0,)))
    (fault,) = find_faults(given, MAX78000, Options())
    assert (
        str(fault)
        == "two: in_offset: found 0x0104, expected 0x0100, where one is read from; write in_offset: 0x0100"
    )
    moved = replace(given, places=(given.places[0], place(given.layers[1], 0x100, 0x400, processors=0xF0)))
    assert list_faults(moved) == ["two: processors"]


def test_operands_lie_word_by_word_in_turn() -> None:
    a, b = layer(C2, (4, 8, 8)), layer(C2, (4, 8, 8))
    total = eltwise((4, 8, 8), inputs=(0, 1))
    right = (place(a, 0, 0x200, write_gap=1), place(b, 0, 0x204, write_gap=1), place(total, 0x200, 0x600))
    assert list_faults(network(a, b, total, places=right)) == []
    no_gap = (replace(right[0], write_gap=0), *right[1:])
    (fault,) = find_faults(network(a, b, total, places=no_gap), MAX78000, Options())
    assert (fault.layer, fault.key, fault.remedy) == ("three", "in_sequences", "write write_gap: 1 in one")
    (fault,) = find_faults(network(a, b, replace(total, inputs=(1, 0)), places=right), MAX78000, Options())[
        :1
    ]
    assert fault.remedy == "write out_offset: 0x0200 in two, or correct in_offset"


def test_copies_may_be_read_where_the_original_lies() -> None:
    """The vendor's residual example: the layer after the one that reformats reads what that one read."""
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
    assert list_faults(network(first, gap, main, total, places=tuple(places))) == []
    pooled = replace(gap, pool=Pool(False, (1, 1), 1))
    assert list_faults(network(first, pooled, main, total, places=tuple(places))) == ["three: in_sequences"]
    places[1] = replace(places[1], out_offset=0x10)
    assert list_faults(network(first, gap, main, total, places=tuple(places)))[0] == "four: in_sequences"


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
    assert list_faults(network(a, b, places=(place(a, 0, 0x400), place(b, 0, 0x800)))) == []
    assert list_faults(network(a, b, places=(place(a, 0, 0x400), place(b, 0x20, 0x800)))) == [
        "two: in_offset"
    ]
    assert list_faults(network(a, b, places=(place(a, 0, 0x400), place(b, 0, 0x800))), fifo=True) == [
        "two: in_sequences"
    ]


def test_joined_data_lie_side_by_side_or_in_passes() -> None:
    a, b = layer(C2, (4, 8, 8), 64), layer(C2, (4, 8, 8), 64)
    joined = layer(C2, (128, 8, 8), 4, inputs=(0, 1))
    places = (place(a, 0, 0x200, write_gap=1), place(b, 0, 0x204, write_gap=1), place(joined, 0x200, 0x600))
    assert list_faults(network(a, b, joined, places=places)) == []
    c, d = layer(C2, (4, 8, 8)), layer(C2, (4, 8, 8))
    side = layer(C2, (8, 8, 8), 4, inputs=(0, 1))
    places = (place(c, 0, 0x200), place(d, 0, 0x200, output_processors=0xF0), place(side, 0x200, 0x600))
    assert list_faults(network(c, d, side, places=places)) == []
    assert list_faults(network(c, d, replace(side, inputs=(1, 0)), places=places)) == [
        "three: processors",
        "three: processors",
    ]


def test_cropping_moves_the_offset() -> None:
    first, second = layer(C2, (4, 8, 8)), layer(C2, (4, 5, 8), inputs=(0,))
    places = (place(first, 0, 0x200), place(second, 0x200 + 4 * 8, 0x600, in_crop=(1, 2)))
    assert list_faults(network(first, second, places=places)) == []
    assert list_faults(network(first, second, places=(places[0], replace(places[1], in_offset=0x200)))) == [
        "two: in_offset"
    ]
    assert list_faults(network(first, second, places=(places[0], replace(places[1], in_crop=(1, 1))))) == [
        "two: in_crop"
    ]


def test_buffers_are_read_inside_and_written_by_their_own_layers_only() -> None:
    buffer = Buffer("past", 0xF, 4, (16, 1), 0x400)
    read = layer(C1, (4, 16), inputs=(BUFFER,))
    other = layer(C2, (4, 4, 4), 5)
    sample = np.zeros((4, 4, 4))
    right = (place(other, 0, 0x100), place(read, 0x400, 0x600))
    assert list_faults(network(other, read, sample=sample, places=right, buffers=(buffer,))) == []
    assert list_faults(
        network(other, read, sample=sample, places=(right[0], place(read, 0x404, 0x600)), buffers=(buffer,))
    ) == ["two: in_offset"]
    over = (place(other, 0, 0x3F0), right[1])
    assert list_faults(network(other, read, sample=sample, places=over, buffers=(buffer,))) == [
        "one: out_offset"
    ]


def test_unloaded_blocks_lie_in_memory() -> None:
    result = layer(C2, (4, 8, 8))
    assert list_faults(
        network(result, unloads=(Unload(0xF, 4, (8, 8), 0x7F00), Unload(0xF, 4, (8, 8), 0x7F04)))
    ) == [": unload 1"]


# Streaming


def streaming(count: int, *, among: int, device: Chip = MAX78000, **changes: Any) -> list[str]:
    layers = [layer(C2, (4, 8, 8), inputs=(i - 1,), **changes) for i in range(among)]
    layers = [replace(made, name=f"layer{i}") for i, made in enumerate(layers)]
    places = tuple(
        place(made, 0x100 * i, 0x100 * (i + 1), streaming=i < count) for i, made in enumerate(layers)
    )
    return list_faults(network(*layers, places=places), device, fifo=True)


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
    assert list_faults(network(*layers, places=tuple(places)), fifo=True) == ["two: pad"]
    assert list_faults(network(*layers, places=tuple(places)), MAX78002, fifo=True) == []
    late = (replace(places[0], streaming=False), *places[1:])
    assert list_faults(network(*layers, places=late), MAX78002, fifo=True) == ["two: streaming"]
    assert list_faults(network(*layers, places=tuple(places)), MAX78002) == [": streaming"]


def test_streaming_stops_before_linear_layers() -> None:
    layers = [layer(C2, (4, 4, 4)), layer(FC, (4, 4, 4), 4, inputs=(0,), flatten=True)]
    places = tuple(place(made, 0x100 * i, 0x100 * (i + 1), streaming=True) for i, made in enumerate(layers))
    assert "two: streaming" in list_faults(network(*layers, places=places), fifo=True)


def test_more_layers_than_there_are_registers() -> None:
    layers = [replace(layer(NO, (4, 4, 4), inputs=(i - 1,)), name=f"layer{i}") for i in range(33)]
    assert list_faults(network(*layers)) == [": layers"]
    assert list_faults(network(*layers), MAX78002) == []


def test_rows_longer_than_row_memory_and_registers() -> None:
    wide = layer(C2, (256, 2, 900), 4)
    assert list_faults(network(wide, places=(place(wide, 0, 0),)), overlap_data=True) == ["one: in_dim"]
    rows = [layer(C2, (4, 20, 1000)), layer(C2, (4, 20, 1000), inputs=(0,), pool=Pool(False, (16, 16), 16))]
    places = tuple(place(made, 0x100 * i, 0x100 * (i + 1), streaming=True) for i, made in enumerate(rows))
    assert list_faults(network(*rows, places=places), fifo=True) == ["two: streaming", "two: streaming"]
