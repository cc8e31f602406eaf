"""Tables whose rows lie in the modules of a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.tables import rows


def package(folder: Path, name: str, **modules: str) -> str:
    (folder / name).mkdir()
    for module, text in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(text)
    return name


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))


def test_rows_of_all_modules_are_one_table(tmp_path: Path) -> None:
    name = package(
        tmp_path, "tables_of_two", one="ROWS = {'a': 1}", two="ROWS = {'b': 2}", none="OTHER = {'c': 3}"
    )
    assert dict(rows(name, "ROWS")) == {"a": 1, "b": 2}
    assert dict(rows(name, "OTHER")) == {"c": 3}
    assert dict(rows(name, "NONE")) == {}


def test_a_table_cannot_be_changed_by_its_readers(tmp_path: Path) -> None:
    table = rows(package(tmp_path, "tables_to_read", one="ROWS = {'a': 1}"), "ROWS")
    with pytest.raises(TypeError):
        table["b"] = 2  # type: ignore[index]
    assert rows("tables_to_read", "ROWS") is table


def test_a_key_that_two_modules_offer_is_a_bug(tmp_path: Path) -> None:
    name = package(tmp_path, "tables_twice", one="ROWS = {'a': 1}", two="ROWS = {'a': 1}")
    with pytest.raises(AssertionError, match=r"tables_twice.two offers \['a'\] a second time"):
        rows(name, "ROWS")


def test_a_package_that_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        rows("tables_that_nobody_wrote", "ROWS")
