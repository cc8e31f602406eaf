"""What is worth a remote call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import count_packets
from hexagon_models import LARGER, RealModel
from test_dsp_products import I16, POINT, convolve
from test_halves import BYTES, HALVES, I8, U8, multiply

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.testing.compiled import merge
from mace_target_hexagon.costs import DspCosts
from mace_target_hexagon.options import HexagonOptions
from mace_target_hexagon.target import Hexagon


def convolution(size: int, channels: int, dtype: DType) -> Graph:
    """Return a convolution of 3 x 3 that keeps the shape."""
    builder = Builder("m")
    window = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1)}
    quant = Quant.of(0.1) if dtype is DType.U8 else None
    x = builder.input("x", dtype, (1, size, size, channels), quant)
    w = builder.weight("w", np.ones((channels, 3, 3, channels), dtype.numpy), quant)
    if quant is None:
        return builder.finish([builder.one("Conv", [x, w], window)])
    y = builder.reserve_output("y", Storage(dtype, quant))
    return builder.finish([builder.one("Conv", [x, w], window, outputs=[y])])


def test_large_integer_regions_are_worth_a_call_and_small_ones_are_not() -> None:
    costs = DspCosts()
    assert costs.is_worth(convolution(56, 128, DType.U8))
    assert not costs.is_worth(convolution(8, 16, DType.U8))


def test_floats_are_never_worth_it() -> None:
    assert not DspCosts().is_worth(convolution(56, 128, DType.F32))


def test_a_longer_call_needs_more_work() -> None:
    graph = convolution(56, 128, DType.U8)
    assert not DspCosts(call_us=1e5).is_worth(graph)
    assert DspCosts(call_us=1).estimate_dsp_us(graph) < DspCosts(call_us=100).estimate_dsp_us(graph)


def test_only_a_model_that_shares_the_processor_is_weighed() -> None:
    small = convolution(8, 16, DType.U8)
    for options, runtimes, expected in (
        ({}, ("dsp",), True),
        ({}, ("cpu", "dsp"), False),
        ({"regions": "all"}, ("cpu", "dsp"), True),
        ({"regions": "worthwhile"}, ("dsp",), False),
    ):
        assert Hexagon(HexagonOptions.of(options, "m", runtimes)).worth(small) is expected


def test_more_threads_make_the_dsp_faster_and_no_call_cheaper() -> None:
    graph = convolution(56, 128, DType.U8)
    one, four = (DspCosts(threads=threads).estimate_dsp_us(graph) for threads in (1, 4))
    fixed = DspCosts(threads=1e9).estimate_dsp_us(graph)
    assert (one - fixed) / (four - fixed) == pytest.approx(4)
    assert fixed > DspCosts().call_us


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("model", LARGER[:2], ids=lambda model: model.name)
def test_estimated_packets_are_near_those_that_are_counted(model: RealModel, tmp_path: Path) -> None:
    graph = model.read_graph(tmp_path)
    assert 0.5 < DspCosts().estimate_packets(graph) / count_packets(graph, tmp_path) < 2


@pytest.mark.slow
@pytest.mark.emulator
def test_products_of_sixteen_bits_are_estimated_near_what_is_counted(tmp_path: Path) -> None:
    """Counted with `shapes.py` for each of them: 0.29, 0.34, 0.15 and 0.11 million packets."""
    graphs = (
        convolve("point", (1, 14, 14, 96), (576, 1, 1, 96), I16, HALVES, **POINT),
        convolve("window", (1, 28, 28, 32), (32, 3, 3, 32), I16, HALVES),
        convolve("thin", (1, 28, 28, 192), (32, 1, 1, 192), I16, HALVES, **POINT),
        multiply("computed", ((12, 64, 32), (12, 32, 64)), (I8, U8), BYTES),
    )
    graph = merge("halves", graphs)
    assert 0.7 < DspCosts().estimate_packets(graph) / count_packets(graph, tmp_path) < 1.4
