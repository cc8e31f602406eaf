"""What a part does not have, what its registers have no room for, and streaming buffers that meet: refused as the vendor's tool does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from check_networks import C1, C2, NO, T2, layer, list_faults, mask, network, place

from mace_frontend_ai8x.network import Eltwise, Layer, LayerPlacement, Network, Pool, Weights
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002


@pytest.mark.parametrize("key", ["bypass", "read_ahead", "calcx4", "tcalc"])
def test_switches_of_the_second_generation_only(key: str) -> None:
    conv = layer(C2, (4, 8, 8))
    given = network(conv, places=(place(conv, 0, 0x4000, **{key: True}),))
    assert list_faults(given, MAX78000) == [f"one: {key.replace('_', '')}"]
    assert list_faults(given, MAX78002) == []


def test_conditional_layers_are_the_second_generations() -> None:
    given = network(layer(C2, (4, 8, 8)), snoop=(1,) * 32)
    assert list_faults(given, MAX78000) == [": snoop"]
    assert list_faults(given, MAX78002) == []


@pytest.mark.parametrize(
    ("device", "channels", "most"),
    [(MAX78000, 4, 15), (MAX78000, 80, 7), (MAX78002, 4, 255), (MAX78002, 80, 127)],
    ids=str,
)
def test_a_write_gap_fits_its_field(device: Chip, channels: int, most: int) -> None:
    conv = layer(C2, (4, 2, 2), channels)
    for gap, expected in ((most, []), (most + 1, ["one: write_gap"])):
        assert list_faults(network(conv, places=(place(conv, 0, 0x4000, write_gap=gap),)), device) == expected


def test_a_write_gap_of_a_passthrough_layer_counts_one_pass() -> None:
    copy = layer(NO, (80, 2, 2))
    for gap, expected in ((15, []), (16, ["one: write_gap"])):
        assert (
            list_faults(network(copy, places=(place(copy, 0, 0x4000, write_gap=gap),)), MAX78000) == expected
        )


@pytest.mark.parametrize(
    ("made", "device", "expected"),
    [
        (layer(C1, (1, 1024), kernel=(9, 1)), MAX78000, []),
        (layer(C1, (1, 1023), kernel=(9, 1), pad=(1, 0)), MAX78000, ["one: in_dim"]),
        (layer(C1, (1, 1022), kernel=(9, 1), pad=(1, 0)), MAX78000, []),
        (layer(C1, (1, 2048), kernel=(9, 1), pad=(1, 0)), MAX78002, []),
        (layer(C1, (4, 16), kernel=(1, 1), pad=(1, 0)), MAX78000, ["one: pad"]),
        (layer(C1, (4, 16), kernel=(1, 1), dilation=(2, 1)), MAX78000, ["one: dilation"]),
        (layer(C2, (1024, 2, 2), 4), MAX78002, []),
        (layer(C2, (1025, 2, 2), 4), MAX78002, ["one: in_channels"]),
    ],
)
def test_values_that_the_registers_hold(made: Layer, device: Chip, expected: list[str]) -> None:
    assert list_faults(network(made), device) == expected


def test_depthwise_layers() -> None:
    deep = layer(C2, (17, 4, 4), groups=17)
    wide = place(deep, 0, 0x4000, processors=mask(17, 1), output_processors=mask(17))
    assert list_faults(network(deep, places=(wide,)), MAX78002) == ["one: processors"]
    assert list_faults(network(deep, places=(replace(wide, processors=mask(17, 4)),)), MAX78002) == []
    assert list_faults(network(deep, places=(place(deep, 0, 0x4000, bias_groups=(0,)),)), MAX78002) == [
        "one: bias_group"
    ]


def test_one_kind_of_one_bit_weights() -> None:
    ones = np.ones((4, 4, 3, 3), np.int64)
    binary = layer(C2, (4, 4, 4), weights=Weights(ones, 1, binary=True))
    narrow = layer(C2, (4, 4, 4), inputs=(0,), weights=Weights(-ones, 1))
    assert list_faults(network(binary, narrow), MAX78002) == [": quantization"]


def test_operands_that_are_pooled_last() -> None:
    three = layer(
        NO, (4, 8, 8), operands=3, eltwise=Eltwise.ADD, pool=Pool(False, (2, 2), 2), pool_first=False
    )
    assert list_faults(network(three), MAX78002) == ["one: pool_first"]
    assert list_faults(network(replace(three, operands=2)), MAX78002) == []
    assert list_faults(network(replace(three, pool=Pool(False, (1, 1), 2))), MAX78002) == []


def test_what_is_read_ahead_lies_apart() -> None:
    conv = layer(C2, (4, 8, 8))
    near, far = (place(conv, 0, offset, read_ahead=True) for offset in (0x3000, 0x4000))
    assert list_faults(network(conv, places=(near,)), MAX78002) == ["one: readahead"]
    assert list_faults(network(conv, places=(far,)), MAX78002) == []


def test_four_channels_at_once() -> None:
    odd, deep = layer(C2, (4, 4, 4), 6), layer(C2, (4, 4, 4), groups=4)
    for made in (odd, deep):
        assert list_faults(network(made, places=(place(made, 0, 0x4000, calcx4=True),)), MAX78002) == [
            "one: calcx4"
        ]


@pytest.mark.parametrize(
    ("processors", "chw", "expected"), [(0x2, True, ["one: processors"]), (0x1, True, []), (0x2, False, [])]
)
def test_planes_come_through_a_fifo_to_first_processors(
    processors: int, chw: bool, expected: list[str]
) -> None:
    conv = layer(C2, (1, 8, 8))
    assert (
        list_faults(network(conv, places=(place(conv, processors=processors, chw=chw),)), MAX78000, fifo=True)
        == expected
    )


def streaming(second: dict[str, int], last: dict[str, int]) -> Network:
    """Three streaming layers on memories of their own where nothing else is said."""
    a, b, c = layer(C2, (4, 16, 16)), layer(C2, (4, 16, 16), inputs=(0,)), layer(C2, (4, 16, 16), inputs=(1,))
    places = [
        LayerPlacement(0xF, 0xF0, 0, 0x1000, streaming=True),
        replace(LayerPlacement(0xF0, 0xF00, 0x1000, 0x1000, streaming=True), **second),
        replace(LayerPlacement(0xF00, 0xF, 0x1000, 0x4000, streaming=True), **last),
    ]
    return network(a, b, c, places=tuple(places))


def list_texts(given: Network, **options: Any) -> list[str]:
    return [
        str(fault).partition(";")[0] for fault in find_faults(given, MAX78000, Options(fifo=True, **options))
    ]


def test_buffers_that_are_apart_are_legal() -> None:
    assert list_texts(streaming({}, {})) == []


def test_a_buffer_over_another_one_is_refused() -> None:
    given = streaming(
        {"output_processors": 0xF0, "out_offset": 0x2000}, {"processors": 0xF0, "in_offset": 0x2000}
    )
    assert list_texts(given) == []
    near = streaming(
        {"output_processors": 0xF0, "out_offset": 0x1040}, {"processors": 0xF0, "in_offset": 0x1040}
    )
    told_now = list_texts(near)
    assert any(
        text.startswith("two: out_offset: found 0x1040, expected an output more than") for text in told_now
    )
    assert any(text.startswith("three: in_offset: found its own from 0x1040") for text in told_now)
    # the vendor's option allows buffers to overlap, but not a layer's output and its own
    assert [text.partition(" ")[0] for text in list_texts(near, overlap_data=True)] == ["two:"]


def test_buffers_must_not_touch() -> None:
    """As the vendor's tool counts: the end is a part of a buffer."""
    length = _buffer_length()
    for distance, expected in ((length, 1), (length + 4, 0)):
        given = streaming(
            {"processors": 0xF0, "output_processors": 0xF00},
            {"processors": 0xF00, "in_offset": 0x1000, "output_processors": 0xF0},
        )
        moved = replace(given.places[2], out_offset=0x1000 + distance)
        assert len(list_texts(replace(given, places=(*given.places[:2], moved)))) == expected


