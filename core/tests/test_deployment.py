"""The deployment file: both forms, every fault with its line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mace_core.deployment import Model, load_deployment, schema_text
from mace_core.errors import MaceError
from mace_core.ir import DType

LIST_FORM = """\
library_name: vision
target_abis: [armeabi-v7a, arm64-v8a]
model_graph_format: code
model_data_format: code
models:
  net:
    platform: onnx
    model_file_path: net.onnx
    runtime: cpu+gpu
    winograd: 4
    quantize_large_weights: 1
    nnlib_graph_mode: 0
    obfuscate: OFF
    subgraphs:
      - input_tensors: [a, b]
        input_shapes: ["1,224,224,3", "1,10"]
        input_data_formats: [NHWC, NONE]
        input_ranges: -1.0,1.0
        output_tensors: out
        output_shapes: 1,1001
        validation_inputs_data: [a.npy, b.npy]
"""
DICT_FORM = """\
library_name: vision
models:
  net:
    model_file_path: net.onnx
    input_tensors: x
    output_tensors: y
    subgraphs:
      whole:
        input_shapes: 1,3,8,8
        input_data_formats: NCHW
        input_data_types: int32
"""


def write_deployment(folder: Path, text: str) -> Path:
    (folder / "net.onnx").write_bytes(b"model")
    file = folder / "vision.yml"
    file.write_text(text)
    return file


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(MaceError) as error:
        load_deployment(write_deployment(folder, text), ("onnx",))
    return [line.removeprefix(f"{folder}/") for line in str(error.value).splitlines()]


def test_list_form(tmp_path: Path) -> None:
    result = load_deployment(write_deployment(tmp_path, LIST_FORM), ("onnx",))
    assert (result.library, result.abis) == ("vision", ("armeabi-v7a", "arm64-v8a"))
    (model,) = result.models
    assert (model.name, model.platform, model.runtimes) == ("net", "onnx", ("cpu", "gpu"))
    assert model.files == (tmp_path / "net.onnx",)
    a, b = model.inputs
    assert (a.name, a.shape, a.order, a.data) == ("a", (1, 224, 224, 3), "NHWC", (str(tmp_path / "a.npy"),))
    assert (b.name, b.shape, b.order) == ("b", (1, 10), "NONE")
    assert model.outputs[0].shape == (1, 1001)
    assert [n.removeprefix(f"{tmp_path}/") for n in result.notes] == [
        "vision.yml:11: quantize_large_weights: accepted; has no effect yet: weights are stored as they are"
    ]
    assert result.ignored == result.notes


def test_dict_form_inherits_the_models_keys(tmp_path: Path) -> None:
    (model,) = load_deployment(write_deployment(tmp_path, DICT_FORM)).models
    assert (model.platform, model.runtimes, model.stages) == (None, ("cpu",), ())
    assert (model.inputs[0].name, model.inputs[0].shape, model.inputs[0].dtype) == (
        "x",
        (1, 3, 8, 8),
        DType.I32,
    )
    assert model.outputs[0].name == "y"


def test_environment_variables_are_substituted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DICT_FORM.replace("net.onnx", "${NET}.onnx")
    assert any("NET" in line for line in faults(tmp_path, text))
    monkeypatch.setenv("NET", "net")
    assert load_deployment(write_deployment(tmp_path, text)).models[0].files == (tmp_path / "net.onnx",)


def test_all_faults_are_told_together_with_their_lines(tmp_path: Path) -> None:
    text = (
        LIST_FORM.replace("platform: onnx", "platform: onix")
        .replace("net.onnx", "gone.onnx")
        .replace("winograd:", "winogrd:")
    )
    told = faults(tmp_path, text.replace('"1,224,224,3", "1,10"', '"1,224,224,3"'))
    assert told[0] == "vision.yml:7: platform: no frontend 'onix' is installed; did you mean 'onnx'?"
    assert told[1].startswith("vision.yml:8: model_file_path: no such file: ")
    assert told[2].startswith("vision.yml:10: winogrd: unknown key; did you mean")
    remedy = 'write a YAML list with one for each tensor: input_shapes: ["1,224,224,3", <of b>]'
    assert told[3] == f"vision.yml:16: input_shapes: 1 values for 2 input_tensors; {remedy}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("library_name: vision", "library_name: a/b", "vision.yml:1: library_name: 'a/b' is not allowed"),
        (
            "    runtime: cpu+gpu",
            "    model_sha256_checksum: " + "0" * 64,
            "vision.yml:9: model_file_path: the file's SHA-256 is 9372c470",
        ),
        (
            "model_graph_format: code",
            "model_graph_format: file",
            "vision.yml:4: model_data_format: is code while model_graph_format is file",
        ),
        (
            "model_file_path: net.onnx",
            "model_file_path: http://127.0.0.1/x.onnx",
            "vision.yml:8: model_file_path: a download needs a checksum",
        ),
        ("library_name: vision", "library_name: a\nlibrary_name: b", "library_name: duplicate key"),
        ("models:", "models: [", "not valid YAML"),
        ("    winograd: 4", "    winograd: 3", "vision.yml:10: winograd: 3 is not allowed"),
    ],
)
def test_each_mistake_has_its_message(tmp_path: Path, old: str, new: str, said: str) -> None:
    told = faults(tmp_path, LIST_FORM.replace(old, new, 1))
    assert any(said in line for line in told), told


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"gone\.yml: cannot be read"):
        load_deployment(tmp_path / "gone.yml")


@pytest.mark.exhaustive
@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_end_in_one_error(tmp_path: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([LIST_FORM, DICT_FORM]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    damaged = text[:start] + data.draw(st.text(max_size=12)) + text[end:]
    try:
        file = write_deployment(tmp_path, "")
        file.write_bytes(damaged.encode("utf-8", "surrogatepass"))
        load_deployment(file, ("onnx",))
    except MaceError:
        return  # the one error that a damaged file may end in; any other fails the test


@pytest.mark.parametrize("key", ["model_file_path", "weight_file_path"])
def test_a_path_of_5000_characters_is_told_shortly(tmp_path: Path, key: str) -> None:
    for name in ("x" * 5000, "x/" * 2500):
        text = DICT_FORM.replace(
            "model_file_path: net.onnx",
            f"model_file_path: {name}" if key.startswith("m") else f"{key}: {name}",
        )
        (told, *_) = faults(tmp_path, text)
        assert told.startswith(f"vision.yml:4: {key}: File name too long") or "no such file" in told
        assert len(told) < 400


def own_names(model: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("first", "second"), ("out",)


NAMELESS = """\
library_name: vision
models:
  net:
    model_file_path: net.onnx
