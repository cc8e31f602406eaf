"""`mace check`: what is fine, what was decided, and all faults together."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.api import Compiler, GeneratedFiles, Manifest
from mace_core.compilation import CompiledModel
from mace_core.errors import MaceError
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run import ready
from mace_core.run.ready import Computable, Note, Ready, check
from mace_core.transforms import run_phases

DIGITS = Path(__file__).parents[2] / "models/digits"


@pytest.fixture(autouse=True)
def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's part is that of run/compile.py."""
    for name in ("check_syntax", "check_link"):
        monkeypatch.setattr(ready, name, lambda *words: None)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("digits.onnx", "digits.yml", "test_inputs.npy", "test_outputs.npy"):
        shutil.copy(DIGITS / name, tmp_path)
    return tmp_path / "digits.yml"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def notes(file: Path, registry: Registry, target: str = "", **options: bool) -> list[str]:
    return [finding.text for finding in check(file, target, registry, **options) if isinstance(finding, Note)]


def test_everything_is_fine(file: Path, registry: Registry) -> None:
    found = list(check(file, "", registry))
    assert [type(finding) for finding in found] == [Computable, Ready]
    assert isinstance(found[0], Computable)
    count = found[0].nodes["cpu"]
    assert str(found[0]) == f"digits: {count} nodes, every one has a target for host: {count} on cpu"
    assert str(found[1]).startswith(f"{file}: ready for target=host with toolchain ")
    twice = list(check(file, "host,arm64", registry))
    assert [finding.target for finding in twice if isinstance(finding, Computable | Ready)] == [
        "host",
        "arm64",
    ] * 2


@pytest.mark.parametrize(
    ("nodes", "states", "text"),
    [
        ({"cpu": 2, "npu": 3}, (), "m: 5 nodes, every one has a target for host: 2 on cpu, 3 on npu"),
        (
            {},
            ("h", "c"),
            "m: 0 nodes, every one has a target for host: nothing to compute; sessions keep h, c",
        ),
    ],
)
def test_what_can_be_computed(nodes: dict[str, int], states: tuple[str, ...], text: str) -> None:
    found = Computable("m", "host", nodes, states)
    assert str(found) == text
    assert found.as_json() == {
        "kind": "computable",
        "model": "m",
        "target": "host",
        "nodes": nodes,
        "states": list(states),
    }
    assert (str(Note("x")), Note("x").as_json()) == ("note: x", {"kind": "note", "text": "x"})
    assert Ready(Path("f"), "host", "gnu", "glibc").as_json() == {
        "kind": "ready", "target": "host", "toolchain": "gnu", "libc": "glibc"
    }  # fmt: skip


def test_data_that_is_absent_is_noted(file: Path, registry: Registry) -> None:
    (file.parent / "test_outputs.npy").unlink()
    (note,) = notes(file, registry)
    assert (
        note
        == f"digits: validation data of 'probabilities': no such file: {file.parent / 'test_outputs.npy'}"
    )


def test_an_abi_that_is_none_is_noted_where_another_is_asked_for(file: Path, registry: Registry) -> None:
    change(file, "target_abis: [host]", "target_abis: [host, hots+cpu, cpu]")
    (note,) = notes(file, registry, "host")
    assert note.startswith("target_abis: no ABI 'hots'; choose one of amd64, arm64, ")
    with pytest.raises(MaceError, match=r"target=hots.*: no ABI 'hots'"):
        list(check(file, "", registry))


def test_notes_on_a_graph_are_told_where_no_target_can_be_chosen(
    file: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "run_phases", lambda *a: replace(run_phases(*a), notes=("a weight is lost",)))
    change(file, "target_abis: [host]", "target_abis: [hots]")
    findings = check(file, "", registry)
    assert str(next(findings)) == "note: digits: a weight is lost"
    with pytest.raises(MaceError, match="target=hots"):
        next(findings)


def test_keys_without_effect_are_notes_or_faults(file: Path, registry: Registry) -> None:
    change(file, "    runtime: cpu\n", "    runtime: cpu\n    obfuscate: 1\n")
    (note,) = notes(file, registry)
    assert "obfuscate: accepted; has no effect yet" in note
    with pytest.raises(MaceError) as error:
        list(check(file, "", registry, strict=True))
    assert str(error.value) == f"{note}; remove the key"


def add_part(monkeypatch: pytest.MonkeyPatch, abi: str) -> list[str]:
    """Let every library have a part for an ABI; return the list of ABIs whose C is checked."""
    encode, checked = ready.encode, list[str]()

    def encode_with_part(job: Job, compiled: Sequence[CompiledModel], registry: Registry) -> GeneratedFiles:
        sources = encode(job, compiled, registry)
        return replace(sources, manifests=(*sources.manifests, Manifest("part", abi=abi)))

    def check_syntax(sources: GeneratedFiles, compiler: Compiler, folder: Path, abi: str = "") -> None:
        checked.append(abi)

    monkeypatch.setattr(ready, "encode", encode_with_part)
    monkeypatch.setattr(ready, "check_syntax", check_syntax)
    return checked


def test_what_a_part_brings_for_another_abi_is_checked_too(
    file: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = add_part(monkeypatch, "arm64")
    assert isinstance(list(check(file, "host", registry))[-1], Ready)
    assert checked == ["", "arm64"]


def test_a_part_for_an_abi_without_a_toolchain_is_a_fault(
    file: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_part(monkeypatch, "acme-v1")
    with pytest.raises(MaceError, match="ABI 'acme-v1': no toolchain compiles for it"):
        list(check(file, "host", registry))


def test_faults_of_all_stages_are_told_together(file: Path, registry: Registry) -> None:
    change(file, "model_file_path: digits.onnx", "model_file_path: damaged.onnx")
    (file.parent / "damaged.onnx").write_bytes(b"damaged")
    results = []
    with pytest.raises(MaceError) as error:
        results.extend(check(file, "nowhere", registry))
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert "nowhere" in lines[0]
    assert "damaged.onnx" in lines[1]
    assert results == []
    file.write_text("library_name: [\n")
    with pytest.raises(MaceError, match="not valid YAML"):
        list(check(file, "", registry))
