"""Whole reports, byte by byte, and cycles against the vendor's formula as a count of rows and positions.

`report_texts.txt` has the reports: the summary as text, its data as JSON and its picture as SVG.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from test_simulator import network
from test_simulator_layers import pair

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
from mace_target_max78000.encode.hardware_layers import HardwareLayer, make_hardware_layers
from mace_target_max78000.options import Options
from mace_target_max78000.report import analyze_program, draw_memory_map, format_data, format_summary
from mace_target_max78000.report.analysis import count_operations, estimate_cycles
from mace_target_max78002.device import MAX78002

TABLE = Path(__file__).parent / "report_texts.txt"


def streams(biased: bool) -> Network:
    layers, places = pair(streaming=True, planar=False, biased=False)
    bias = np.arange(8) - 4 if biased else None
    first = replace(layers[0], bias=bias, activation=LayerActivation.RELU)
    sample = np.arange(3 * 20 * 21).reshape(3, 20, 21) % 255 - 127
    return Network("two <streams>", (first, replace(layers[1], wide=True)), places, sample)


def several_passes() -> Network:
    """A layer of 68 channels in two passes on two quadrants and more, whose result is read twice."""
    values = np.ones((68, 68, 3, 3), np.int64)
    mask = (1 << 36) - 1
    copy = Layer("copy", Operation.PASSTHROUGH, (INPUT,), 68, (6, 5), 68)
    conv = Layer(
        *("conv", Operation.CONV2D, (0,), 68, (6, 5), 68, Weights(values, 4), np.ones(68, np.int64)),
        kernel=(3, 3),
        pad=(1, 1),
    )
    total = Layer(
        *("sum", Operation.PASSTHROUGH, (1, 0), 68, (6, 5), 68),
        eltwise=Eltwise.ADD,
        operands=2,
        output=True,
    )
    places = (
        LayerPlacement(mask, mask, 0x0, 0x400, write_gap=1),
        LayerPlacement(mask, mask, 0x400, 0x404, read_gap=1, write_gap=1),
        LayerPlacement(mask, mask, 0x400, 0x1000),
    )
    return Network("several passes", (copy, conv, total), places, np.zeros((68, 6, 5), np.int64))


REPORTS: dict[str, tuple[Network, Chip, Options]] = {
    "small": (network(), MAX78000, Options()),
    "streams": (streams(biased=False), MAX78000, Options(fifo=True)),
    "streams of the second generation": (streams(biased=True), MAX78002, Options(fifo=True)),
    "several passes": (several_passes(), MAX78002, Options(overlap_data=True)),
}


def write(name: str) -> str:
    made, device, options = REPORTS[name]
    report = analyze_program(made, synthesize(made, options, device), options)
    data = json.dumps(format_data(report))
    return f"{format_summary(report)}\n{data}\n\n{draw_memory_map(report)}".rstrip()


def read_table() -> dict[str, str]:
    blocks = TABLE.read_text(encoding="utf-8").split("\n=== ")[1:]
    parts = (block.partition("\n") for block in blocks)
    return {name: text.rstrip() for name, _, text in parts}


@pytest.mark.parametrize("name", REPORTS)
def test_texts(name: str) -> None:
    assert write(name) == read_table()[name]


def count_cycles(unit: HardwareLayer, pipeline: bool) -> int:
    """The vendor's formula, row by row and position by position."""
    layer, (kernel_rows, kernel_columns), (above, aside) = unit.layer, unit.layer.kernel, unit.pad
    (height, width), _, _ = layer.window
    passes, operands = unit.flattened, layer.operands
    times = 1 if layer.pool_first else passes
    # A position is read once for each pass; where the pool comes last, each operand has a window of its own.
    padding = 2 * passes * (operands if layer.pool_first else 1)
    data = passes * (operands * (height * width + 1) if layer.pool_first else operands * height * width + 1)
    rows, columns = (1, 1) if layer.flatten else layer.pooled
    if layer.operation is Operation.CONV_TRANSPOSE2D:
        rows, columns = 2 * rows, 2 * columns
    outputs = layer.out_dim[1] * unit.out_channel_count
    if unit.depthwise:
        outputs = layer.out_dim[1] * passes * (unit.timeslots((0,)) + 1)
    elif unit.out_channel_count == passes == 1:
        outputs += 1

    def whole_row(inside: int) -> int:
        return sum([padding + 1] * (2 * aside)) + sum(inside + 1 for _ in range(times * columns))

    def results_row(inside: int) -> int:
        lead = aside * (padding + 1) + times * (kernel_columns - 1 - aside) * (inside + 1)
        behind = times * (layer.out_dim[1] - aside) * inside + padding * aside
        reads = max(0, lead + behind)
        return max(reads, outputs) if pipeline else reads + outputs

    waiting = max(0, kernel_rows - 1 - above)
    cycles = sum(whole_row(padding) for _ in range(above)) + sum(whole_row(data) for _ in range(waiting))
    cycles += sum(results_row(data) for _ in range(rows - waiting))
    cycles += sum(results_row(padding) for _ in range(above))
    # More than 16 values of each processor, flattened, take a cycle more.
    return cycles + (layer.flatten and passes > 16)


