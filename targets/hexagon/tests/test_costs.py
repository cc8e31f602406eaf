"""What is worth a remote call."""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
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
