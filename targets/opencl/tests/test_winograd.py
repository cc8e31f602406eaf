"""Winograd's convolution: where it is used, and how far its results are from the references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import load_on_device, measure_error, require_device

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Shape
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

LIMITS = {2: 2e-6, 4: 2e-5}
"""Errors of the range of a result; a direct convolution has 1e-6."""

PLAIN = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def build_conv(name: str, x: Shape, w: Shape, **attrs: object) -> Graph:
    """Return a convolution with a bias, a clamp, and a sum with another tensor behind it."""
    builder, rng = Builder(name), np.random.default_rng(0)
    operands = [
        builder.input("x", DType.F32, x),
        builder.weight("w", rng.standard_normal(w).astype(np.float32)),
        builder.weight("b", rng.standard_normal(w[0]).astype(np.float32)),
    ]
    y = builder.one("Conv", operands, {**PLAIN, "low": -20.0, **attrs})
    other = builder.input("other", DType.F32, builder.tensors[y].shape)
    return builder.finish([builder.one("Add", [y, other])])


TAKEN = (
    build_conv("even", (1, 16, 16, 32), (16, 3, 3, 32)),
    build_conv("odd", (2, 17, 19, 20), (24, 3, 3, 20), pads_after=(0, 1)),
    build_conv("unpadded", (1, 23, 18, 16), (64, 3, 3, 16), pads_before=(0, 0), pads_after=(0, 0)),
)
DIRECT = (
    build_conv("strided", (1, 32, 32, 32), (16, 3, 3, 32), strides=(2, 1)),
    build_conv("dilated", (1, 32, 32, 32), (16, 3, 3, 32), dilations=(2, 2)),
    build_conv("grouped", (1, 32, 32, 64), (32, 3, 3, 32), group=2),
    build_conv("narrow", (1, 32, 32, 3), (16, 3, 3, 3)),
    build_conv("odd_channels", (1, 32, 32, 18), (16, 3, 3, 18)),
    build_conv("large_window", (1, 32, 32, 32), (16, 5, 5, 32)),
    build_conv("few_tiles", (1, 5, 5, 32), (16, 3, 3, 32)),
)


def list_templates(graph: Graph, options: OpenclOptions) -> list[str]:
    return [call.kernel.template.name for call in Opencl(options).lower(graph).calls]


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("graph", TAKEN, ids=lambda graph: graph.name)
def test_a_square_window_is_transformed_where_the_option_allows_it(graph: Graph, tile: int) -> None:
    templates = list_templates(graph, OpenclOptions(winograd=tile))
    assert len(templates) == 3, "what follows the convolution is computed with its last transform"
    assert (templates[0], templates[2]) == ("winograd_data.cl.in", "winograd_results.cl.in")
    assert "winograd" not in "".join(list_templates(graph, OpenclOptions()))


@pytest.mark.parametrize("graph", DIRECT, ids=lambda graph: graph.name)
def test_what_is_not_worth_it_is_computed_directly(graph: Graph) -> None:
    assert "winograd" not in "".join(list_templates(graph, OpenclOptions(winograd=4)))


def test_a_larger_tile_than_there_is_allows_the_largest() -> None:
    kernels = [call.kernel for call in Opencl(OpenclOptions(winograd=6)).lower(TAKEN[0]).calls]
    assert kernels[0].params["tile"] == 4


def test_half_precision_takes_the_small_tile() -> None:
    kernels = [call.kernel for call in Opencl(OpenclOptions("f16", winograd=4)).lower(TAKEN[0]).calls]
    assert kernels[0].params["tile"] == 2


def test_the_key_of_the_deployment_file_is_the_option() -> None:
    assert OpenclOptions.of_model(Model("m", (), keys={"winograd": 4})).winograd == 4
    assert OpenclOptions.of_model(Model("m", ())).winograd == 0


@pytest.mark.parametrize(("error", "tile"), [(1e-4, 4), (1e-6, 2)])
def test_a_bound_chooses_the_tile(error: float, tile: int) -> None:
    model = Model("m", (), keys={"winograd": 4, "winograd_error": error})
    kernels = [call.kernel for call in Opencl(OpenclOptions.of_model(model)).lower(TAKEN[0]).calls]
    assert kernels[0].params["tile"] == tile


def test_a_bound_below_all_tiles_leaves_the_direct_sum() -> None:
    options = OpenclOptions(winograd=4, winograd_error=1e-9)
    assert "winograd" not in "".join(list_templates(TAKEN[0], options))


def test_a_bound_is_refused_for_half_precision() -> None:
    keys = {"winograd": 4, "winograd_error": 1e-5, "data_type": "fp16_fp32"}
    with pytest.raises(MaceError, match="winograd_error: is measured in single precision, not in half"):
        OpenclOptions.of_model(Model("m", (), keys=keys))


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("tile", [2, 4])
def test_results_are_within_the_bound(tile: int, tmp_path: Path) -> None:
    require_device()
    graph = merge("winograd", TAKEN)
    model = load_on_device([graph], tmp_path, Opencl(OpenclOptions(winograd=tile)))["winograd"]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    errors = {name: measure_error(outputs[name], expected[name]) for name in graph.outputs}
    assert max(errors.values()) < LIMITS[tile], errors