def layers() -> list[Layer]:
    made = []
    for kernel, pad, (channels, out) in product(((1, 1), (3, 3)), (0, 1, 2), ((3, 5), (1, 1), (68, 8))):
        weights = Weights(np.ones((out, channels, *kernel), np.int64))
        plain = Layer(
            *("conv", Operation.CONV2D, (INPUT,), channels, (9, 8), out, weights),
            kernel=kernel,
            pad=(pad, pad),
        )
        made += [plain, replace(plain, pool=Pool(False, (2, 3), 2), activation=LayerActivation.ABS)]
        made += [
            replace(plain, eltwise=Eltwise.SUB, operands=2, pool=Pool(True, (2, 2), 1), pool_first=first)
            for first in (True, False)
        ]
    up = Layer(
        *("up", Operation.CONV_TRANSPOSE2D, (INPUT,), 4, (5, 6), 3, Weights(np.ones((4, 3, 3, 3), np.int64))),
        kernel=(3, 3),
        pad=(1, 1),
    )
    depthwise = Layer(
        *("depthwise", Operation.CONV2D, (INPUT,), 8, (5, 6), 8, Weights(np.ones((8, 1, 3, 3), np.int64))),
        kernel=(3, 3),
        pad=(1, 1),
        groups=8,
    )
    flat = [
        Layer(
            *(
                "flat",
                Operation.LINEAR,
                (INPUT,),
                4,
                dim,
                3,
                Weights(np.ones((3, 4 * dim[0] * dim[1]), np.int64)),
            ),
            flatten=True,
        )
        for dim in ((4, 4), (4, 5))
    ]
    return [*made, up, depthwise, *flat]


LAYERS = layers()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("pipeline", [False, True])
def test_cycles_of_convolutions(pipeline: bool, streaming: bool) -> None:
    for number, layer in enumerate(LAYERS):
        processors = (1 << min(layer.channels, 36)) - 1
        made = Network(
            *(
                "one",
                (layer,),
                (LayerPlacement(processors, (1 << layer.out_channels) - 1, streaming=streaming),),
            ),
            np.zeros((layer.channels * layer.operands, *layer.dim), np.int64),
        )
        (unit,) = make_hardware_layers(made, MAX78002 if pipeline else MAX78000)
        expected = count_cycles(unit, pipeline)
        # A layer that waits for its input takes half as long again.
        expected = expected * 3 // 2 if streaming else expected
        assert estimate_cycles(unit, (0,), pipeline) == expected, number


def test_operations_are_counted_one_by_one() -> None:
    for number, layer in enumerate(LAYERS):
        counts = count_operations(layer)
        outputs = layer.out_channels * layer.out_dim[0] * layer.out_dim[1]
        inside = layer.pooled[0] * layer.pooled[1] if layer.flatten else 1
        products = layer.channels // layer.groups * layer.kernel[0] * layer.kernel[1] * inside
        assert counts.multiplications == outputs * products, number
        activated = outputs if layer.activation is not LayerActivation.NONE else 0
        window, _, _ = layer.window
        positions = layer.channels * layer.pooled[0] * layer.pooled[1]
        pooled = positions * window[0] * window[1] * (layer.operands if layer.pool_first else 1)
        average = layer.pool is not None and layer.pool.average
        assert counts.comparisons == activated + (pooled if layer.pool and not average else 0), number
        combined = positions if layer.pool_first else layer.channels * layer.dim[0] * layer.dim[1]
        added = (layer.operands - 1) * combined if layer.eltwise else 0
        assert counts.additions == added + (pooled if average else 0), number
        assert counts.bitwise == 0
