"""Every real network, end to end: deployment file, scons, library, runner, beside its golden outputs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from manifest import MODELS, Entry, entries

from mace_core.deployment import Model
from mace_core.ir import Array, Tensor
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.similarity import cosine, relative_error
from mace_core.run.validate import MAX_ERROR, MIN_COSINE
from mace_core.testing.requirements import require

ENTRIES = {e.name: e for e in entries()}
FLOAT_ONNX = (
    "model_onnx",
    "silero_vad_openvino_16k_onnx",
    "ch_ppocr_mobile_v2_0_cls_infer_onnx",
    "version_rfb_320_onnx",
)
CHOICES: Mapping[str, tuple[str, ...]] = {
    "small": (
        "model_onnx",
        "ic_int8_tflite",
        "kws_fp32_tflite",
        "trained_lstm_int8_tflite",
        "ds_cnn_s_core_pb",
        "det2_caffemodel",
    ),
    "host": tuple(ENTRIES),
    "arm64-v8a": tuple(e.name for e in ENTRIES.values() if not e.large),
    "armeabi-v7a": FLOAT_ONNX,
}
"""Names of deployments, each for the ABI of its name -> their models; the small one is for the host."""
ULTRAFACE = ("version_rfb_320_onnx", "rfb_320_caffemodel", "version_rfb_320_without_postprocessing_tflite")
EMULATED_SAMPLES = 2

STEPS, SHARE = 2, 0.99
"""Integers may be so many steps from those of the framework's plain kernels, this share of them at least."""

OTHER_ARITHMETIC: Mapping[str, float] = {
    # LiteRT computes floats with eight-bit weights by quantizing activations as well: its own two sets of
    # kernels agree to 0.997
    "kws_fp32_tflite": 0.99,
    # scales found at run time: a rounding that falls otherwise in one layer moves all scales after it
    "minilm_l6_int8_dynamic_onnx": 0.999,
    # made where products of unsigned and signed bytes saturate; ONNX Runtime without that gives what we give
    # (next test but one)
    "shufflenet_v2_12_int8_onnx": 0.5,
}
"""Models whose golden outputs come from other arithmetic than the model states -> the least cosine to them."""

AMBIGUOUS = ("ic_int8_tflite",)
"""Models of ten outputs where a rounding of an inner layer that falls otherwise shows: LiteRT's two sets of kernels are 7 steps apart."""

