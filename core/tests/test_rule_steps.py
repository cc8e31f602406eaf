"""The steps of the rules: what they make and print without SCons."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.rule_steps import (
    FAILED,
    benchmark_step,
    check_step,
    describe_options,
    package_step,
    print_checks,
    summary_step,
)
from mace_core.run.library_size import LibrarySize, size_text
from mace_core.run.results import Failure, LayerTime, Timing, Validation
from mace_core.run.similarity import Similarity


def test_a_package_holds_the_files_below_its_folder(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/lib.a").write_text("archive")
    step = package_step("all", tmp_path, [tmp_path / "one/lib.a"])
    assert step.products == ("all.tar.gz",)
    step.run(print)
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("lib.a")] == ["one/lib.a"]


@pytest.mark.parametrize("name", ["../up", "a b", "", "-x", "$(x)"])
def test_a_package_needs_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="not a file name"):
        package_step(name, tmp_path, [])


def test_no_rows_of_checks_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.json").write_text("[]")
    assert print_checks([tmp_path / "rows.json"]) == 0
    capsys.readouterr()


def test_a_model_that_was_not_validated_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"model": "net", "target": "host", "problem": "no data", "passed": False}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    assert print_checks([tmp_path / "rows.json"]) == FAILED
    assert "net: not validated: no data" in capsys.readouterr().out


def test_a_summary_prints_its_lines_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = tmp_path / "host.json"
    size.write_text(size_text(LibrarySize({"kernels avx2": 12, "weights\x1b": None}, {"libone.a": 40})))
    summary_step({"one for host: lib": size, "a\x1b[2Jb": tmp_path / "missing"}).run(print)
    assert capsys.readouterr().out == (
        "one for host: lib\n  bytes: kernels avx2 12, weights\\x1b unknown; libone.a 40\na\\x1b[2Jb\n"
    )


def test_help_names_every_abi_and_target() -> None:
    registry = Registry.load()
    text = describe_options(registry)
    assert all(f"    {abi} " in text for abi in registry.abis())
    assert ", ".join(sorted(registry.targets)) in text


def test_a_check_writes_a_row_for_each_model(tmp_path: Path) -> None:
    rows = [Failure("a", "host", "no data"), Failure("b", "host", "none")]
    (choice,) = Registry.load().select("host")
    labels = tmp_path / "labels.npy"
    for file in (labels, None):
        check = SimpleNamespace(
            choice=choice,
            folder=tmp_path,
            labels=file,
            deployment=SimpleNamespace(library="net"),
            run=lambda registry: rows,
        )
        step = check_step(check, Registry.load())  # type: ignore[arg-type]
        assert (step.products, step.sources, step.inputs) == (
            ("check/host.json",),
            (),
            (file,) if file else (),
        )
        assert step.announcement == "checking net for host"
    step.run(print)
    text = (tmp_path / "check/host.json").read_text()
    assert json.loads(text) == [row.as_json() for row in rows]
    assert text.startswith('[\n {\n  "model"')
    assert text.endswith("]\n")


def test_a_benchmark_prints_a_table_and_writes_all_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mace_core.run import check

    calls: list[object] = []

    def benchmark(
        deployment: object, folder: Path, choice: object, registry: object, rounds: int
    ) -> list[Timing]:
        calls.append((folder, rounds))
        return [
            Timing(
                "net", (2e6, 1e6, 3e6), layers=(LayerTime("slow", "k", 9000), LayerTime("slower", "k", 10000))
            )
        ]

    monkeypatch.setattr(check, "benchmark_library", benchmark)
    (choice,) = Registry.load().select("host")
    step = benchmark_step(SimpleNamespace(models=()), tmp_path, choice, Registry.load(), 5)  # type: ignore[arg-type]
    assert (step.products, step.sources, step.announcement) == (("benchmark/host.json",), (), "")
    step.run(print)
    (row,) = json.loads((tmp_path / "benchmark/host.json").read_text())
    assert (row["model"], row["ns"], row["layers"][0]["ns"], calls) == (
        "net",
        [2e6, 1e6, 3e6],
        9000,
        [(tmp_path, 5)],
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["net", "1.000", "2.000"] in lines
    assert [line[0] for line in lines if line and line[0].startswith("slow")] == ["slower", "slow"]


def test_checks_pass_where_all_rows_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, passed in (("one", True), ("two", True), ("three", False)):
        row = Validation(name, "host", Similarity(1, 2, 3, 4), None, 5, "measured", 6, 7, "x", passed)
        (tmp_path / name).write_text(json.dumps([row.as_json()]))
    assert print_checks([tmp_path / "one", tmp_path / "two"]) == 0
    assert print_checks([tmp_path / "one", tmp_path / "three"]) == 2
    capsys.readouterr()
