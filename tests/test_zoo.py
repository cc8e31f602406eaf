"""The 55 deployment files of MACE's model zoo: files with the same keys in the same form are accepted, or refused with the reason.

The rows tell what each of the zoo's files states (github.com/XiaoMi/mace-models, surveyed); the files are
written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from mace_core.deployment import Deployment, load_deployment

FRONTENDS = ("caffe", "keras", "onnx", "tensorflow")
SIZES = {"NHWC": "1,224,224,3", "NCHW": "1,3,224,224", "NONE": "1,40,100"}

ARM32, ARMS, HOST = ["armeabi-v7a"], ["armeabi-v7a", "arm64-v8a"], ["host"]
WINOGRAD = {"winograd": 4, "obfuscate": 1}
QUANTIZED = {"quantize": 1, "input_ranges": "-1.0,1.0"}
CHECKED = {"check_tensors": "MobilenetV1/Logits/AvgPool_1a/AvgPool:0", "check_shapes": "1,1,1,1024"}
INT8 = {**QUANTIZED, "quantize_schema": "int8"}
DATA = {"validation_inputs_data": "input.npy"}
KALDI = {"backend": "kaldi", **DATA, "validation_outputs_data": "output.npy"}


@dataclass(frozen=True)
class Row:
    """Files of the zoo that state the same: how many, platform and runtime, ABIs, further keys."""

    files: int
    platform: str
    runtime: str
    abis: list[str]
    keys: dict[str, object]
    socs: tuple[str, ...] = ()
    forms: tuple[str, str] = ("file", "file")
    order: str = "NHWC"
    outputs: int = 1


ROWS = (
    Row(1, "tensorflow", "cpu+gpu", ARM32, {"validation_threshold": {"GPU": 0.999}}, forms=("code", "code")),
    Row(1, "tensorflow", "cpu+gpu", ARMS, {}),
    Row(4, "tensorflow", "gpu", ARMS, {**WINOGRAD, **DATA}),
    Row(1, "tensorflow", "dsp", ARM32, {**QUANTIZED, **CHECKED, **DATA}, socs=("sdm660",)),
    Row(1, "tensorflow", "cpu", ARM32, {**QUANTIZED, **DATA}),
    Row(1, "tensorflow", "cpu+gpu", ARMS, {"obfuscate": 1}),
    Row(11, "onnx", "cpu", ARMS, KALDI, order="NONE"),
    Row(1, "tensorflow", "cpu", HOST, {"data_type": "bf16_fp32"}),
    Row(1, "tensorflow", "cpu", HOST, {"data_type": "fp32_fp32"}),
    Row(1, "keras", "cpu", HOST, {**INT8, "quantize_range_file": "ranges.txt"}),
    Row(2, "keras", "cpu", HOST, {"data_type": "fp32_fp32"}),
    Row(1, "keras", "cpu", HOST, INT8),
    Row(1, "tensorflow", "cpu", HOST, {"data_type": "bf16_fp32"}),
    Row(1, "tensorflow", "cpu", HOST, {"data_type": "fp32_fp32"}),
    Row(1, "tensorflow", "cpu", ARM32, {"quantize": 1, "quantize_range_file": "ranges.txt", **DATA}),
    Row(1, "tensorflow", "dsp", ARM32, {**QUANTIZED, **CHECKED, **DATA}, socs=("sdm660",)),
    Row(1, "tensorflow", "cpu", ARM32, {**QUANTIZED, **CHECKED, **DATA}),
    Row(1, "tensorflow", "hta", ARM32, {**QUANTIZED, **CHECKED, **DATA}, socs=("kona",)),
    Row(1, "tensorflow", "htp", ARM32, {**QUANTIZED, **CHECKED, **DATA}, socs=("lahaina",)),
    Row(1, "tensorflow", "cpu", ARMS, {**QUANTIZED, **DATA}),
    Row(1, "tensorflow", "cpu+gpu", ARMS, DATA),
    Row(1, "tensorflow", "cpu", HOST, {"obfuscate": 1}),
    Row(1, "tensorflow", "cpu", ARMS, {**QUANTIZED, **DATA}),
    Row(1, "tensorflow", "cpu+gpu", ARMS, DATA),
    Row(2, "onnx", "cpu+gpu", ARMS, {"backend": "caffe2"}, order="NCHW"),
    Row(1, "onnx", "cpu+gpu", ARMS, {"backend": "pytorch", "obfuscate": 1}, order="NCHW"),
    Row(6, "tensorflow", "gpu", ARM32, {**WINOGRAD, **DATA}),
    Row(1, "tensorflow", "cpu+gpu", ARMS, {}, forms=("code", "file")),
    Row(1, "tensorflow", "cpu", ARM32, DATA),
    Row(2, "caffe", "cpu+gpu", ARMS, {}, order="NCHW"),
    Row(
        1,
        "caffe",
        "cpu+gpu",
        ARMS,
        {**DATA, "dockerfile_path": "docker/caffe", "docker_image_tag": "lastest"},
        order="NCHW",
        outputs=3,
    ),
    Row(1, "caffe", "gpu", ARM32, {"winograd": 4}, order="NCHW"),
    Row(1, "tensorflow", "cpu", ARMS, {}),
    Row(1, "tensorflow", "cpu+gpu", ARM32, {}, outputs=3),
)
LIBRARY = "onnx-mobilenetv2-1.0"
"""As 29 of the files have it: with signs that no name in C has."""
SUFFIXES = {"caffe": ".prototxt", "keras": ".h5", "onnx": ".onnx", "tensorflow": ".pb"}


def written(row: Row, folder: Path) -> Path:
    """A file of the zoo's form: a list of one subgraph, strings of numbers, 0 and 1 for no and yes."""
    tensors = [f"output_{i}" for i in range(row.outputs)]
    graph = {
        "input_tensors": "input",
        "input_shapes": SIZES[row.order],
        "output_tensors": tensors if row.outputs > 1 else tensors[0],
        "output_shapes": ["1,10"] * row.outputs if row.outputs > 1 else "1,10",
        **{k: v for k, v in row.keys.items() if k in SUBGRAPH},
    }
    if row.order == "NONE":
        graph |= {"input_data_formats": "NONE", "output_data_formats": "NONE"}
    model: dict[str, object] = {
        "platform": row.platform,
        "model_file_path": f"model{SUFFIXES[row.platform]}",
        "subgraphs": [graph],
        "runtime": row.runtime,
        "limit_opencl_kernel_time": 0,
        "nnlib_graph_mode": 0,
        "obfuscate": 0,
        "winograd": 0,
        **{k: v for k, v in row.keys.items() if k not in SUBGRAPH},
    }
    if row.platform == "caffe":
        model["weight_file_path"] = "model.caffemodel"
    file = {
        "library_name": LIBRARY,
        "target_abis": row.abis,
        "model_graph_format": row.forms[0],
        "model_data_format": row.forms[1],
        "models": {"zoo_model": model},
    }
    if row.socs:
        file["target_socs"] = list(row.socs)
    for name in (
        "model.pb",
        "model.onnx",
        "model.h5",
        "model.prototxt",
        "model.caffemodel",
        "input.npy",
        "output.npy",
        "ranges.txt",
    ):
        (folder / name).touch()
    path = folder / "zoo.yml"
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    return path


