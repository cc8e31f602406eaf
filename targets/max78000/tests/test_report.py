"""Reports: operations, cycles and memory of small networks counted by hand, and of the vendor's networks as his tool counts them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from references import references

from mace_core.testing.requirements import require
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
from mace_target_max78000.encode.hardware_layers import make_hardware_layers
from mace_target_max78000.options import Options
from mace_target_max78000.report import (
    ProgramReport,
    analyze_program,
    draw_memory_map,
    format_data,
    format_summary,
)
from mace_target_max78000.report.analysis import Operations, count_operations, estimate_cycles
from mace_target_max78002.device import MAX78002

REAL = {r.name: r for r in references() if r.path.parent.parent.name != "unit"}
SQUARE = {"kernel": (3, 3), "pad": (1, 1)}


def layer(channels: int, dim: tuple[int, int], out: int, **given: Any) -> Layer:
    values = np.random.default_rng(out).integers(-128, 128, (out, channels, *given.get("kernel", (1, 1))))
    return Layer("layer", Operation.CONV2D, (INPUT,), channels, dim, out, Weights(values), **given)


def first() -> Layer:
    """The first layer of the vendor's MNIST network."""
    return layer(1, (28, 28), 60, activation=LayerActivation.RELU, **SQUARE)


def network() -> Network:
    """Two layers of 4 x 4; the second reads the first's sum with the input."""
    small = layer(4, (4, 4), 4, shift=-4, **SQUARE)
    layers = (
        replace(small, name="a"),
        replace(
            small,
            name="copy",
            operation=Operation.PASSTHROUGH,
            weights=None,
            kernel=(1, 1),
            pad=(0, 0),
            shift=0,
        ),
        replace(
            small,
            name="b",
            inputs=(0, 1),
            eltwise=Eltwise.ADD,
            operands=2,
            out_channels=8,
            weights=wide_weights(),
            output=True,
        ),
    )
    places = (
        LayerPlacement(0xF, 0xF, 0x100, 0, write_gap=1),
        LayerPlacement(0xF, 0xF, 0x100, 4, write_gap=1),
        LayerPlacement(0xF, 0xFF0, 0, 0x200),
    )
    return Network("small", layers, places, np.zeros((4, 4, 4), np.int64))


def wide_weights() -> Weights:
    return Weights(np.ones((8, 4, 3, 3), np.int64), 4)


def report(device: Chip = MAX78000) -> ProgramReport:
    return analyze_program(network(), synthesize(network(), Options(), device), Options())


def test_operations_of_each_kind() -> None:
    assert count_operations(first()) == Operations(9 * 60 * 28 * 28, 60 * 28 * 28)
    pooled = layer(4, (8, 8), 2, pool=Pool(False, (2, 2), 2), **SQUARE)
    assert count_operations(pooled) == Operations(9 * 4 * 2 * 16, comparisons=4 * 16 * 4)
    averaged = replace(pooled, pool=Pool(True, (2, 2), 2))
    assert count_operations(averaged) == Operations(9 * 4 * 2 * 16, additions=4 * 16 * 4)
    added = replace(averaged, eltwise=Eltwise.ADD, operands=3)
    assert count_operations(added).additions == 3 * 4 * 16 * 4 + 2 * 4 * 16
    first_added = replace(added, pool_first=False)
    assert count_operations(first_added).additions == 2 * 4 * 64 + 4 * 16 * 4
    assert count_operations(replace(added, eltwise=Eltwise.XOR)).bitwise == 2 * 4 * 16
    flat = Layer(
        "fc", Operation.LINEAR, (INPUT,), 12, (4, 4), 10, Weights(np.ones((10, 192), np.int64)), flatten=True
    )
    assert count_operations(flat) == Operations(1920)
    up = Layer(
        "up",
        Operation.CONV_TRANSPOSE2D,
        (INPUT,),
        3,
        (5, 5),
        2,
        Weights(np.ones((3, 2, 3, 3), np.int64)),
        **SQUARE,
    )
    assert count_operations(up) == Operations(9 * 3 * 2 * 100)
    assert count_operations(
        Layer("depthwise", Operation.CONV2D, (INPUT,), 8, (4, 4), 8, groups=8, **SQUARE)
    ) == Operations(9 * 8 * 16)
    assert Operations(1, 2, 3, 4).total == 10
    assert Operations(1, 2, 3, 4) + Operations(10, 20, 30, 40) == Operations(11, 22, 33, 44)


def estimate(made: Layer, processors: int, output: int, pipeline: bool = False, **given: Any) -> int:
    network = Network(
        "",
        (made,),
        (LayerPlacement(processors, output, **given),),
        np.zeros((made.channels, *made.dim), np.int64),
    )
    return estimate_cycles(
        make_hardware_layers(network, MAX78002 if pipeline else MAX78000)[0], (0,), pipeline
    )


