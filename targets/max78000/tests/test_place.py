"""Placement: the vendor's networks in no more memory than their authors needed, and what the hardware needs for each kind of join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placed_memory import bits, faults, last_needed
from references import IMPOSSIBLE, MODELS, Reference, references

from mace_core.errors import MaceError
from mace_core.testing.requirements import require
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import INPUT, Eltwise, Layer, Network, Operation, Pool, Weights
from mace_target_max78000 import check
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.options import Options
from mace_target_max78000.place.allocate import find_overlap_distance
from mace_target_max78000.place.search import PlacedNetwork, place_layers
from mace_target_max78000.report import ProgramReport, analyze_program
from mace_target_max78000.simulate import find_mismatches, replay
from mace_target_max78002.device import MAX78002

DEVICES = (MAX78000, MAX78002)
KNOWN = {r.name: r for r in references((MODELS,)) if r.name not in IMPOSSIBLE}
HALF = Pool(False, (2, 2), 2)


def conv(name: str, source: int, channels: int, dim: tuple[int, int], out: int, **given: Any) -> Layer:
    kernel = given.pop("kernel", 3)
    values = np.random.default_rng(len(name) + 7 * (source + 1) + out).integers(
        -128, 128, (out, channels, kernel, kernel)
    )
    pad = given.pop("pad", kernel // 2)
    inputs = given.pop("inputs", (source,))
    return Layer(
        name,
        Operation.CONV2D,
        inputs,
        channels,
        dim,
        out,
        Weights(values),
        kernel=(kernel,) * 2,
        pad=(pad,) * 2,
        shift=-6,
        **given,
    )


def combined(name: str, inputs: tuple[int, ...], channels: int, dim: tuple[int, int], **given: Any) -> Layer:
    return Layer(
        name,
        Operation.PASSTHROUGH,
        inputs,
        channels,
        dim,
        channels,
        eltwise=Eltwise.ADD,
        operands=len(inputs),
        **given,
    )


def proven(layers: Sequence[Layer], device: Chip = MAX78000, options: Options | None = None) -> PlacedNetwork:
    """The placement, once the simulator agrees with the arithmetic and no word is lost."""
    layers = [*layers[:-1], replace(layers[-1], output=True)]
    first = layers[0]
    placed = place_layers(layers, (first.channels, *first.dim), device, options or Options())
    assert faults(placed, device) == []
    sample = np.random.default_rng(1).integers(-128, 128, (first.channels, *first.dim))
    network = Network("proven", placed.layers, placed.places, sample)
    assert check.find_faults(network, device, placed.options) == []
    image = synthesize(network, placed.options, device).image
    assert list(find_mismatches(replay(image), image)) == []
    return placed


def names(placed: PlacedNetwork) -> list[str]:
    return [layer.name for layer in placed.layers]


def highest(report: ProgramReport) -> int:
    return max(r.last for r in report.ranges)


@pytest.mark.slow
@pytest.mark.sampled(every=21)
@pytest.mark.parametrize("name", list(KNOWN) or [""])
def test_the_makers_networks_take_no_more_memory_than_by_hand(name: str) -> None:
    require(
        None
        if KNOWN
        else "the networks are not beside the checkout, and MACE_MODELS names no folder with them"
    )
    reference: Reference = KNOWN[name]
    network, options, device = reference.network, reference.options, reference.device
    if any(p.bypass for p in network.places):
        pytest.skip("a bypass is a test of the hardware's, no layer")
    asked = replace(options, max_checklines=None)
    placed = place_layers(network.layers, network.sample.shape, device, asked)
    anew = replace(network, layers=placed.layers, places=placed.places, unloads=())
    assert check.find_faults(anew, device, placed.options) == []
    made, by_hand = synthesize(anew, placed.options, device), synthesize(network, options, device)
    assert list(find_mismatches(replay(made.image), made.image)) == []
    for ours, theirs in zip(
        results(anew, placed.options, device), results(network, options, device), strict=True
    ):
        assert np.array_equal(ours, theirs)
    ours, theirs = analyze_program(anew, made, placed.options), analyze_program(network, by_hand, options)
    assert (placed.touched, placed.highest) == (ours.data_bytes, highest(ours))
    assert ours.data_bytes <= theirs.data_bytes
    assert highest(ours) <= highest(theirs)
    assert sum(ours.columns) <= sum(theirs.columns)
    assert len(ours.quadrants) <= len(theirs.quadrants)
    assert len(placed.layers) == len(network.layers)


def results(network: Network, options: Options, device: Chip) -> list[Any]:
    return [
        values
        for values, layer in zip(outputs(network, options), network.layers, strict=True)
        if layer.output
    ]


def test_few_channels_take_one_quadrant() -> None:
    placed = proven(
        [conv("a", INPUT, 3, (8, 8), 16), conv("b", 0, 16, (8, 8), 12), conv("c", 1, 12, (8, 8), 8)]
    )
    assert all(max(bits(p.processors | p.output_processors)) < 16 for p in placed.places)


def test_input_of_one_channel_lies_byte_by_byte() -> None:
    assert proven([conv("a", INPUT, 1, (20, 20), 8)]).places[0].chw
    assert not proven([conv("a", INPUT, 3, (20, 20), 8)]).places[0].chw


def test_input_too_large_for_words_lies_channel_by_channel() -> None:
    dim = (100, 100)
    placed = proven([conv("a", INPUT, 3, dim, 4, pool=HALF)])
    assert placed.places[0].chw
    assert [p % 4 for p in bits(placed.places[0].processors)] == [0, 0, 0]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_operands_that_only_the_sum_reads_are_written_interleaved(device: Chip) -> None:
    dim = (6, 6)
    placed = proven(
        [
            conv("a", INPUT, 3, dim, 8),
            conv("x", 0, 8, dim, 8),
            conv("y", 0, 8, dim, 8),
            combined("add", (1, 2), 8, dim),
        ],
        device,
    )
    x, y, add = placed.places[1:]
    assert names(placed) == ["a", "x", "y", "add"]
    assert (x.write_gap, y.write_gap, add.write_gap) == (1, 1, 0)
    assert (x.out_offset, y.out_offset) == (add.in_offset, add.in_offset + 4)
    assert x.output_processors == y.output_processors == add.processors


def test_operand_that_others_read_is_copied_or_read_with_gaps() -> None:
    dim = (6, 6)
    layers = [conv("a", INPUT, 3, dim, 8), conv("b", 0, 8, dim, 8), combined("add", (1, 0), 8, dim)]
    copied = proven(layers, MAX78000)
    assert names(copied) == ["a", "b", "add/copy of a", "add"]
    assert copied.layers[2].operation is Operation.PASSTHROUGH
    skipped = proven(layers, MAX78002)
    assert names(skipped) == ["a", "b", "add"]
    assert (skipped.places[0].write_gap, skipped.places[1].read_gap) == (1, 1)


def test_joined_inputs_lie_side_by_side() -> None:
    dim = (6, 6)
    placed = proven(
        [conv("a", INPUT, 3, dim, 8), conv("b", INPUT, 3, dim, 20), conv("c", 0, 28, dim, 4, inputs=(1, 0))]
    )
    a, b, c = placed.places
    assert a.out_offset == b.out_offset == c.in_offset
    assert bits(a.output_processors)[0] == bits(b.output_processors)[-1] + 1
    assert c.processors == a.output_processors | b.output_processors


def test_joined_inputs_of_several_passes_are_interleaved() -> None:
    dim = (5, 5)
    placed = proven(
        [conv("a", INPUT, 3, dim, 56), conv("b", INPUT, 3, dim, 56), conv("c", 0, 112, dim, 4, inputs=(0, 1))]
    )
    a, b, c = placed.places
    assert (a.write_gap, b.write_gap) == (1, 1)
    assert (a.out_offset, b.out_offset) == (c.in_offset, c.in_offset + 4)
    assert a.output_processors == b.output_processors == c.processors


def test_joined_inputs_are_cut_where_a_pass_ends() -> None:
    dim = (4, 4)
    layers = [
        conv("a", INPUT, 3, dim, 32),
        conv("b", INPUT, 3, dim, 32),
        conv("c", INPUT, 3, dim, 32),
        conv("d", 0, 96, dim, 4, inputs=(0, 1, 2)),
    ]
    assert names(proven(layers)) == ["a", "b[0:16]", "b[16:32]", "c", "d"]


def test_a_value_joined_twice_is_copied_to_other_slots() -> None:
    dim = (4, 4)
    placed = proven([conv("a", INPUT, 3, dim, 8), conv("b", 0, 16, dim, 4, inputs=(0, 0))])
    copy = placed.layers[1]
    assert copy.weights is not None
    assert copy.weights.bits == 2
    assert np.array_equal(copy.weights.values[:, :, 0, 0], np.eye(8))


def test_sums_of_several_passes_get_a_layer_of_their_own() -> None:
    dim = (4, 4)
    layers = [
        conv("a", INPUT, 3, dim, 130),
        conv("b", INPUT, 3, dim, 130),
        conv("c", 0, 130, dim, 8, inputs=(0, 1), eltwise=Eltwise.ADD, operands=2),
    ]
    assert names(proven(layers)) == ["a", "b", "c/add", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_what_does_not_fit_streams(device: Chip) -> None:
    side = 96 if device is MAX78000 else 160
    dim, half = (side, side), (side // 2, side // 2)
    placed = proven(
        [
            conv("a", INPUT, 3, dim, 16),
            conv("b", 0, 16, dim, 16, pool=HALF),
            conv("c", 1, 16, half, 8, pool=HALF),
        ],
        device,
    )
    assert [p.streaming for p in placed.places] == [True, True, False]
    assert placed.options.fifo


def test_outputs_lie_over_inputs_only_where_nothing_else_fits_or_it_is_asked_for() -> None:
    dim = (80, 80)
    layers = [conv("a", INPUT, 64, dim, 64, kernel=1), conv("b", 0, 64, dim, 64)]
    assert proven(layers).options.overlap_data
    small = [replace(layer, dim=(8, 8)) for layer in layers]
    assert not proven(small).options.overlap_data
    asked = proven(small, options=Options(overlap_data=True))
    assert asked.highest < proven(small).highest


def test_quadrants_that_hold_results_are_read_in() -> None:
    dim = (4, 4)
    placed = proven([replace(conv("wide", INPUT, 3, dim, 64), output=True), conv("last", INPUT, 3, dim, 4)])
    assert names(placed) == ["wide", "wide/visit", "last"]


def test_refusals_name_every_layer() -> None:
    dim = (4, 4)
    rows = np.zeros((1000, 64, 3, 3), np.int64)
    large = [
        replace(conv("a", INPUT, 64, dim, 4), weights=Weights(rows), out_channels=1000),
        replace(conv("b", INPUT, 64, dim, 4), weights=Weights(rows + 1), out_channels=1000),
    ]
    with pytest.raises(
        MaceError, match=r"layer \d+ \(a\) needs 1024 words(.|\n)*layer \d+ \(b\) needs 1024 words"
    ):
        place_layers(large, None, MAX78000, Options())
    sides = [conv("a", INPUT, 64, (120, 120), 64), conv("b", 0, 64, (120, 120), 64)]
    with pytest.raises(
        MaceError,
        match=r"layer a: (.|\n)*layer b: what it reads and writes(.|\n)*which has 32768; use fewer rows",
    ):
        place_layers(sides, None, MAX78000, Options())
    many = [conv("a", INPUT, 8, dim, 8), *(conv(f"l{i}", i, 8, dim, 8) for i in range(33))]
    with pytest.raises(MaceError, match="34 layers are needed, the MAX78000 runs 32"):
        place_layers(many, None, MAX78000, Options())
    parts = [
        conv("a", INPUT, 3, dim, 30),
        conv("b", INPUT, 3, dim, 50),
        conv("c", 0, 80, dim, 4, inputs=(0, 1)),
    ]
    with pytest.raises(MaceError, match=r"layer c: it joins 30, 50 channels(.|\n)*multiple of four"):
        place_layers(parts, None, MAX78000, Options())
    values = Weights(np.ones((4, 3, 3), np.int64))
    dilated = Layer(
        "d", Operation.CONV1D, (INPUT,), 3, (40, 1), 4, values, kernel=(3, 1), dilation=(7, 1), wide=True
    )
    with pytest.raises(MaceError, match="layer d: it is dilated, and its results have 32 bits"):
        place_layers([dilated], None, MAX78000, Options())
    with pytest.raises(MaceError, match="FIFOs of the MAX78000"):
        place_layers([conv("a", INPUT, 17, dim, 4)], None, MAX78000, Options(fifo=True))


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_outputs_at_their_distance_lose_nothing(data: st.DataObject) -> None:
    draw = data.draw
    dim = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    kernel = draw(st.sampled_from([1, 3]))
    pool = draw(
        st.sampled_from([None, Pool(False, (2, 1), 1), Pool(False, (1, 2), 2), Pool(True, (2, 2), 2)])
    )
    layer = conv("a", INPUT, 3, dim, 4, kernel=kernel, pad=draw(st.integers(kernel // 2, 2)), pool=pool)
    if min(layer.pooled) < 1 or min(layer.out_dim) < 1:
        return
    step_in, step_out = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    least = find_overlap_distance(layer, step_in, step_out)
    assert least % 4 == 0
    assert lost(layer, step_in, step_out, least // 4 + draw(st.integers(0, 9))) == 0
    if pool is None and layer.pad[0] == kernel // 2 and step_in == step_out:
        assert lost(layer, step_in, step_out, least // 4 - 1) > 0


def lost(layer: Layer, step_in: int, step_out: int, before: int) -> int:
    """Words that are overwritten while a position still needs them, where the output begins so many words before the input."""
    last = last_needed(layer).ravel()
    count = layer.out_dim[0] * layer.out_dim[1]
    written = np.arange(count * step_out) - before
    needed = {int(p * step_in + k): int(last[p]) for p in range(last.size) for k in range(step_in)}
    return sum(needed.get(int(word), -1) >= i // step_out for i, word in enumerate(written))
