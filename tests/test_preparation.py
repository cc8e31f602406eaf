"""Inputs that are prepared in the library: mean, scale, order of color, pixels of a camera.

Beside the framework on prepared data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from manifest import MODELS
from onnx import TensorProto, helper

from mace_core.errors import MaceError
from mace_core.generation import generate
from mace_core.ir import Array
from mace_core.job import Job
from mace_core.pipeline import load, load_with
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.framework import Framework
from mace_core.run.reference import execute
from mace_core.testing.compiled import with_quick_flags
from mace_core.testing.requirements import require
from mace_core.transforms import run_phases

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def convolution(folder: Path, pads: int, weights: Array) -> Path:
    """A convolution over a picture, channels first."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w"], ["c"], pads=[pads] * 4),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 6, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    file = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def deployment(folder: Path, file: Path, *lines: str) -> Path:
    text = "".join(f"    {line}\n" for line in lines)
    (folder / "net.yml").write_text(
        f"library_name: net\nmodels:\n  net:\n    model_file_path: {file}\n{text}"
    )
    return folder / "net.yml"


class Library:
    """A deployment, compiled and loaded; and its graph and framework."""

    def __init__(self, folder: Path, file: Path) -> None:
        registry = Registry.load()
        (choice,) = registry.select("host")
        parsed = load_with(registry, file)
        (self.parsed,) = parsed.models
        self.graph = run_phases(load(self.parsed, registry), registry)
        sources = with_quick_flags(generate(Job(parsed, choice), registry).sources)
        library = shared_library(sources, choice.compiler, folder, ())
        self.model = native.load(library, "net")["net"]
        self.framework = Framework.of(self.parsed, registry)

    @property
    def ops(self) -> list[str]:
        return [node.op.name for node in self.graph.nodes]


