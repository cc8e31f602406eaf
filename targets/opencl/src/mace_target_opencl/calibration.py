"""Graphs by which `mace tune` measures the numbers of `Costs`, and what follows from their times."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mace_core.calibration import Numbers, ProbeTime
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.operators import multiply_adds

KERNELS = 33
"""Of the graph that shows the time of a launch: 32 more than that of the other graph."""

COPIED = (256, 128, 128)
"""16 MiB of floats: more than caches of phones hold, and small beside their memory."""

IMAGE = (1, 56, 56, 64)
"""Of a convolution in the middle of a ResNet: 116 million multiply-adds, which fill a small GPU."""

MIN_US = 0.01
"""The least time that is believed: a difference of two times may be zero or less where others compute too."""


def build_probes() -> list[Graph]:
    """Return the graphs: one short kernel, many of them, one that moves bytes, and one that multiplies."""
    return [build_chain("one", 1), build_chain("many", KERNELS), build_copy(), build_product()]


def build_chain(name: str, count: int) -> Graph:
    """Return so many short kernels, each of which waits for the one before.

    Softmax is not fused with its neighbors, as element-wise ops are.
    """
    builder = Builder(name)
    x = builder.input("x", DType.F32, (1, 64))
    for _ in range(count):
        x = builder.one("Softmax", [x])
    return builder.finish([x])


def build_copy() -> Graph:
    """Return a kernel that computes next to nothing with many bytes."""
    builder = Builder("copy")
    return builder.finish([builder.one("Relu", [builder.input("x", DType.F32, COPIED)])])


def build_product() -> Graph:
    """Return a convolution."""
    builder = Builder("product")
    channels = IMAGE[-1]
    filters = np.full((channels, 3, 3, channels), 0.01, np.float32)
    attrs = {"pads_before": (1, 1), "pads_after": (1, 1), "strides": (1, 1), "dilations": (1, 1)}
    x = builder.input("x", DType.F32, IMAGE)
    return builder.finish([builder.one("Conv", [x, builder.weight("w", filters)], attrs)])


def fit_costs(device: Sequence[ProbeTime], processor: Sequence[ProbeTime]) -> Numbers:
    """Return the costs that follow from the times of `build_probes` on the device and on the processor.

    The estimate adds a part for each launch, one for each change of device, and bytes over rates: each graph
    has one of them large and the others known. MaceError for a device that does not measure its kernels: in
    the time of a run alone, their rates cannot be told from those of the copies.
    """
    one, many, copy, product = device
    if not copy.layers or not product.layers:
        raise MaceError(
            "mace tune: costs of opencl",
            "the device's driver tells no times of kernels, from which its rates follow",
            "under `target_options: opencl:` state `costs`, and `regions: all` while you tune",
        )
    launch_us = _positive((many.ns - one.ns) / (KERNELS - 1) / 1e3)
    sync_us = _positive(one.ns / 1e3 - launch_us)
    copied = 2 * 4 * prod(COPIED)  # in and out again
    copy_us = _positive((copy.ns - sum(copy.layers)) / 1e3 - sync_us - launch_us)
    rates = {
        "gpu_gmacs": _count_macs() / _positive(sum(product.layers) / 1e3) / 1e3,
        "gpu_gb_s": copied / _positive(sum(copy.layers) / 1e3) / 1e3,
        "cpu_gmacs": _count_macs() / _positive(sum(processor[3].layers) / 1e3) / 1e3,
        "cpu_gb_s": copied / _positive(sum(processor[2].layers) / 1e3) / 1e3,
        "copy_gb_s": copied / copy_us / 1e3,
    }
    return {"sync_us": sync_us, "launch_us": launch_us, **rates}


def _positive(us: float) -> float:
    return max(us, MIN_US)


def _count_macs() -> int:
    graph = build_product()
    return multiply_adds(graph.nodes[0], graph)