SUBGRAPH = (
    "backend",
    "check_shapes",
    "check_tensors",
    "input_ranges",
    "quantize_range_file",
    "validation_inputs_data",
    "validation_outputs_data",
)


def deployments(folder: Path) -> Iterator[tuple[Row, Deployment]]:
    for number, row in enumerate(ROWS):
        place = folder / str(number)
        place.mkdir()
        yield row, load_deployment(written(row, place), FRONTENDS)


def test_the_table_holds_the_whole_zoo() -> None:
    assert sum(row.files for row in ROWS) == 55


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_each_file_is_accepted(number: int, tmp_path: Path) -> None:
    row = ROWS[number]
    deployment = load_deployment(written(row, tmp_path), FRONTENDS)
    (model,) = deployment.models
    assert deployment.library == "onnx_mobilenetv2_1_0"
    assert any(
        f"library_name: {LIBRARY!r} is 'onnx_mobilenetv2_1_0' in C" in note for note in deployment.notes
    )
    assert model.platform == row.platform
    assert set(model.runtimes) == set(row.runtime.split("+"))
    assert len(model.files) == (2 if row.platform == "caffe" else 1)
    assert [p.name for p in model.inputs] == ["input"]
    assert len(model.outputs) == row.outputs
    assert deployment.abis == tuple(row.abis)


def test_what_has_no_effect_yet_is_told(tmp_path: Path) -> None:
    told = {note for _, deployment in deployments(tmp_path) for note in deployment.notes}
    for key in ("model_data_format", "check_shapes"):
        assert any(key in note for note in told), key
