"""Reading tuning files, and which entry of one decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import DType, Tensor
from mace_core.selection import NodeKey
from mace_core.tuning import Tuning, TuningEntry, read_tuning, shape_key, tuning_of


def write_tuning(folder: Path, text: str) -> Path:
    file = folder / "tuning.yml"
    file.write_text(text)
    return file


def test_a_tuning_file_is_read_with_its_lines(tmp_path: Path) -> None:
    text = 'choices:\n  - {node: conv1, level: avx2, candidate: winograd}\n  - op: Conv\n    shapes: "f32 1x8x8x3"\n    candidate: direct\n'
    tuning = read_tuning(write_tuning(tmp_path, text))
    assert tuning.entries == (
        TuningEntry("winograd", 2, node="conv1", level="avx2"),
        TuningEntry("direct", 3, op="Conv", shapes="f32 1x8x8x3"),
    )
    json = '{"choices": [{"node": "conv1", "candidate": "direct", "target": "cpu"}]}'
    assert read_tuning(write_tuning(tmp_path, json)).entries == (
        TuningEntry("direct", 1, node="conv1", target="cpu"),
    )


BROKEN = [
    ("choices:\n  - {node: a}\n", "tuning.yml:2: candidate: is missing"),
    ("choices:\n  - {node: a, candidate: b, speed: 3}\n", "tuning.yml:2: speed: unknown key"),
    (
        "choices:\n  - {candidate: b}\n",
        "tuning.yml:2: does not say which nodes it is about; write node, or op and shapes",
    ),
    ("choices:\n  - {op: Conv, candidate: b}\n", "tuning.yml:2: does not say which nodes it is about"),
    (
        "choices:\n  - {node: a, op: Conv, shapes: f32 1, candidate: b}\n",
        "tuning.yml:2: names a node and an op",
    ),
    (
        "choices:\n  - {node: a, candidate: b}\n  - {node: a, candidate: c}\n",
        "tuning.yml:3: node 'a' was chosen for .* in line 2; keep one",
    ),
    ("nodes: 3\n", "nodes: unknown key"),
    (
        "choices: []\ncosts: {gpu: {launch_us: 0}}\n",
        "tuning.yml:2: launch_us: .* is not allowed; write a positive number",
    ),
    (
        "choices: []\ncosts: {gpu: {launch_us: fast}}\n",
        "tuning.yml:2: launch_us: .* is not allowed; write a positive number",
    ),
    ("choices: []\ncosts: {gpu: 3}\n", "tuning.yml:2: gpu: 3 is not allowed"),
    ("choices: []\ncosts: {a/b: {launch_us: 1}}\n", "tuning.yml:2"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_a_faulty_tuning_file_is_told_with_its_lines(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=message):
        read_tuning(write_tuning(tmp_path, text))


def test_a_missing_tuning_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="cannot be read: No such file"):
        read_tuning(tmp_path / "none.yml")


KEY = NodeKey("cpu", "conv1", "Conv", "f32 1x8x8x3")


def test_the_most_specific_entry_about_a_node_decides() -> None:
    by_op = TuningEntry("direct", 1, op="Conv", shapes="f32 1x8x8x3")
    by_node = TuningEntry("winograd", 2, node="conv1")
    by_level = TuningEntry("gemm", 3, node="conv1", level="avx2")
    tuning = Tuning(Path("t.yml"), (by_level, by_op, by_node))
    assert tuning.find(KEY, "avx2") is by_level
    assert tuning.find(KEY, "sse2") is by_node
    assert tuning.find(replace(KEY, node="conv2"), "avx2") is by_op
    assert tuning.find(replace(KEY, node="conv2", shapes="f32 2"), "avx2") is None


def test_an_entry_about_a_target_is_not_about_another() -> None:
    entry = TuningEntry("direct", 1, node="conv1", target="cpu")
    assert entry.is_about(KEY)
    assert not entry.is_about(replace(KEY, target="arm"))


def test_entries_about_other_abis_are_left_out(tmp_path: Path) -> None:
    text = "choices:\n  - {node: a, candidate: b, abi: arm64}\n  - {node: c, candidate: d}\n"
    model = Model("m", (), keys={"tuning": str(write_tuning(tmp_path, text))})
    assert [entry.node for entry in tuning_of(model, "host").entries] == ["c"]
    assert [entry.node for entry in tuning_of(model, "arm64").entries] == ["a", "c"]
    assert tuning_of(Model("m", ()), "host").entries == ()


def test_shapes_are_written_as_tuning_files_have_them() -> None:
    tensors = [Tensor("x", DType.F32, (1, 8, 8, 3)), Tensor("b", DType.I8, ())]
    assert shape_key(tensors) == "f32 1x8x8x3, i8 scalar"