def _buffer_length() -> int:
    """Bytes of the second layer's buffer: two padded rows and two columns and the two that the vendor adds, one of rest, one of step."""
    return 4 * (18 * 2 + 2 + 1 + 2 + 1)


def test_a_result_over_a_buffer_is_refused() -> None:
    given = streaming({}, {"output_processors": 0xF0, "out_offset": 0x1000})
    assert [text.partition(":")[0] for text in list_texts(given)] == ["three"]
    assert list_texts(given, overlap_data=True) == []


def test_a_buffer_behind_the_memory_is_refused() -> None:
    given = streaming({"in_offset": 0x7FC0}, {})
    first = replace(given.places[0], out_offset=0x7FC0)
    assert any(
        "two: in_offset" in text for text in list_texts(replace(given, places=(first, *given.places[1:])))
    )


def test_a_layer_behind_a_stream_may_write_over_what_streamed() -> None:
    """The vendor's tool keeps no account of what streaming layers wrote, and its demo facedet_tinierssd relies on that."""
    stream, conv = layer(C2, (4, 16, 16)), layer(C2, (4, 16, 16), inputs=(0,))
    places = (LayerPlacement(0xF, 0xF0, 0, 0x1000, streaming=True), LayerPlacement(0xF0, 0xF0, 0x1000, 0xF00))
    assert list_texts(network(stream, conv, places=places)) == []
    plain = (replace(places[0], streaming=False), places[1])
    given = network(stream, conv, places=plain)
    assert [fault.key for fault in find_faults(given, MAX78000, Options())] == ["out_offset"]


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"pool": Pool(False, (2, 2), 2)}, ["one: max_pool"]),
        ({"pool": Pool(True, (2, 2), 1)}, ["one: avg_pool"]),
        ({"stride": 2}, ["one: pool_stride"]),
    ],
)
def test_nothing_is_pooled_before_a_transposed_convolution(
    device: Chip, changes: dict[str, Any], expected: list[str]
) -> None:
    assert list_faults(network(layer(T2, (4, 8, 8), **changes)), device) == expected


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_no_element_wise_operation_comes_before_a_convolution_of_lines(device: Chip) -> None:
    line = layer(C1, (4, 8), operands=2, eltwise=Eltwise.SUB)
    (fault,) = find_faults(network(line), device, Options())
    assert str(fault) == (
        "one: eltwise: found conv1d, expected conv2d or no operation after it; write it as a layer of its own, operation: sub"
    )
    assert list_faults(network(layer(C2, (4, 8, 8), operands=2, eltwise=Eltwise.SUB)), device) == []
    assert list_faults(network(layer(NO, (4, 8), operands=2, eltwise=Eltwise.SUB)), device) == []
