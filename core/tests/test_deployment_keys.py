"""Keys of a deployment file by effect: what ports and models become of them, and the exact fault of each wrong value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mace_core.deployment import Deployment, Port, load_deployment
from mace_core.deployment.source import DEPTH, LARGEST, VALUES
from mace_core.errors import MaceError

TABLE = Path(__file__).with_suffix(".txt")
BASE = """\
library_name: vision
models:
  net:
    model_file_path: net.onnx
    input_tensors: [a, b]
    output_tensors: y
"""


def load(folder: Path, text: str) -> Deployment:
    (folder / "net.onnx").write_bytes(b"model")
    (folder / "v.yml").write_text(text, encoding="utf-8")
    return load_deployment(folder / "v.yml", ("onnx", "tflite"), None, ["cpu", "gpu", "npu"])


def plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


@cache
def default_keys() -> Mapping[str, object]:
    """The keys of a model that states none but its file."""
    with TemporaryDirectory() as folder:
        return load(Path(folder), BASE).models[0].keys


def outcome(folder: Path, text: str) -> list[str]:
    """The faults of a file, or its ports with what they do not leave to the model, and what else was decided."""
    try:
        parsed = load(folder, text)
    except MaceError as error:
        return str(error).replace(f"{folder}/", "").replace(str(folder), "FOLDER").splitlines()
    lines = []
    for model in parsed.models:
        for port in (*model.inputs, *model.outputs):
            stated = [
                f"{f.name}={getattr(port, f.name)}"
                for f in fields(Port)
                if getattr(port, f.name) != f.default
            ]
            lines.append(" ".join(["port", port.name, *stated[1:]]))
        rest = [
            model.name,
            str(model.platform),
            "+".join(model.runtimes),
            *(file.name for file in model.files),
        ]
        lines.append(f"model {' '.join(rest)}")
        lines += [
            f"key {key}={plain(value)}"
            for key, value in model.keys.items()
            if value != default_keys().get(key)
        ]
    if (parsed.library, parsed.abis) != ("vision", ("host",)):
        lines.append(f"library {parsed.library} for {', '.join(parsed.abis)}")
    notes = [f"note {note}" for note in parsed.notes]
    return [line.replace(f"{folder}/", "") for line in (*lines, *notes)]


def read_cases(section: str) -> list[tuple[str, list[str]]]:
    """Cases of a section of the table: lines of YAML, and behind "=>" what becomes of them."""
    text = TABLE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    cases = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        cases.append(
            (
                "".join(f"{line}\n" for line in lines if not line.startswith("=> ")),
                [line[3:] for line in lines if line.startswith("=> ")],
            )
        )
    return cases


KEYS, DOCUMENTS = read_cases("keys"), read_cases("documents")


@pytest.mark.parametrize(("lines", "expected"), KEYS, ids=[case[0].partition(":")[0] for case in KEYS])
def test_a_key_of_a_model(tmp_path: Path, lines: str, expected: list[str]) -> None:
    text = BASE + "".join(f"    {line}\n" for line in lines.splitlines())
    actual = outcome(tmp_path, text)
    known = {"port a", "port b", "port y", "model net None cpu net.onnx"}
    assert [line for line in actual if line not in known] == expected


@pytest.mark.parametrize(("text", "expected"), DOCUMENTS)
def test_a_document(tmp_path: Path, text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACE_NAME", "vision")
    monkeypatch.setenv("MACE_URL", "https://h.example/")
    monkeypatch.delenv("MACE_UNSET", raising=False)
    assert outcome(tmp_path, text) == expected


def test_limits_of_size_depth_and_number(tmp_path: Path) -> None:
    """Each is met from both sides."""
    comment = "#" * (LARGEST - len(BASE) - 1) + "\n"
    assert outcome(tmp_path, BASE + comment) == outcome(tmp_path, BASE)
    assert outcome(tmp_path, f"{BASE}#{comment}") == [
        "v.yml: is larger than 256 KiB; split it: each library can have a file of its own"
    ]
    for brackets, is_deep in ((DEPTH - 1, False), (DEPTH, True)):
        actual = outcome(tmp_path, f"x: {'[' * brackets}{']' * brackets}\n")
        assert (actual == [f"v.yml:1: nested deeper than {DEPTH} levels; write it flat"]) == is_deep, actual
    for count, is_many in ((VALUES - 3, False), (VALUES - 2, True)):
        actual = outcome(tmp_path, f"x: [{'1,' * count}]\n")
        assert (f"v.yml:1: more than {VALUES} values; remove aliases or split the file" in actual) == is_many


def test_aliases_count_with_all_below(tmp_path: Path) -> None:
    """A list of a thousand values, repeated by name: 18 times fit, 19 times do not."""
    for times, is_many in ((18, False), (19, True)):
        actual = outcome(tmp_path, f"x: &x [{'1,' * 999}]\ny: [{'*x,' * times}]\n")
        assert ("v.yml:2: more than 20000 values; remove aliases or split the file" in actual) == is_many
    deep = f"x: &x {'[' * 8}{']' * 8}\n"
    for brackets, is_deep in ((7, False), (8, True)):
        actual = outcome(tmp_path, f"{deep}y: {'[' * brackets}*x{']' * brackets}\n")
        assert ("v.yml:2: nested deeper than 16 levels; write it flat" in actual) == is_deep, (
            brackets,
            actual,
        )