def test_cycles_by_the_makers_formula() -> None:
    # A row of padding and the row before the first window take 2 * (2 + 1) + 28 * (2 + 1) each, each of 28
    # rows of outputs 3 + 3 + 27 * 2 + 2 to read and 28 * 60 to compute.
    assert estimate(first(), 1, (1 << 60) - 1) == 2 * 90 + 28 * (62 + 28 * 60)
    assert estimate(first(), 1, (1 << 60) - 1, streaming=True) == (2 * 90 + 28 * (62 + 28 * 60)) * 3 // 2
    point = layer(8, (4, 4), 8)
    assert estimate(point, 0xFF, 0xFF) == 4 * (4 * 2 + 4 * 8)
    moved = Layer("copy", Operation.PASSTHROUGH, (INPUT,), 16, (4, 4), 16)
    assert estimate(moved, 0xFFFF, 0xFFFF) == 16 * (2 + 3)


def test_the_pipeline_reads_while_it_computes() -> None:
    assert estimate(first(), 1, (1 << 60) - 1, pipeline=True) == 2 * 90 + 28 * (28 * 60)
    assert estimate(layer(8, (4, 4), 1), 0xFF, 1, pipeline=True) == 4 * max(4 * 2, 4 + 1)
    wide = replace(first(), channels=16, groups=16, out_channels=16)
    assert estimate(wide, 0xFFFF, 0xFFFF, pipeline=True) == 2 * 90 + 28 * max(62, 28 * 4)


def test_ranges_and_columns() -> None:
    result = report()
    assert [(r.producer, r.memories, r.first, r.last, r.start, r.end) for r in result.ranges] == [
        (INPUT, (0,), 0x100, 0x140, 0, 1),
        (0, (0,), 0, 0x7C, 0, 2),
        (1, (0,), 4, 0x80, 1, 2),
        (2, (1, 2), 0x200, 0x240, 2, 3),
    ]
    assert result.data_bytes == 0x80 + 0x40 + 2 * 0x40
    assert [(r.column, r.count) for r in (layer.run for layer in result.layers) if r] == [(0, 4), (4, 4)]
    assert result.columns[:5] == (8, 8, 8, 8, 0)
    assert result.weight_bytes == 4 * 4 * 9 + 8 * 4 * 9 // 2
    assert result.cycles == 1 + sum(layer.cycles for layer in result.layers)
    assert (
        result.flash["weights"]
        == sum(4 * (2 + len(c.words)) for c in synthesize(network(), Options(), MAX78000).image.kernels) + 4
    )


def test_text() -> None:
    lines = format_summary(report()).splitlines()
    assert lines[0] == "small on MAX78000, quadrants 0"
    assert "Weight memory: 288 of 442,368 bytes (0 %); at most 8 words of a processor" in lines
    assert "Data memory: 320 of 524,288 bytes (0 %)" in lines
    rows = [line.split() for line in lines]
    assert ["2", "b", "0000.0000.0000.000f", "0000.0000.0000.0ff0", "4-7"] in [row[:5] for row in rows]
    assert ["b", "1-2", "0x00200-0x0023f", "2-end"] in rows
    assert max(map(len, lines)) <= 120


def test_data_is_json() -> None:
    result = format_data(report())
    assert json.loads(json.dumps(result)) == result
    assert result["layers"][2]["columns"] == [4, 4]
    assert result["ranges"][3] == {"layer": 2, "memories": [1, 2], "bytes": [512, 576], "layers": [2, 3]}
    assert result["operations"]["multiplications"] == 16 * 9 * (4 * 4 + 4 * 8)


def test_picture_draws_every_run_and_range() -> None:
    drawn = draw_memory_map(report())
    assert drawn == draw_memory_map(report())
    root = ET.fromstring(drawn)
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(titles) == sorted(
        [
            "a: words 0-3",
            "b: words 4-7",
            "input: bytes 256-319 of data memory 0, layers 0-1",
            "a: bytes 0-123 of data memory 0, layers 0-2",
            "copy: bytes 4-127 of data memory 0, layers 1-2",
            "b: bytes 512-575 of data memory 1, layers 2-3",
            "b: bytes 512-575 of data memory 2, layers 2-3",
        ]
    )
    named = draw_memory_map(replace(report(), name="<&>"))
    assert "&lt;&amp;&gt; on MAX78000" in named


@pytest.mark.parametrize("name", list(REAL) or [""])
def test_real_networks(name: str) -> None:
    require(
        None
        if REAL
        else "the networks are not beside the checkout, and MACE_MODELS names no folder with them"
    )
    reference = REAL[name]
    result = analyze_program(
        reference.network,
        synthesize(reference.network, reference.options, reference.device),
        reference.options,
    )
    weights = [layer.weights for layer in reference.network.layers if layer.weights is not None]
    assert result.weight_bytes == sum(-(-w.values.size * w.bits // 8) for w in weights)
    assert result.bias_bytes == sum(map(len, reference.content["bias"].values()))
    assert all(r.last <= reference.device.data_bytes for r in result.ranges)
    assert all(layer.cycles > 0 for layer in result.layers)
    assert ET.fromstring(draw_memory_map(result)) is not None
    assert max(map(len, format_summary(result).splitlines())) <= 120


def test_mnist_as_the_maker_counts_it() -> None:
    require(
        None
        if REAL
        else "the networks are not beside the checkout, and MACE_MODELS names no folder with them"
    )
    for device in (MAX78000, MAX78002):
        reference = REAL[f"mnist-{device.name}"]
        result = analyze_program(
            reference.network, synthesize(reference.network, reference.options, device), reference.options
        )
        assert result.weight_bytes == 71148
        assert result.operations.multiplications == 10751808
