"""What every distribution of the workspace declares: metadata, a page that stands alone, and all that its code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
KINDS = ("frontends", "plugins", "targets", "toolchains")
FOLDERS = [
    ROOT / "bundle",
    ROOT / "core",
    *sorted(p.parent for kind in KINDS for p in ROOT.glob(f"{kind}/*/pyproject.toml")),
]
EVERY = pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)


@cache
def distributions() -> Mapping[str, list[str]]:
    """The modules that are installed, and which distributions bring each.

    To read it takes a second, which every worker would spend if it were done where the module is imported.
    """
    return packages_distributions()


@cache
def project(folder: Path) -> dict[str, Any]:
    """The [project] table of a distribution."""
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


@EVERY
def test_metadata_is_whole(folder: Path) -> None:
    declared = project(folder)
    assert declared["license"] == "Apache-2.0"
    assert declared["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert declared["authors"]
    assert set(declared["urls"]) >= {"Homepage", "Package"}
    assert declared["urls"]["Package"].endswith(f"/{declared['name']}/")
    assert len(declared["classifiers"]) >= 5
    assert 20 <= len(declared["description"]) <= 150


@EVERY
def test_the_page_stands_alone(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# {project(folder)['name']}\n")
    assert re.search(rf"pip install .*{project(folder)['name']}\b", text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith("https://") for link in links), "a package page has no files beside it"
    assert not re.search(r"pip install mace(?![-\w])", text), "that name belongs to another project"


@pytest.mark.slow
@EVERY
def test_every_import_is_declared(folder: Path) -> None:
    declared = project(folder)
    required = [
        *declared["dependencies"],
        *(d for extra in declared.get("optional-dependencies", {}).values() for d in extra),
    ]
    names = {_normalize(re.split(r"[<>=!;\[ ]", requirement)[0]) for requirement in required}
    for file in sorted(folder.glob("src/**/*.py")):
        for module in _imports(file):
            bringing = {_normalize(d) for d in distributions().get(module, ())}
            known = not bringing or bringing & (names | {declared["name"]})
            assert known, f"{file.relative_to(ROOT)}: {module} comes with {sorted(bringing)}"


def test_the_bundle_holds_what_needs_nothing_else() -> None:
    """All that works after one pip install.

    Left out is what needs a framework, a vendor's tools or a system's compiler, and what is for one vendor's chips.
    """
    ours = {project(f)["name"] for f in FOLDERS} - {"mace-build"}
    left_out = {
        "mace-frontend-ai8x",
        "mace-frontend-pytorch",
        "mace-target-ethosu",
        "mace-target-hexagon",
        "mace-target-max78000",
        "mace-target-max78002",
        "mace-target-mdla",
        "mace-target-opencl",
        "mace-tflite-writer",
        "mace-toolchain-arm-none-eabi",
        "mace-toolchain-gnu",
        "mace-toolchain-ndk",
        "mace-toolchain-hexagon-sdk",
        "mace-toolchain-neuropilot",
    }
    bundled = {re.split(r"[<>=]", d)[0] for d in project(ROOT / "bundle")["dependencies"]}
    assert bundled == ours - left_out


def _imports(file: Path) -> Iterator[str]:
    """The top-level names that a module imports when it runs, without the standard library."""
    tree = ast.parse(file.read_text())
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    # What only a type checker imports comes with the type checker.
    checked = {id(inner) for block in blocks for statement in block.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in checked:
            continue
        if isinstance(node, ast.Import):
            results = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            results = [node.module]
        else:
            continue
        yield from (
            name for name in (n.partition(".")[0] for n in results) if name not in sys.stdlib_module_names
        )


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