"""


def test_shapes_without_names_are_those_of_the_models_inputs_in_order(tmp_path: Path) -> None:
    text = (
        NAMELESS
        + '    input_shapes: ["1,3,8,8", "1,10"]\n    input_data_types: uint8\n    validation_inputs_data: [a.npy, b.npy]\n'
    )
    (model,) = load_deployment(write_deployment(tmp_path, text), own_names=own_names).models
    assert [(p.name, p.shape, p.dtype) for p in model.inputs] == [
        ("first", (1, 3, 8, 8), DType.U8),
        ("second", (1, 10), DType.U8),
    ]
    assert [p.data for p in model.inputs] == [(str(tmp_path / "a.npy"),), (str(tmp_path / "b.npy"),)]
    assert model.outputs == ()
    (model,) = load_deployment(
        write_deployment(tmp_path, NAMELESS + "    output_data_formats: NHWC\n"), own_names=own_names
    ).models
    assert (model.inputs, [p.name for p in model.outputs]) == ((), ["out"])


def test_a_model_that_is_described_by_name_or_not_at_all_is_not_read(tmp_path: Path) -> None:
    def never(model: Model) -> None:
        raise AssertionError

    for text in (NAMELESS, LIST_FORM, DICT_FORM):
        load_deployment(write_deployment(tmp_path, text), own_names=never)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            lambda _: None,
            "vision.yml:5: input_shapes: there is no input_tensors; name the tensors with input_tensors",
        ),
        (
            own_names,
            'input_shapes: 1 values for 2 input_tensors; write a YAML list with one for each tensor: input_shapes: ["1,10", <of second>]',
        ),
    ],
)
def test_shapes_that_fit_no_names_are_told(tmp_path: Path, names: Any, said: str) -> None:
    with pytest.raises(MaceError) as error:
        load_deployment(write_deployment(tmp_path, NAMELESS + "    input_shapes: 1,10\n"), own_names=names)
    assert said in str(error.value)


def test_a_model_that_cannot_be_read_for_its_names_is_told_with_the_line(tmp_path: Path) -> None:
    def damaged(model: Model) -> None:
        raise MaceError("net.onnx", "is no ONNX model", "export it again")

    with pytest.raises(MaceError, match=r"vision\.yml:5: input_shapes: net\.onnx: is no ONNX model"):
        load_deployment(write_deployment(tmp_path, NAMELESS + "    input_shapes: 1,10\n"), own_names=damaged)


def test_a_list_is_asked_for_where_a_comma_was_meant(tmp_path: Path) -> None:
    text = NAMELESS + '    input_tensors: a, b\n    input_shapes: ["1,3", "1,10"]\n'
    remedy = "'a, b' is one name; write several as a YAML list: input_tensors: [a, b]"
    assert faults(tmp_path, text) == [f"vision.yml:6: input_shapes: 2 values for 1 input_tensors; {remedy}"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "runtime: gpuu",
            "vision.yml:5: runtime: 'gpuu' is no kind of hardware and no target that is installed; did you mean 'gpu'?",
        ),
        (
            "runtime: cpu+sdp",
            "'sdp' is no kind of hardware and no target that is installed; did you mean 'dsp'?",
        ),
        ("validation_threshold: {CPUU: 0.9}", "validation_threshold: 'cpuu' is no kind of hardware"),
    ],
)
def test_unknown_hardware_is_refused(tmp_path: Path, line: str, said: str) -> None:
    runtimes = ("cpu", "gpu", "dsp", "hta", "htp", "apu", "mdla")
    with pytest.raises(MaceError) as error:
        load_deployment(write_deployment(tmp_path, f"{NAMELESS}    {line}\n"), runtimes=runtimes)
    assert said in str(error.value)
    for fine in ("runtime: cpu+gpu", "runtime: mdla", "validation_threshold: {QUANTIZE: 0.9, GPU: 0.9}"):
        load_deployment(write_deployment(tmp_path, f"{NAMELESS}    {fine}\n"), runtimes=runtimes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "vision.yml:1: the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"\n\n---\n...\n", "vision.yml:"),
        (b"library_name: a\n\tmodels: {}\n", "vision.yml:2: not valid YAML"),
        (
            b"models:\n  net:\n    runtime: cpu\n    runtime: gpu\n",
            "vision.yml:4: runtime: duplicate key, first in line 3",
        ),
        (b"models:\n  net: {}\n  net: {}\n", "net: duplicate key"),
        (b"[1, 2]", "the file: "),
        (b"text", "the file: "),
        (b"\xff\xfe\x00", "the file is not UTF-8"),
        (b"a: 1\n---\nb: 2\n", "a second document begins"),
    ],
)
def test_files_that_are_no_deployment(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "vision.yml"
    file.write_bytes(content)
    with pytest.raises(MaceError) as error:
        load_deployment(file)
    assert said in str(error.value)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = write_deployment(tmp_path, LIST_FORM)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert load_deployment(file).library == "vision"


@pytest.mark.parametrize(
    "path", ["folder", "x" * 5000, "a/" * 2500 + "b.yml", "gone/vision.yml", "vision.yml/inside"]
)
def test_paths_that_lead_to_no_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    write_deployment(tmp_path, LIST_FORM)
    with pytest.raises(MaceError, match="cannot be read: ") as error:
        load_deployment(tmp_path / path)
    assert len(str(error.value)) < 600


WITHOUT_EFFECT = {
    "target_socs": "[sm8650]",
    "model_graph_format": "file",
    "model_data_format": "file",
    "apu_version_with_no_device": "3",
    "accelerator_api": "neuron",
    "micro": "{backend: cmsis}",
    "obfuscate": "1",
    "graph_optimize_options": "[fold_constants]",
    "quantize": "1",
    "quantize_schema": "int8",
    "quantize_large_weights": "1",
    "quantize_range_file": "ranges.txt",
    "change_concat_ranges": "1",
    "accuracy_validation_script": "judge.py",
    "check_shapes": '["1,2"]',
    "backend": "caffe2",
    "docker_image_tag": "newest",
    "dockerfile_path": "other",
    "dockerfile_sha256_checksum": '"' + "0" * 64 + '"',
    "nnlib_graph_mode": "1",
    "dsp_mode": "1",
}
"""Every key that is accepted and has no effect, with a value that asks for something."""


def test_every_key_without_effect_is_noted(tmp_path: Path) -> None:
    schema = json.loads(schema_text())
    library_keys, model_keys = schema["properties"], schema["$defs"]["keys"]["properties"]
    marked = {
        name: part
        for parts in (library_keys, model_keys)
        for name, part in parts.items()
        if ("x-not-yet" in part or "x-no-effect" in part) and "x-ready" not in part
    }
    assert marked.keys() == WITHOUT_EFFECT.keys()
    head, inner = "", ""
    for name, value in WITHOUT_EFFECT.items():
        if name in library_keys:
            head += f"{name}: {value}\n"
        else:
            inner += f"    {name}: {value}\n"
    text = f"library_name: vision\n{head}models:\n  net:\n    model_file_path: net.onnx\n{inner}"
    result = load_deployment(write_deployment(tmp_path, text))
    for name, part in marked.items():
        effect = "no effect yet" if "x-not-yet" in part else "no effect"
        assert any(f": {name}: accepted; has {effect}: " in note for note in result.ignored), name
    assert len(result.ignored) == len(marked)
    assert set(result.ignored) <= set(result.notes)


def test_keys_that_ask_for_what_happens_anyway_are_not_noted(tmp_path: Path) -> None:
    keys = "    quantize: 0\n    dsp_mode: 0\n"
    text = f"library_name: vision\nmodels:\n  net:\n    model_file_path: net.onnx\n{keys}"
    assert load_deployment(write_deployment(tmp_path, text)).ignored == ()


@pytest.mark.parametrize(
    ("ranges", "limits"),
    [
        ("-1.0,1.0", [(-1.0, 1.0), (-1.0, 1.0)]),
        ("[0, 255]", [(0.0, 255.0), (0.0, 255.0)]),
        ('["0,1", "-2,2"]', [(0.0, 1.0), (-2.0, 2.0)]),
    ],
    ids=["text", "numbers", "each"],
)
def test_one_range_is_that_of_every_input(
    ranges: str, limits: list[tuple[float, float]], tmp_path: Path
) -> None:
    text = LIST_FORM.replace("input_ranges: -1.0,1.0", f"input_ranges: {ranges}")
    assert [
        port.limits for port in load_deployment(write_deployment(tmp_path, text), ("onnx",)).models[0].inputs
    ] == limits


def test_two_states_with_one_next_value_are_refused(tmp_path: Path) -> None:
    text = DICT_FORM.replace("    input_tensors", "    states: {h: y, c: y}\n    input_tensors")
    (fault,) = faults(tmp_path, text)
    assert "states: two states have one output as their next value; pair each state" in fault
