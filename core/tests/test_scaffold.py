"""New plugins: their files, the names in them, and the names that are refused; tests/test_plugins.py installs them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.scaffold import HARDWARE, write_plugin

COMMON = {"README.md", "pyproject.toml", "tests/test_contract.py"}
FILES = {
    ("target", ""): {"src/{m}/__init__.py", "src/{m}/kernels/relu.c.in", "src/{m}/kernels/prelude.h.in"},
    ("target", "cpu"): {"src/{m}/__init__.py", "src/{m}/kernels/relu.c.in", "src/{m}/kernels/prelude.h.in"},
    ("target", "device"): {"src/{m}/__init__.py", "src/{m}/driver/my_chip_driver.c"},
    ("target", "blob"): {"src/{m}/__init__.py", "src/{m}/driver/my_chip_driver.c"},
    ("target", "project"): {
        "src/{m}/__init__.py", *(f"src/{{m}}/project/{name}.in" for name in ("main.c", "network.c", "network.h", "link.ld")),
    },
    ("frontend", ""): {"src/{m}/__init__.py", "src/{m}/load.py", "tests/test_load.py"},
    ("transform", ""): {"src/{m}/__init__.py"},
    ("toolchain", ""): {"src/{m}/__init__.py"},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "hardware"), FILES)
def test_a_plugin_has_the_files_of_its_kind(tmp_path: Path, kind: str, hardware: str) -> None:
    folder = write_plugin(kind, "my-chip", tmp_path / "new", hardware)
    assert folder == tmp_path / f"new/mace-{kind}-my-chip"
    module = f"mace_{kind}_my_chip"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == COMMON | {name.format(m=module) for name in FILES[kind, hardware]}
    project = (folder / "pyproject.toml").read_text()
    assert f'name = "mace-{kind}-my-chip"' in project
    assert f'{kind}-my-chip = "{module}"' in project
    code = (folder / f"src/{module}/__init__.py").read_text()
    classes = [node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef)]
    assert "MyChip" in classes or kind == "transform"
    assert "{{" not in code


def test_a_class_is_not_called_like_what_its_file_imports(tmp_path: Path) -> None:
    names = {}
    for name in ("graph", "target"):
        folder = write_plugin("target", name, tmp_path)
        code = ast.parse((folder / f"src/mace_target_{name}/__init__.py").read_text())
        names[name] = next(node.name for node in code.body if isinstance(node, ast.ClassDef))
        imported = {
            alias.name for node in ast.walk(code) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        assert names[name] not in imported
    assert names["target"] in ("TargetTarget", "MyTarget")


@pytest.mark.parametrize("name", ["a", "a1", "a-1", "a-b-c"])
def test_names_that_are_taken(tmp_path: Path, name: str) -> None:
    assert write_plugin("toolchain", name, tmp_path).is_dir()
    with pytest.raises(
        MaceError, match=f"mace-toolchain-{name}: exists already; choose another name or folder"
    ):
        write_plugin("toolchain", name, tmp_path)


REMEDY = "is not a plugin name; use small letters, digits and single hyphens, a letter first"


@pytest.mark.parametrize(
    ("kind", "name", "hardware", "said"),
    [
        *(
            ("target", name, "", f"name {name!r}: {REMEDY}")
            for name in ("", "A", "1a", "a_b", "a--b", "-a", "a-", "a/b", "a\n")
        ),
        ("frontend", "a", "cpu", "--kind cpu: a frontend has no kinds; leave it out"),
        ("target", "a", "gpu", f"--kind gpu: no such kind of targets; choose one of {', '.join(HARDWARE)}"),
    ],
)
def test_refused_plugins_leave_nothing(
    tmp_path: Path, kind: str, name: str, hardware: str, said: str
) -> None:
    with pytest.raises(MaceError) as error:
        write_plugin(kind, name, tmp_path, hardware)
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []
