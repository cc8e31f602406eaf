"""The estimate by which a region goes to the GPU or stays on the processor."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.partition import partition
from mace_core.registry import Registry
from mace_target_opencl.costs import HYSTERESIS, Costs
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl


def product(size: int, name: str = "product") -> Graph:
    """Return a product of two square matrices."""
    builder = Builder(name)
    x = builder.input("x", DType.F32, (size, size))
    return builder.finish(
        [builder.one("MatMul", [x, builder.weight("w", np.zeros((size, size), np.float32))])]
    )


def test_the_estimate_adds_products_bytes_launches_and_copies() -> None:
    costs = Costs(200, 10, 10, 100, 1, 2, 4)
    graph = product(100)
    # 10^6 multiply-adds; 3 tensors of 40,000 bytes, of which two are copied.
    assert costs.estimate_cpu_us(graph) == pytest.approx(100 + 120)
    assert costs.estimate_gpu_us(graph) == pytest.approx(200 + 10 + 10 + 60 + 20)


def test_the_gpu_must_be_clearly_faster() -> None:
    graph = product(100)
    costs = Costs()
    gpu = costs.estimate_gpu_us(graph)
    bytes_us = costs.estimate_cpu_us(graph) - 1e6 / costs.cpu_gmacs / 1e3
    limit = 1e3 / (gpu / HYSTERESIS - bytes_us)  # the rate of the processor at which both are level
    assert Costs(cpu_gmacs=limit * 0.99).is_worth(graph)
    assert not Costs(cpu_gmacs=limit * 1.01).is_worth(graph)
    assert not Costs().is_worth(product(8))
    assert Costs().is_worth(product(700))


@pytest.mark.parametrize(
    ("is_selective", "size", "target"), [(True, 8, "cpu"), (True, 700, "opencl"), (False, 8, "opencl")]
)
def test_partition_leaves_small_regions_to_the_processor(is_selective: bool, size: int, target: str) -> None:
    cpu = Registry.load().targets["cpu"]
    divided = partition(product(size), [Opencl(OpenclOptions(is_selective=is_selective)), cpu])
    assert [region.target.name for region in divided.regions] == [target]
    refused = [refusal.refusal.code for refusal in divided.refusals if refusal.target == "opencl"]
    assert refused == (["not-worth-it"] if target == "cpu" else [])
