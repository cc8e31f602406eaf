"""The house rules: sizes, imports, names, state."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {"frontends": "frontend", "targets": "target", "toolchains": "toolchain", "plugins": "transform"}
SOURCES = sorted(p for folder in ("core", *KINDS) for p in (ROOT / folder).glob("**/src/**/*.py"))
VENDORS = re.compile(r"onnx|tflite|tensorflow|caffe|\bkeras|\bpytorch\b|\bneon\b|opencl|hexagon|mdla|max78|bionic|qualcomm", re.IGNORECASE)
NESTING = (ast.If, ast.For, ast.While, ast.With, ast.Try)
LIMITS = {"lines of a file": 400, "lines of a function": 50, "parameters": 5, "nesting": 4}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def depth(node: ast.AST, level: int = 0) -> int:
    inner = [depth(child, level + isinstance(child, NESTING)) for child in ast.iter_child_nodes(node)]
    return max(inner, default=level)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LIMITS["lines of a file"]
    for function in functions(ast.parse(text)):
        length = (function.end_lineno or 0) - function.lineno + 1
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg not in ("self", "cls")]
        assert length <= LIMITS["lines of a function"], f"{function.name}: {length} lines"
        assert depth(function) <= LIMITS["nesting"], f"{function.name}: nested {depth(function)} deep"
        if not command(function) and not numpy_reference(function, path):
            assert len(names) <= LIMITS["parameters"], f"{function.name}: {len(names)} parameters"


def command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command of the CLI: its parameters are the options of the command line."""
    return any("main.command" in ast.unparse(d) for d in function.decorator_list)


def numpy_reference(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> bool:
    """An op's reference: its parameters are the op's inputs and attributes."""
    return path.parent.name == "ops" and path.is_relative_to(ROOT / "core") and function.name.startswith("_")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_global_state_exit_or_print(path: Path) -> None:
    face = path.name in ("cli.py", "scons.py")
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global), "a global statement"
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), "a bare except"
        if isinstance(node, ast.Call) and not face:
            assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "quit"), f"line {node.lineno}"


def test_core_names_no_framework_vendor_or_chip() -> None:
    for path in sorted((ROOT / "core/src").glob("**/*")):
        if path.suffix in (".py", ".in", ".h", ".c"):
            found = [line for line in path.read_text().splitlines() if VENDORS.search(line) and "ONNX" not in line]
            assert not found, f"{path.name}: {found[0]}"


def test_only_the_scons_face_imports_scons() -> None:
    for path in SOURCES:
        if path.name != "scons.py":
            assert not re.search(r"^\s*(import|from) SCons", path.read_text(), re.MULTILINE), path


def test_python_is_started_without_the_working_folder() -> None:
    """`python -m` and `python -c` take modules from the folder where they run, which may be a stranger's, unless -P is given."""
    starts = [line.strip() for path in SOURCES for line in path.read_text().splitlines() if "sys.executable" in line]
    assert starts
    assert [line for line in starts if 'sys.executable, "-P", ' not in line] == []


def test_imports_point_inward() -> None:
    allowed = {"mace_target_arm": {"mace_target_cpu"}, "mace_target_max78002": {"mace_target_max78000"}}
    for path in SOURCES:
        own = next(part for part in path.parts if part.startswith("mace_"))
        for name in re.findall(r"^\s*(?:import|from) (mace_\w+)", path.read_text(), re.MULTILINE):
            assert name in {"mace_core", own, *allowed.get(own, ())}, f"{path}: imports {name}"


@pytest.mark.parametrize("folder", [f for kind in KINDS for f in sorted((ROOT / kind).iterdir()) if f.is_dir()], ids=lambda f: f.name)
def test_naming_rule(folder: Path) -> None:
    kind = KINDS[folder.parent.name]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    module = f"mace_{kind}_{folder.name.replace('-', '_')}"
    assert project["name"] == f"mace-{kind}-{folder.name}"
    assert project["entry-points"]["mace.v1"] == {f"{kind}-{folder.name}": module}
    assert (folder / "src" / module / "__init__.py").is_file()
    assert (folder / "tests/test_contract.py").is_file()
    assert (folder / "README.md").is_file()


C_NAME = re.compile(r"\b(?:mace|MACE)_\w+")
C_DEFINITION = re.compile(r"^static\b[^;{(]*?\b(mace_\w+)\s*\(|^#define\s+(mace_\w+|MACE_\w+)|^typedef\b[^;]*?\b(mace_\w+);", re.MULTILINE)


def test_kernels_define_no_name_of_the_public_headers() -> None:
    """Kernels include the public headers: a function of theirs with a public type's name does not compile in the libraries that have it."""
    public = {n for path in sorted((ROOT / "core/src/mace_core/runtime").glob("*.h")) for n in C_NAME.findall(path.read_text())}
    kernels = sorted(ROOT.glob("targets/*/src/*/kernels/*.in"))
    assert kernels
    for path in kernels:
        defined = {name for match in C_DEFINITION.findall(path.read_text()) for name in match if name}
        assert not defined & public, path.name
