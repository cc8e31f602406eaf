"""benchmarks/peers.py: which outputs it accepts as equal, and how it summarizes times."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("onnxruntime", reason="the benchmarks compare with frameworks")
import peer_models  # it imports onnxruntime
import peers
import runtimes
from agreement import disagreement


def measurement(
    model: str, runtime: str, min_ms: float, ratio: float | None, disagreement: str = ""
) -> peers.Measurement:
    return peers.Measurement(model, "int8", 1, runtime, "", "", min_ms, min_ms, ratio, disagreement)


def test_outputs_agree_within_the_tolerance_of_their_type() -> None:
    ours = [np.array([1.0, -2.0, 4.0])]
    near, far = [ours[0] + 0.003], [ours[0] + 0.3]
    assert disagreement(ours, near, "float32") == ""
    assert "differs from ours by 0.075" in disagreement(ours, far, "float32")
    assert disagreement(ours, [ours[0] + 0.1], "bfloat16") == ""
    assert "more than 0.05" in disagreement(ours, far, "bfloat16")
    assert disagreement(ours, far, "int8") == ""
    assert "more than 0.15" in disagreement(ours, [ours[0] + 0.5], "int8")


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_what_is_no_number_or_of_another_size_disagrees(dtype: str) -> None:
    ours = [np.ones(3)]
    assert "nan" in disagreement(ours, [np.array([1.0, np.nan, 1.0])], dtype)
    assert "2 elements instead of 3" in disagreement(ours, [np.ones(2)], dtype)
    assert "2 outputs instead of 1" in disagreement(ours, ours * 2, dtype)


def test_the_summary_compares_with_the_best_peer_that_agrees() -> None:
    measurements = [
        measurement("a", "ours", 2.0, 2.0),
        measurement("a", "fast", 1.0, 1.0),
        measurement("a", "wrong", 0.1, 0.1, "output 0 differs"),
        measurement("b", "ours", 2.0, 0.5),
        measurement("b", "fast", 4.0, 1.0),
    ]
    text = peers.summarize(measurements)
    assert [line.split()[-1] for line in text.splitlines() if line.split()[:1] in (["a"], ["b"])] == [
        "fast"
    ] * 2
    assert "ours, int8, 1 threads: geomean 1.000 of 2, worst 2.00" in text


def test_models_are_chosen_by_name_and_by_set(tmp_path: Path) -> None:
    models = peer_models.list_models(tmp_path)
    names = [model.name for model in peer_models.choose_models(models, ["digits", "image"])]
    assert {"digits", "resnet50", "resnet50_int8"} <= {*names}
    assert "vww" not in names
    assert not any(name.endswith("_bf16") for name in names)
    rounded = {model.name: model for model in peer_models.choose_models(models, ["bfloat16"])}
    assert rounded["resnet50_bf16"].onnx == tmp_path / "resnet50.onnx"
    with pytest.raises(SystemExit, match="--model nonsense: unknown"):
        peer_models.choose_models(models, ["nonsense"])


def test_the_converter_of_mnn_runs_without_the_script_that_installs_and_sends_logs(tmp_path: Path) -> None:
    command = runtimes.mnn_command("ONNX", tmp_path / "model.onnx", tmp_path / "model.mnn")
    assert command[0] == sys.executable
    assert command[1] == "-c"
    assert "MNN.tools" not in command[2]


def test_a_converter_that_crashes_is_reported_by_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "model.onnx"
    source.touch()
    crash = [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"]
    with pytest.raises(runtimes.UnsupportedError, match="crashes with signal 11"):
        runtimes.convert(source, ".mnn", lambda _: crash)
