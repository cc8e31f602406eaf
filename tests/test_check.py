"""`mace check`: deployment files that are right, and one clear message for each that is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto as T
from onnx import helper

from mace_core.cli import main

ARM_COMPILER = pytest.mark.skipif(
    not shutil.which("arm-none-eabi-gcc"), reason="arm-none-eabi-gcc is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models: a convolution, a sine, which the accelerator lacks, and one of an open shape."""
    result = tmp_path_factory.mktemp("check")
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    convolution = helper.make_node("Conv", ["a", "w"], ["y"], pads=[1, 1, 1, 1])
    save(
        result / "good.onnx",
        convolution,
        [1, 3, 8, 8],
        [1, 4, 8, 8],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    save(result / "sine.onnx", helper.make_node("Sin", ["a"], ["y"], name="wave"), [1, 4], [1, 4])
    save(result / "open.onnx", helper.make_node("Relu", ["a"], ["y"]), ["n", "m"], ["n", "m"])
    return result


def save(
    file: Path,
    node: onnx.NodeProto,
    shape: list[int | str],
    output: list[int | str],
    weights: list[onnx.TensorProto] | None = None,
) -> None:
    ends = [
        [helper.make_tensor_value_info(name, T.FLOAT, sizes)] for name, sizes in (("a", shape), ("y", output))
    ]
    graph = helper.make_graph([node], "g", *ends, weights or [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def check(folder: Path, model: str, *lines: str, target: str = "host", head: str = "") -> tuple[int, str]:
    """The exit status and what is printed for a deployment of one model with further lines."""
    text = [
        f"library_name: net{head}",
        "models:",
        "  m:",
        f"    model_file_path: {folder / model}.onnx",
        *(f"    {line}" for line in lines),
    ]
    file = folder / "net.yml"
    file.write_text("\n".join(text) + "\n")
    done = CliRunner().invoke(main, ["check", str(file), *(["--target", target] if target else [])])
    assert "Traceback" not in done.output
    return done.exit_code, done.output


def one_message(found: tuple[int, str]) -> str:
    """The only line of a check that fails, which names no model as ready."""
    status, output = found
    (line,) = output.splitlines()
    assert status == 2
    return line


@ARM_COMPILER
def test_a_model_for_the_accelerator_is_ready(folder: Path) -> None:
    status, output = check(folder, "good", target="max78000")
    assert status == 0, output
    assert "ready for target=max78000 with toolchain arm-none-eabi" in output
    assert "note: m: the network was quantized with random inputs" in output


def test_a_model_that_the_accelerator_lacks_an_operation_for_is_not(folder: Path) -> None:
    status, output = check(folder, "sine", target="max78000")
    assert status == 2
    assert (
        "layer 'wave' (Sin): the hardware has no such operation; compute it before or after the network"
        in output
    )
    assert "ready" not in output


def test_wrong_options_of_the_accelerator_are_told_together(folder: Path) -> None:
    lines = ["target_options:", "  max78000: {timer: x, sofmax: true, energy: true, clock_divider: 3}"]
    status, output = check(folder, "good", *lines, target="max78000")
    assert status == 2
    results = [line.partition("target_options: max78000: ")[2] for line in output.splitlines()]
    assert [text.partition(":")[0] for text in results] == ["timer", "sofmax", "energy", "clock_divider"]
    assert results[1] == "sofmax: no such option; did you mean 'softmax'?"
    assert "write one of 1, 2, 4, 8, 16" in results[3]


@pytest.mark.parametrize("size", ["2147483648", "99999999999999999999"])
@pytest.mark.parametrize("key", ["input_shapes", "output_shapes"])
def test_a_dimension_beyond_32_bits_is_refused_where_it_stands(folder: Path, key: str, size: str) -> None:
    tensors = "input_tensors: a" if key == "input_shapes" else "output_tensors: y"
    message = one_message(check(folder, "open", "subgraphs:", f"  - {tensors}", f"    {key}: 1,{size}"))
    assert message.startswith(
        f"mace: {folder / 'net.yml'}:7: {key}: '1,{size}' is not allowed; write a shape such as 1,224,224,3"
    )


@pytest.mark.slow
@pytest.mark.sampled(cases="states|NHWC-1,8")
@pytest.mark.parametrize(
    ("order", "shape", "expected"),
    [
        ("", "1,4,8,8", ""),
        ("", "1,5,8,8", "states [1, 5, 8, 8], the model gives [1, 4, 8, 8]"),
        ("", "4,8,8", "states [4, 8, 8], the model gives [1, 4, 8, 8]"),
        ("NHWC", "1,8,8,4", ""),
        ("NHWC", "1,4,8,8", "states [1, 4, 8, 8], the model gives [1, 8, 8, 4]"),
    ],
)
def test_stated_shapes_of_outputs_are_those_of_the_model(
    folder: Path, order: str, shape: str, expected: str
) -> None:
    lines = ["subgraphs:", "  - output_tensors: y", f"    output_shapes: {shape}"]
    actual = check(folder, "good", *lines, *([f"    output_data_formats: {order}"] if order else []))
    if not expected:
        assert actual[0] == 0, actual[1]
        return
    assert (
        one_message(actual)
        == f"mace: output 'y': output_shapes {expected}; correct output_shapes, or leave it out"
    )


@pytest.mark.slow
def test_an_abi_that_is_none_is_told_where_another_one_is_built_for(folder: Path) -> None:
    status, output = check(folder, "good", head="\ntarget_abis: [host, arm65]")
    assert status == 0
    (note,) = [line for line in output.splitlines() if "arm65" in line]
    assert note.startswith("note: target_abis: no ABI 'arm65'; choose one of ")
    status, output = check(folder, "good", head="\ntarget_abis: [host, arm65]", target="")
    assert status == 2
    (fault,) = [line for line in output.splitlines() if "arm65" in line]
    assert "no ABI 'arm65'" in fault


@pytest.mark.slow
def test_strict_refuses_keys_without_effect(folder: Path) -> None:
    status, output = check(folder, "good", "obfuscate: 1", "dsp_mode: 1")
    assert status == 0, output
    assert "note: " in output
    assert "dsp_mode: accepted; has no effect: MACE dropped it" in output
    done = CliRunner().invoke(main, ["check", str(folder / "net.yml"), "--target", "host", "--strict"])
    assert done.exit_code == 2
    lines = [line for line in done.output.splitlines() if "accepted" in line]
    keys = [line.partition(": accepted; ")[0].rpartition(": ")[2] for line in lines]
    assert keys == ["obfuscate", "dsp_mode"]
    assert all(line.endswith("; remove the key") for line in lines)
    assert "ready" not in done.output
