"""Pads of tensors that store real numbers as integers."""

from __future__ import annotations

import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant
from mace_target_opencl.enqueue import render_kernel
from mace_target_opencl.target import Opencl


def build_pad(quant: Quant, value: float) -> Graph:
    builder = Builder("pad")
    x = builder.input("x", DType.I8, (1, 4, 4, 2), quant)
    attrs = {"before": (0, 1, 0, 0), "after": (0, 0, 1, 0), "value": value}
    return builder.finish([builder.one("Pad", [x], attrs)])


@pytest.mark.parametrize(("value", "stored"), [(0.0, "-3"), (1.0, "1"), (1e9, "127")])
def test_padding_is_stored_as_the_elements_beside_it(value: float, stored: str) -> None:
    (call,) = Opencl().lower(build_pad(Quant.of(0.25, -3), value)).calls
    assert f"char v = ({stored});" in render_kernel(call.kernel)


def test_padding_that_each_channel_stores_differently_is_refused() -> None:
    graph = build_pad(Quant((0.25, 0.5), (0, 0), 3), 1.0)
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "quantization"
