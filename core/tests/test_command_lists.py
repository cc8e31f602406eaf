"""Lists, schemas, new plugins and what is looked up for a command, without a compiler."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from mace_core import commands
from mace_core.cli import main
from mace_core.commands import list_plugins, one_abi


def mace(*words: str, status: int = 0) -> str:
    done: Result = CliRunner().invoke(main, words)
    assert done.exit_code == status, done.output
    return done.output


@pytest.mark.parametrize("command", ["matrix", "plugins", "explain --passes", "doctor --target host"])
def test_lists_are_text_for_people_and_json_for_programs(command: str) -> None:
    found, text = json.loads(mace(*command.split(), "--json")), mace(*command.split())
    assert text.count("\n") > 1
    assert not text.startswith(("[", "{"))
    if command == "matrix":
        assert text.split() == found["target"]
        assert "host" in found["target"]
    if command == "plugins":
        assert {"cpu", "onnx"} <= {plugin["name"].partition("-")[2] for plugin in found}


def test_the_schema_is_json() -> None:
    assert json.loads(mace("schema"))["type"] == "object"


def test_doctor_fails_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from mace_core import doctor

    monkeypatch.setattr(doctor, "list_missing", lambda findings: findings)
    mace("doctor", "--target", "host", status=1)


@pytest.mark.parametrize(
    ("has_pip", "line"), [(True, "-m pip install -e"), (False, "uv pip install --python ")]
)
def test_a_new_plugin_comes_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pip: bool, line: str
) -> None:
    from mace_core import cli

    monkeypatch.setattr(cli, "find_spec", lambda name: object() if has_pip else None)
    said = mace("new", "toolchain", "acme", "--output", str(tmp_path))
    folder = tmp_path / "mace-toolchain-acme"
    assert said.startswith(f"wrote {folder}; next: ")
    assert line in said
    assert said.endswith(f"-m pytest {folder}\n")


@pytest.mark.parametrize(
    ("abis", "abi"), [(["arm64"], "arm64"), (["arm64", "host"], "host"), (["x86", "arm64"], "x86")]
)
def test_the_abi_where_only_one_is_possible(abis: list[str], abi: str) -> None:
    assert one_abi(SimpleNamespace(abis=abis)) == abi  # type: ignore[arg-type]


class Offer:
    """A target and a toolchain that say what they lack."""

    abis = ("b", "a")

    def __init__(self, lacks: str) -> None:
        self.lacks = lacks

    def missing(self, abi: str = "") -> str:
        if self.lacks == "raise":
            raise SystemExit("no")
        return f"{self.lacks} {abi}".strip() if self.lacks and abi != "a" else ""


@pytest.mark.parametrize(
    ("kind", "lacks", "reasons"),
    [
        ("targets", "", []), ("targets", "a driver", ["a driver"]), ("toolchains", "", []),
        ("toolchains", "gcc", ["b: gcc b"]), ("transforms", "gcc", []),
        ("targets", "raise", ["x: cannot say what it needs: SystemExit: no"]),
    ],
)  # fmt: skip
def test_what_a_plugin_lacks(kind: str, lacks: str, reasons: list[str]) -> None:
    loader = SimpleNamespace(tables={kind: {"x": Offer(lacks)}})
    assert commands._missing(loader, [(kind, "x")]) == reasons  # type: ignore[arg-type]


def test_plugins_are_listed_by_name_with_what_they_offer() -> None:
    listed = list_plugins()
    assert [plugin.name for plugin in listed] == sorted(plugin.name for plugin in listed)
    offers = {plugin.name: plugin.offers for plugin in listed}
    assert offers["target-cpu"][0] == "target cpu"
    assert offers["frontend-onnx"][0] == "frontend onnx"
    assert any(
        offer.endswith(" ops") and offer.split()[0].isdigit() for names in offers.values() for offer in names
    )
