"""What users give and models take: a library of small models, run and validated by the `mace` command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import mace
from onnx import TensorProto as T
from onnx import helper

pytestmark = (
    pytest.mark.exhaustive
)  # builds libraries; core/tests/test_commands.py and test_framework.py have the same cases

MODELS = """\
library_name: small
models:
  unread:
    model_file_path: unread.onnx
  pixels:
    model_file_path: pixels.onnx
    input_data_types: uint8
"""


def save(
    file: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]], output: list[int]
) -> None:
    given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", T.FLOAT, output)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built library of two models: one with an input that nothing reads, one that is given bytes."""
    folder = tmp_path_factory.mktemp("small")
    relu = [helper.make_node("Relu", ["a"], ["y"])]
    save(folder / "unread.onnx", relu, {"a": (T.FLOAT, [1, 4]), "b": (T.FLOAT, [1, 3])}, [1, 4])
    save(folder / "pixels.onnx", relu, {"a": (T.FLOAT, [1, 4])}, [1, 4])
    (folder / "small.yml").write_text(MODELS)
    mace(folder, "build", "small.yml")
    return folder


@pytest.mark.slow
def test_an_input_that_nothing_reads_and_bytes_are_validated(project: Path) -> None:
    rows = json.loads(mace(project, "validate", "small.yml", "--json"))
    assert {row["model"]: (row["passed"], row["error"]) for row in rows} == {
        "unread": (True, 0.0),
        "pixels": (True, 0.0),
    }
    assert all(row["compared_with"].startswith("ONNX Runtime ") for row in rows)
    (row,) = json.loads(mace(project, "validate", "small.yml", "--json", "--model", "pixels"))
    assert row["model"] == "pixels"
    rows = json.loads(mace(project, "validate", "small.yml", "--json", "--layers"))
    assert {(row["model"], row["stage"]) for row in rows} == {
        (m, s) for m in ("unread", "pixels") for s in ("read", "computed")
    }
    assert all(row["passed"] and row["fed_cosine"] > 0.999999 for row in rows)


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("array", "samples"),
    [
        (np.uint8([[1, 2, 3, 4]]), 1),
        (np.uint8([[[1, 2, 3, 4]]]), 1),
        (np.arange(20, dtype=np.uint8).reshape(5, 4), 5),
    ],
)
def test_run_takes_a_sample_or_a_batch_of_samples(
    project: Path, tmp_path: Path, array: np.ndarray, samples: int
) -> None:
    np.save(tmp_path / "a.npy", array)
    mace(
        project,
        "run",
        "small.yml",
        "--model",
        "pixels",
        "--input",
        f"a={tmp_path}/a.npy",
        "--output",
        str(tmp_path),
    )
    result = np.load(tmp_path / "y.npy")
    assert result.shape == (samples, 1, 4)
    np.testing.assert_array_equal(result.ravel(), array.ravel())


@pytest.mark.slow
def test_run_refuses_what_is_no_sample(project: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((1, 4)))
    np.save(tmp_path / "b.npy", np.ones((1, 5), np.float32))
    arguments = ("run", "small.yml", "--model", "unread", "--output", str(tmp_path))
    told = mace(
        project,
        *arguments,
        "--input",
        f"a={tmp_path}/a.npy",
        "--input",
        f"b={tmp_path}/b.npy",
        "--input",
        f"c={tmp_path}/b.npy",
        status=2,
    )
    assert "input 'a': expected float32[1, 4], found float64[1, 4]" in told
    assert "input 'b': expected float32[1, 3] for each sample, found float32[1, 5]" in told
    assert "input 'c': the model has no such input; it has 'a', 'b'" in told
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.exhaustive
def test_validation_goes_on_where_a_model_cannot_be_validated(project: Path) -> None:
    (project / "torn.yml").write_text(
        MODELS.replace(
            "input_data_types: uint8", "input_data_types: uint8\n    validation_inputs_data: gone.npy"
        )
    )
    told = mace(project, "validate", "torn.yml", status=2)
    assert "unread: compared with ONNX Runtime" in told
    assert "gone.npy: cannot be read as an array: No such file or directory" in told
    assert "validation data of 'a': no such file" in mace(project, "check", "torn.yml")


@pytest.mark.slow
def test_check_tells_the_faults_of_all_stages_and_models(project: Path) -> None:
    (project / "damaged.onnx").write_bytes(b"no model")
    deep = helper.make_node("Reshape", ["a", "s"], ["y"])
    shape = [1] * 9 + [4]
    graph = helper.make_graph(
        [deep],
        "g",
        [helper.make_tensor_value_info("a", T.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", T.FLOAT, shape)],
        [helper.make_tensor("s", T.INT64, [len(shape)], shape)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        project / "deep.onnx",
    )
    more = "  deep:\n    model_file_path: deep.onnx\n  damaged:\n    model_file_path: damaged.onnx\n"
    (project / "faults.yml").write_text(MODELS + more)
    told = mace(project, "check", "faults.yml", status=2)
    assert "damaged.onnx: " in told
    assert "deep: 'y' has 10 axes; at most 8 are supported" in told
    assert "unread: 1 nodes, every one has a target for host" in told
    assert "ready" not in told


@pytest.mark.exhaustive
def test_check_and_build_take_the_abis_of_the_file(project: Path) -> None:
    (project / "abis.yml").write_text(
        MODELS.replace("library_name: small", "library_name: small\ntarget_abis: [host, nosuch]")
    )
    told = mace(project, "check", "abis.yml", status=2)
    assert "no ABI 'nosuch'" in told
    assert "no ABI 'nosuch'" in mace(project, "build", "abis.yml", status=2)
    assert "ready for target=host " in mace(project, "check", "abis.yml", "--target", "host")
