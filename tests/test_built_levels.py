"""Libraries as a user builds them, optimized, at every level that this processor has.

Tests of kernels compile with little optimization. What a compiler leaves out or moves because a kernel does
not tell what it reads shows only here: a library for AMX once ended each process, and no other test saw it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from manifest import MODELS, Entry, entries
from numerics_network import CONV, Network
from onnx import TensorProto, helper, numpy_helper
from small_project import SCONS, run
from tflite_write import Scales, Written, write

from mace_core.deployment import Model
from mace_core.ir import Array, Tensor
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.reference import execute
from mace_core.run.runners import Native
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu, is_x86

pytestmark = pytest.mark.skipif(not is_x86("host"), reason="the levels of x86-64 are for that processor")

LEVELS = [str(level.name) for level in levels_here(Cpu().known_levels("host"))]
SPREAD = 4e-6
"""Levels may differ by so much of the largest float of a result: their sums have other orders and roundings."""
REAL_SPREAD = 2e-5
"""The same behind the hundred layers of a real network; 6.3e-6 was measured, of PP-OCRv4 recognition."""

SAMPLES = 2
"""Of each real network; the largest take a second at the lowest level."""


def build(folder: Path, models: str, levels: Sequence[str]) -> BuiltLibrary:
    """Build a library for some levels of this processor, with the flags that a build has by itself."""
    (folder / "levels.yml").write_text(
        f"library_name: levels\ncpu_features: [{', '.join(levels)}]\nmodels:\n{models}"
    )
    script = str(files("mace_core.run") / "SConstruct")
    run([*SCONS, "-Q", "-j2", "-f", script, "deployment=levels.yml", "target=host"], folder, os.environ)
    return BuiltLibrary.open(folder / "builds" / "levels", "host", Native())


def write_bytes(file: Path) -> None:
    """Write a quantized network: windows of an image, windows of each channel, and products by tiles."""
    network = Network()
    image = network.tensor("x", (1, 19, 18, 3), Scales((1 / 128,), (-3,)))
    same = {**CONV, "FusedActivationFunction": 1}
    first = network.product("first", image, ((40, 3, 3, 3), 0), ("Conv2DOptions", same))
    depthwise = ("DepthwiseConv2DOptions", {**same, "DepthMultiplier": 1})
    channels = network.product("channels", first, ((1, 3, 3, 40), 3), depthwise)
    points = network.product("points", channels, ((72, 1, 1, 40), 0), ("Conv2DOptions", CONV))
    strided = {**CONV, "StrideH": 2, "StrideW": 2}
    network.product("windows", points, ((33, 3, 3, 72), 0), ("Conv2DOptions", strided))
    file.write_bytes(write(Written([*network.values.values()], network.steps, ["x"], ["windows"])))


def write_floats(file: Path) -> None:
    """Write a network of the same kind, of floats."""
    rng = np.random.default_rng(5)
    shapes = {"w1": (40, 3, 3, 3), "w2": (40, 1, 3, 3), "w3": (72, 40, 1, 1), "w4": (33, 72, 3, 3)}
    weights = [
        numpy_helper.from_array(rng.normal(0, np.prod(s[1:]) ** -0.5, s).astype(np.float32), name)
        for name, s in shapes.items()
    ]
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["first"], pads=pads),
        helper.make_node("Conv", ["first", "w2"], ["channels"], pads=pads, group=40),
        helper.make_node("Conv", ["channels", "w3"], ["points"]),
        helper.make_node("Conv", ["points", "w4"], ["windows"], pads=pads, strides=[2, 2]),
    ]
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [1, 3, 19, 18]), ("windows", [1, 33, 10, 9]))
    ]
    graph = helper.make_graph(nodes, "net", *ports, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)


def draw_inputs(tensors: Sequence[Tensor], count: int) -> dict[str, Array]:
    """Return samples: all that a quantized tensor stores, small other integers, floats from -1 to 1."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        shape, dtype = (count, *tensor.shape), tensor.dtype.numpy
        if tensor.quant:
            ends = np.iinfo(dtype)
            arrays[tensor.name] = rng.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)
        elif tensor.dtype.is_float:
            arrays[tensor.name] = rng.uniform(-1, 1, shape).astype(dtype)
        else:
            arrays[tensor.name] = rng.integers(0, 2, shape).astype(dtype)
    return arrays


def compare_levels(
    built: BuiltLibrary, name: str, inputs: Mapping[str, Array], levels: Sequence[str], spread: float
) -> dict[str, Array]:
    """Assert that a model computes the same at every level; return what the lowest one gives."""
    results = {}
    for level in levels:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MACE_CPU_LEVEL", level)
            session = built.run_session(name, inputs)
        assert session.devices == (f"cpu: {level}",)
        results[level] = session.outputs
    lowest = dict(results[levels[-1]])
    for level, outputs in results.items():
        for tensor in built.model(name)["outputs"]:
            compare(outputs[tensor.name], lowest[tensor.name], f"{name}/{tensor.name} at {level}", spread)
    return lowest


def compare(actual: Array, expected: Array, place: str, spread: float) -> None:
    """Assert that integers are equal, and floats within `spread` of the largest."""
    if not np.issubdtype(expected.dtype, np.floating):
        np.testing.assert_array_equal(actual, expected, err_msg=place)
        return
    size = float(np.abs(expected).max(initial=1e-30))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=spread * size, err_msg=place)


@pytest.mark.slow
@pytest.mark.sampled(cases="best")
@pytest.mark.parametrize("levels", [LEVELS[:: len(LEVELS) - 1 or 1], LEVELS], ids=["best", "all"])
def test_a_built_library_computes_what_the_reference_does(levels: Sequence[str], tmp_path: Path) -> None:
    networks = {"bytes": tmp_path / "bytes.tflite", "floats": tmp_path / "floats.onnx"}
    write_bytes(networks["bytes"])
    write_floats(networks["floats"])
    built = build(
        tmp_path, "".join(f"  {n}:\n    model_file_path: {f.name}\n" for n, f in networks.items()), levels
    )
    registry = Registry.load()
    for name, file in networks.items():
        model = Model(name, (file,))
        graph = registry.frontend(model).load(model.files, model, registry.ops)
        ports = built.model(name)["inputs"]
        inputs = draw_inputs(ports, 1)
        found = compare_levels(built, name, inputs, levels, SPREAD)
        expected = execute(graph, {n: a[0] for n, a in inputs.items()})
        (output,) = graph.outputs
        assert len(np.unique(expected[output])) > 30, name
        compare(found[output][0], expected[output], f"{name}/{output} beside the reference", SPREAD)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> BuiltLibrary:
    """Return a library of all real networks for all levels; its compilation takes minutes."""
    return build(tmp_path_factory.mktemp("real"), "".join(entry.yaml() for entry in entries()), LEVELS)


@pytest.mark.exhaustive
@pytest.mark.skipif(not any(entries()), reason=f"no models in {MODELS}; MACE_MODELS names another folder")
@pytest.mark.parametrize("entry", list(entries()), ids=lambda entry: str(entry.name))
def test_real_models_are_the_same_at_every_level(entry: Entry, real: BuiltLibrary) -> None:
    ports = real.model(entry.name)["inputs"]
    inputs = entry.inputs(ports) if entry.golden_file else draw_inputs(ports, 1)
    few = {name: array[:SAMPLES] for name, array in inputs.items()}
    compare_levels(real, entry.name, few, LEVELS, REAL_SPREAD)