def camera(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(1).integers(0, 255, shape, endpoint=True, dtype=np.uint8)


def by_hand(pixels: Array) -> Array:
    """The pixels of a camera (NHWC, BGR) as the framework's users prepare them."""
    rgb = pixels[..., ::-1].astype(np.float64)
    return np.ascontiguousarray(((rgb - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32))


@pytest.mark.slow
@pytest.mark.sampled(cases="0")
@pytest.mark.parametrize("pads", [0, 1])
def test_pixels_of_a_camera_give_what_the_framework_gives_for_prepared_data(
    tmp_path: Path, pads: int
) -> None:
    """The border of a padded convolution too, where a folded mean would be wrong."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    keys = ("input_data_types: uint8", "input_data_formats: NHWC", "input_color: BGR")
    stated = (f"input_mean: {list(MEAN)}", f"input_std: {','.join(map(str, STD))}")
    library = Library(tmp_path, deployment(tmp_path, convolution(tmp_path, pads, weights), *keys, *stated))
    (port,) = library.model.inputs
    assert (port.name, port.dtype.value, port.shape) == ("image", "u8", (1, 6, 7, 3))
    pixels = camera(port.shape)
    reference = library.framework.reference()
    expected = reference({"image": by_hand(pixels)})["y"]
    np.testing.assert_allclose(library.model.run({"image": pixels})["y"], expected, atol=2e-5)
    np.testing.assert_allclose(library.framework.run(reference, {"image": pixels})["y"], expected, atol=2e-5)
    assert "Gather" not in library.ops, "the filters take the order of color in"
    assert ("Sub" in library.ops or "BatchNorm" in library.ops) == bool(pads), (
        "and without a border the mean too"
    )


@pytest.mark.slow
@pytest.mark.sampled(cases="0")
@pytest.mark.parametrize("pads", [0, 1])
def test_what_is_folded_exactly_gives_the_same_bits(tmp_path: Path, pads: int) -> None:
    """Weights, means and factors that float32 adds and multiplies without rounding: whatever differs is no rounding."""
    weights = np.random.default_rng(0).integers(-8, 8, (4, 3, 3, 3)).astype(np.float32) / 8
    keys = (
        "input_data_types: uint8",
        "input_data_formats: NHWC",
        "input_color: BGR",
        "input_mean: [128, 64, 32]",
        "input_scale: 0.0078125",
    )
    library = Library(tmp_path, deployment(tmp_path, convolution(tmp_path, pads, weights), *keys))
    pixels = camera((1, 6, 7, 3))
    prepared = (pixels[..., ::-1].astype(np.float32) - np.float32([128, 64, 32])) / 128
    expected = library.framework.reference()({"image": np.ascontiguousarray(prepared.transpose(0, 3, 1, 2))})[
        "y"
    ]
    assert library.model.run({"image": pixels})["y"].tobytes() == expected.tobytes()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_one_number_holds_for_every_input_and_axis(tmp_path: Path) -> None:
    weights = np.ones((1, 3, 1, 1), np.float32)
    library = Library(
        tmp_path, deployment(tmp_path, convolution(tmp_path, 0, weights), "input_mean: 1", "input_scale: 2")
    )
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 7)).astype(np.float32)
    np.testing.assert_allclose(
        library.model.run({"image": x})["y"], np.maximum(((x - 1) * 2).sum(1, keepdims=True), 0), atol=1e-5
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["input_mean: [1, 2]"], "input 'image': input_mean has 2 numbers for 3 channels"),
        (
            ["input_mean: [1, 2, 3]", "input_tensors: c", "input_shapes: '1,2,4,5'"],
            "input_mean has 3 numbers for 2 channels",
        ),
        (
            ["input_color: BGR", "input_tensors: c", "input_shapes: '1,2,4,5'"],
            "input_color reverses 3 channels, it has 2",
        ),
        (["input_std: 0"], "net.yml:5: input_std: 0 is not allowed; write finite numbers above 0"),
        (["input_scale: [1, 0, 1]"], "input_scale: 0 is not allowed; write finite numbers that are not 0"),
        (["input_mean: 1e999"], "input_mean: inf is not allowed; write finite numbers"),
        (["input_scale: 1", "input_std: 1"], "net.yml:6: input_std: input_scale is there too"),
        (["input_color: RGBA"], "net.yml:5: input_color: 'RGBA' is not allowed"),
        (["input_meen: 1"], "input_meen: unknown key; did you mean 'input_mean'?"),
    ],
)
def test_what_cannot_be_prepared_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    file = deployment(tmp_path, convolution(tmp_path, 0, np.ones((2, 3, 3, 3), np.float32)), *lines)
    registry = Registry.load()
    with pytest.raises(MaceError) as error:
        load(load_with(registry, file).models[0], registry)
    assert said in str(error.value)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_model_of_integers_takes_pixels(tmp_path: Path) -> None:
    """Its own input is stored as int8; what the application gives is quantized behind the preparation."""
    file = MODELS / "mlperf_ic/ic_int8.tflite"
    require(None if file.is_file() else f"{file} is not there")
    library = Library(tmp_path, deployment(tmp_path, file, "input_data_types: uint8"))
    (port,) = library.model.inputs
    assert (port.dtype.value, port.quant) == ("u8", None)
    pixels = camera(port.shape)
    framework = library.framework
    stored = framework.convert_inputs({port.name: pixels})[framework.graph.inputs[0]]
    np.testing.assert_array_equal(stored, (pixels.astype(np.int16) - 128).astype(np.int8))
    expected = execute(library.graph, {port.name: pixels})
    for name, array in library.model.run({port.name: pixels}).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.exhaustive
def test_a_real_network_takes_pixels(tmp_path: Path) -> None:
    """UltraFace wants (RGB - 127) / 128."""
    file = next(iter(sorted((MODELS / "ultraface_rfb").glob("*.onnx"))), None)
    require(None if file else f"{MODELS}/ultraface_rfb is not there")
    assert file is not None
    lines = (
        "input_data_types: uint8",
        "input_data_formats: NHWC",
        "input_color: BGR",
        "input_mean: 127",
        "input_std: 128",
    )
    library = Library(tmp_path, deployment(tmp_path, file, *lines))
    (port,) = library.model.inputs
    pixels = camera(port.shape)
    prepared = ((pixels[..., ::-1].astype(np.float32) - 127) / 128).transpose(0, 3, 1, 2)
    expected: Any = library.framework.reference()(
        {library.framework.graph.inputs[0]: np.ascontiguousarray(prepared)}
    )
    for name, array in library.model.run({port.name: pixels}).items():
        np.testing.assert_allclose(array, expected[name], atol=2e-4)