pytestmark = pytest.mark.skipif(
    not ENTRIES, reason=f"no models in {MODELS}; MACE_MODELS names another folder"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the deployments lie, one for each choice."""
    path = tmp_path_factory.mktemp("models")
    for choice, names in CHOICES.items():
        text = "library_name: real\nmodels:\n" + "".join(ENTRIES[n].yaml() for n in names)
        (path / f"{choice}.yml").write_text(text)
    return path


def build(folder: Path, name: str) -> BuiltLibrary:
    """The library of a deployment; built once."""
    choice = "host" if name == "small" else name
    (selected,) = Registry.load().select(choice)
    if selected.runner is None:
        pytest.skip(f"nothing executes {choice} here")
    require(selected.runner.missing())
    script = str(files("mace_core.run") / "SConstruct")
    command = [
        sys.executable,
        "-m",
        "SCons",
        "-Q",
        "-j2",
        "-f",
        script,
        f"deployment={name}.yml",
        f"builds={name}",
        f"target={choice}",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return BuiltLibrary.open(folder / name / "real", choice, selected.runner)


def samples(built: BuiltLibrary, entry: Entry) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs and expected outputs by name, each with a leading axis of samples.

    The framework's own where the manifest has none.
    """
    ports = built.model(entry.name)
    if entry.golden_file:
        return entry.inputs(ports["inputs"]), entry.expected(ports["inputs"], ports["outputs"])
    model = Model(entry.name, tuple(entry.files))
    reference = Registry.load().frontend(model).reference(model.files, model)
    assert reference is not None, "the frameworks are development requirements"
    (port,) = ports["inputs"]
    image = np.random.default_rng(0).uniform(-1, 1, port.shape).astype(np.float32)
    return {port.name: image[None]}, {
        n: np.asarray(a)[None] for n, a in reference({port.name: image}).items()
    }


def judge(entry: Entry, tensor: Tensor, found: Array, expected: Array) -> None:
    """Assert that an output is what it should be, by the kind of its model."""
    expected = expected.reshape(found.shape)
    where = f"{entry.name}/{tensor.name}"
    if tensor.quant:
        flat = (len(found), -1)
        assert (found.reshape(flat).argmax(axis=1) == expected.reshape(flat).argmax(axis=1)).all(), where
        near = (np.abs(found.astype(np.int64) - expected) <= STEPS).mean()
        assert near >= (0.9 if entry.name in AMBIGUOUS else SHARE), f"{where}: {near}"
    elif entry.name in OTHER_ARITHMETIC:
        assert cosine(found, expected) > OTHER_ARITHMETIC[entry.name], where
    else:
        assert cosine(found, expected) > MIN_COSINE, where
        assert relative_error(found, expected) < MAX_ERROR, where


@pytest.mark.exhaustive
@pytest.mark.parametrize("choice", CHOICES)
def test_models_compute_what_their_framework_does(folder: Path, choice: str) -> None:
    built = build(folder, choice)
    for name in CHOICES[choice]:
        inputs, expected = samples(built, ENTRIES[name])
        if choice not in ("small", "host"):
            inputs, expected = (
                {n: a[:EMULATED_SAMPLES] for n, a in side.items()} for side in (inputs, expected)
            )
        actual = built.run(name, inputs)
        for tensor in built.model(name)["outputs"]:
            judge(ENTRIES[name], tensor, actual[tensor.name], expected[tensor.name])


@pytest.mark.exhaustive
def test_ultraface_is_the_same_from_three_frameworks(folder: Path) -> None:
    """The Caffe and TFLite files end before the boxes are decoded from their anchors (SSD, 4.1): that is done here."""
    built = build(folder, "host")
    image = np.random.default_rng(0).uniform(-1, 1, (1, 3, 240, 320)).astype(np.float32)
    results = []
    for name in ULTRAFACE:
        (port,) = built.model(name)["inputs"]
        given = image if port.shape[1] == image.shape[1] else image.transpose(0, 2, 3, 1)
        outputs = sorted(
            (a[0, 0] for a in built.run(name, {port.name: given[None]}).values()), key=lambda a: a.shape[-1]
        )
        results.append((outputs[0], outputs[1] if name == ULTRAFACE[0] else decoded(outputs[1])))
    for scores, boxes in results[1:]:
        np.testing.assert_allclose(scores, results[0][0], atol=1e-4)
        np.testing.assert_allclose(boxes, results[0][1], atol=1e-4)


def decoded(deltas: Array) -> Array:
    """Corners of boxes: anchors of 8, 16, 32 and 64 pixels moved by 0.1 of their size, scaled by the exponent of 0.2."""
    anchors = []
    for step, sizes in ((8, (10, 16, 24)), (16, (32, 48)), (32, (64, 96)), (64, (128, 192, 256))):
        rows, columns = -(-240 // step), -(-320 // step)
        y, x = np.meshgrid(
            (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij"
        )
        each = [np.stack([x, y, np.full_like(x, s / 320), np.full_like(x, s / 240)], -1) for s in sizes]
        anchors.append(np.stack(each, 2).reshape(-1, 4))
    centre, size = np.split(np.clip(np.concatenate(anchors), 0, 1), 2, axis=1)
    middle, half = centre + 0.1 * deltas[:, :2] * size, size * np.exp(0.2 * deltas[:, 2:]) / 2
    return np.concatenate([middle - half, middle + half], 1)


@pytest.mark.exhaustive
def test_a_model_of_integers_is_what_onnx_runtime_computes(folder: Path) -> None:
    built, entry = build(folder, "host"), ENTRIES["shufflenet_v2_12_int8_onnx"]
    ports = built.model(entry.name)
    inputs = {n: a[:2] for n, a in entry.inputs(ports["inputs"]).items()}
    model = Model(entry.name, tuple(entry.files))
    reference = Registry.load().frontend(model).reference(model.files, model)
    assert reference is not None, "onnxruntime is a development requirement"
    actual = built.run(entry.name, inputs)
    for s in range(2):
        for name, array in reference({n: a[s] for n, a in inputs.items()}).items():
            assert cosine(actual[name][s], array) > MIN_COSINE


@pytest.mark.exhaustive
def test_arenas_are_as_small_as_can_be(folder: Path) -> None:
    report = build(folder, "host").report.models
    ratios = {name: model.arena_bytes / model.arena_lower_bound for name, model in report.items()}
    assert set(ratios) == set(ENTRIES)
    assert max(ratios.values()) <= 1.05, ratios


DIGITS = ("model_onnx", "trained_lstm_fp32_tflite", "trained_lstm_int8_tflite")
CLASSIFIERS = (
    *(
        *DIGITS,
        "ic_fp32_tflite",
        "ic_int8_tflite",
        "ic_frozen_pb",
        "kws_fp32_tflite",
        "kws_int8_tflite",
        "ds_cnn_s_core_pb",
        "dnn_s_core_pb",
    ),
    *("mobilenet_v2_1_0_224_quant_tflite", "movie_review_tflite", "ch_ppocr_mobile_v2_0_cls_infer_onnx"),
)


@pytest.mark.exhaustive
def test_tasks_are_done_as_by_the_framework(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same class for every sample; of digits, which the manifest has one of each, the right one."""
    built, told = build(folder, "host"), {}
    for name in CLASSIFIERS:
        inputs, expected = samples(built, ENTRIES[name])
        (found,), (wanted,) = built.run(name, inputs).values(), expected.values()
        classes, theirs = (a.reshape(len(a), -1).argmax(axis=1) for a in (found, wanted))
        told[name] = f"{(classes == theirs).sum()} of {len(classes)}"
        assert classes.tolist() == theirs.tolist(), name
        assert name not in DIGITS or classes.tolist() == list(range(10)), name
    with capsys.disabled():
        sys.stdout.write(f"\nthe framework's class: {told}\n")


TRANSPOSES: Mapping[str, int] = {
    "ch_pp_ocrv4_rec_infer_onnx": 11,
    "minilm_l6_int8_dynamic_onnx": 30,
    "shufflenet_v2_12_int8_onnx": 17,
}
"""Models with attention, whose blocks reorder axes by their own meaning -> how many times.

In all others only an input may be.
"""


@pytest.mark.exhaustive
def test_convolutions_see_one_order_of_axes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {name: model.transposes for name, model in build(folder, "host").report.models.items()}
    with capsys.disabled():
        sys.stdout.write(f"\ntransposes: {results}\n")
    assert {n: c for n, c in results.items() if c > TRANSPOSES.get(n, 1)} == {}


@pytest.mark.exhaustive
def test_threads_change_no_bit(folder: Path) -> None:
    built = build(folder, "host")
    for name, entry in ENTRIES.items():
        inputs, _ = samples(built, entry)
        one = built.run(name, {n: a[:1] for n, a in inputs.items()})
        many = built.run(name, {n: a[:1] for n, a in inputs.items()}, threads=3)
        assert all(np.array_equal(one[n], many[n]) for n in one), name
