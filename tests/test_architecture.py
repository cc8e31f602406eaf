"""The house rules: sizes, imports, names, state."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {"frontends": "frontend", "targets": "target", "toolchains": "toolchain", "plugins": "transform"}
SOURCES = sorted(p for folder in ("core", *KINDS) for p in (ROOT / folder).glob("**/src/**/*.py"))
VENDORS = re.compile(
    r"onnx|tflite|tensorflow|caffe|\bkeras|\bpytorch\b|\bneon\b|opencl|hexagon|mdla|max78|bionic|qualcomm",
    re.IGNORECASE,
)
NESTING = (ast.If, ast.For, ast.While, ast.With, ast.Try)
LIMITS = {"lines of a file": 400, "lines of a function": 50, "parameters": 5, "nesting": 4}


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def tree_of(path: Path) -> ast.Module:
    """Parse a file; trees are not kept, because the collector would go through all of them in every later test."""
    return ast.parse(text_of(path))


def statements_in(node: ast.AST) -> list[ast.AST]:
    """The statements right below a node; expressions hold none and are most of a tree."""
    inner = ast.stmt | ast.ExceptHandler | ast.match_case
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, inner)]


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in statements_in(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        yield from functions(child)


def depth(node: ast.AST, level: int = 0) -> int:
    inner = [depth(child, level + isinstance(child, NESTING)) for child in statements_in(node)]
    return max(inner, default=level)


def test_files_are_small() -> None:
    """Tests, tools and benchmarks as well as shipped files."""
    folders = (ROOT / folder for folder in ("core", *KINDS, "tests", "tools", "benchmarks", "docs"))
    files = [path for folder in folders for path in folder.glob("**/*.py")]
    sizes = {relative(path): len(text_of(path).splitlines()) for path in files}
    assert {name: n for name, n in sizes.items() if n > LIMITS["lines of a file"]} == {}


@pytest.mark.slow
def test_functions_are_small() -> None:
    faults = [
        f"{relative(path)}: {function.name}: {fault}"
        for path in SOURCES
        for function in functions(tree_of(path))
        for fault in faults_of_size(function, path)
    ]
    assert faults == []


def faults_of_size(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> Iterator[str]:
    if (length := lines_of_code(function)) > LIMITS["lines of a function"]:
        yield f"{length} lines"
    if (nested := depth(function)) > LIMITS["nesting"]:
        yield f"nested {nested} deep"
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    count = sum(name not in ("self", "cls") for name in names)
    if count > LIMITS["parameters"] and not command(function) and not numpy_reference(function, path):
        yield f"{count} parameters"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring, which may be as long as it needs to be."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    documented = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - documented


def command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command of the CLI: its parameters are the options of the command line."""
    return any(re.match(r"(main|click)\.command", ast.unparse(d)) for d in function.decorator_list)


def numpy_reference(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> bool:
    """An op's reference: its parameters are the op's inputs and attributes."""
    return path.parent.name == "ops" and path.is_relative_to(ROOT / "core") and function.name.startswith("_")


def test_no_global_state_exit_or_print() -> None:
    faults = [f"{relative(path)}, {fault}" for path in SOURCES for fault in faults_of_style(path)]
    assert faults == []


def faults_of_style(path: Path) -> Iterator[str]:
    is_face = path.name in ("cli.py", "cli_options.py", "scons.py")
    if not re.search(r"\bglobal\b|\bexcept\s*:|\b(print|exit|quit)\b", text_of(path)):
        return  # to walk through the expressions of all files takes a second
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: a global statement"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"line {node.lineno}: a bare except"
        if isinstance(node, ast.Call) and not is_face:
            name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
            if name in ("print", "sys.exit", "exit", "quit"):
                yield f"line {node.lineno}: {name}()"


def test_core_names_no_framework_vendor_or_chip() -> None:
    """Comments of operators may, because they say whose definition an operator follows."""
    for path in sorted((ROOT / "core/src").glob("**/*")):
        if path.suffix in (".py", ".in", ".h", ".c"):
            defines_operators = path.parent.name == "ops" or path.name == "decompositions.py"
            text = code_alone(path) if defines_operators else text_of(path)
            # A value of the key `numerics`: it says whose rounding is imitated.
            text = text.replace("tflite-reference", "")
            results = [line for line in text.splitlines() if VENDORS.search(line) and "ONNX" not in line]
            assert not results, f"{path.name}: {results[0]}"


def code_alone(path: Path) -> str:
    """The source of a module without comments and docstrings."""
    statements = [node for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.stmt)]
    return "\n".join(
        ast.unparse(node)
        for node in statements
        if not hasattr(node, "body")
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    )


def test_only_the_scons_face_imports_scons() -> None:
    for path in SOURCES:
        if path.name != "scons.py":
            assert not re.search(r"^\s*(import|from) SCons", text_of(path), re.MULTILINE), path


def test_python_is_started_without_the_working_folder() -> None:
    """`python -m` and `python -c` take modules from the folder where they run, which may be a stranger's, unless -P is given."""
    starts = [text for path in SOURCES for text in re.findall(r"sys\.executable,\s*\S+", text_of(path))]
    assert starts
    assert [text for text in starts if not text.endswith('"-P",')] == []


def test_imports_point_inward() -> None:
    allowed = {
        "mace_target_arm": {"mace_target_cpu"},
        "mace_target_hexagon": {"mace_target_cpu"},
        "mace_target_max78002": {"mace_target_max78000"},
        # The type of the placement hint is the frontend's: networks in the vendor's terms are its format.
        "mace_target_max78000": {"mace_frontend_ai8x"},
    }
    libraries = {name for folder in folders_of_plugins() if is_library(folder) for name in modules_of(folder)}
    for path in SOURCES:
        own = next(part for part in path.parts if part.startswith("mace_"))
        declared = libraries & dependencies_of(path) if own not in libraries else set()
        for name in re.findall(r"^\s*(?:import|from) (mace_\w+)", text_of(path), re.MULTILINE):
            assert name in {"mace_core", own, *allowed.get(own, ()), *declared}, f"{path}: imports {name}"


def folders_of_plugins() -> list[Path]:
    return [f for kind in KINDS for f in sorted((ROOT / kind).iterdir()) if (f / "pyproject.toml").is_file()]


@cache
def project_of(folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def is_library(folder: Path) -> bool:
    """A distribution without entry points is no plugin: it is code that several targets share."""
    return "entry-points" not in project_of(folder)


def modules_of(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("src/*/__init__.py")}


def dependencies_of(path: Path) -> set[str]:
    """The distributions that a source's own one depends on, as modules."""
    folder = next(parent for parent in path.parents if (parent / "pyproject.toml").is_file())
    names = (re.split(r"[<>=!;\[ ]", text)[0] for text in project_of(folder)["dependencies"])
    return {name.replace("-", "_") for name in names}


@pytest.mark.parametrize(
    "folder", [f for f in folders_of_plugins() if is_library(f)], ids=lambda folder: folder.name
)
def test_naming_rule_of_libraries(folder: Path) -> None:
    """`plugins/NAME` is distribution `mace-NAME`: no kind, because no hook finds it."""
    assert folder.parent.name == "plugins"
    assert project_of(folder)["name"] == f"mace-{folder.name}"
    assert modules_of(folder) == {f"mace_{folder.name.replace('-', '_')}"}
    assert list((folder / "tests").glob("test_*.py"))
    assert (folder / "README.md").is_file()


@pytest.mark.parametrize(
    "folder",
    [f for f in folders_of_plugins() if not is_library(f)],
    ids=lambda f: f.name,
)
def test_naming_rule(folder: Path) -> None:
    kind = KINDS[folder.parent.name]
    project = project_of(folder)
    module = f"mace_{kind}_{folder.name.replace('-', '_')}"
    assert project["name"] == f"mace-{kind}-{folder.name}"
    assert project["entry-points"]["mace.v1"] == {f"{kind}-{folder.name}": module}
    assert (folder / "src" / module / "__init__.py").is_file()
    assert (folder / "tests/test_contract.py").is_file()
    assert (folder / "README.md").is_file()


C_NAME = re.compile(r"\b(?:mace|MACE)_\w+")
C_DEFINITION = re.compile(
    r"^static\b[^;{(]*?\b(mace_\w+)\s*\(|^#define\s+(mace_\w+|MACE_\w+)|^typedef\b[^;]*?\b(mace_\w+);",
    re.MULTILINE,
)


def test_kernels_define_no_name_of_the_public_headers() -> None:
    """Kernels include the public headers: a function of theirs with a public type's name does not compile in the libraries that have it."""
    public = {
        n
        for path in sorted((ROOT / "core/src/mace_core/runtime").glob("*.h"))
        for n in C_NAME.findall(text_of(path))
    }
    kernels = sorted(ROOT.glob("targets/*/src/*/kernels/*.in"))
    assert kernels
    for path in kernels:
        defined = {name for match in C_DEFINITION.findall(text_of(path)) for name in match if name}
        assert not defined & public, path.name


CORE = ROOT / "core/src/mace_core"
CORE_TESTS = ROOT / "core/tests"
TESTED_ELSEWHERE = {
    "api": (
        "core/tests/test_registry.py",
        "base classes without behavior; each plugin's contract tests them",
    ),
    "build_folder": ("core/tests/test_scons.py", "SCons alone asks for the folder's lock"),
    "cli": ("core/tests/test_commands.py", "commands are tried from the command line"),
    "device_code": (
        "core/tests/test_device_binaries.py",
        "an interface without behavior, which run/device_binaries.py calls",
    ),
    "deployment/convert": ("core/tests/test_deployment.py", "values are converted as a file is read"),
    "deployment/faults": ("core/tests/test_deployment.py", "faults are told as a file is read"),
    "deployment/objects": ("core/tests/test_deployment.py", "data without behavior"),
    "deployment/parse": ("core/tests/test_deployment.py", "it reads files"),
    "deployment/ports": ("core/tests/test_deployment.py", "keys of ports are read with a file"),
    "deployment/schema": ("core/tests/test_deployment.py", "documents are checked as a file is read"),
    "emit/addresses": ("core/tests/test_emit_model.py", "a model shows its addresses"),
    "emit/code": ("core/tests/test_program.py", "its owner moves it to sessions"),
    "emit/device": ("core/tests/test_emit_model.py", "a model shows its devices"),
    "explain": ("core/tests/test_report.py", "what `mace explain` prints of a report"),
    "generation": ("tests/test_outputs.py", "files of a build, in one run with it"),
    "build_manifest": ("core/tests/test_manifest.py", "the manifest and its parts are one file of tests"),
    "hookspecs": ("tests/test_plugins.py", "hooks are asked of installed plugins"),
    "toolchain": (
        "core/tests/test_registry.py",
        "base classes without behavior; each plugin's contract tests them",
    ),
    "levels": ("core/tests/test_kernel_target.py", "levels are a kernel target's"),
    "offers": ("core/tests/test_ops.py", "what it offers are the operators"),
    "package_files": ("tests/test_library_packages.py", "CMake and pkg-config find the packages"),
    "plugin_loader": ("tests/test_plugins.py", "it loads installed distributions"),
    "run/calibrate": ("core/tests/test_tune.py", "it measures costs as a model is tuned"),
    "run/check": ("core/tests/test_commands.py", "`scons check` of a built library"),
    "run/framework_child": ("core/tests/test_framework_process.py", "it answers the process that starts it"),
    "run/layers": ("core/tests/test_commands.py", "`mace validate --layers` of a built library"),
    "run/results": ("core/tests/test_report.py", "data without behavior, printed by commands"),
    "run/steps": ("core/tests/test_framework.py", "it runs a library beside its framework"),
    "run/tuning_job": ("core/tests/test_tune.py", "it builds what a tuning times"),
    "run/tuning_record": ("core/tests/test_tune.py", "a later tuning reads what an earlier one wrote"),
    "run/tuning_trials": ("core/tests/test_tune.py", "a tuning chooses among them"),
    "run/validate": ("core/tests/test_framework.py", "it compares a library with its framework"),
    "job": ("core/tests/test_build_steps.py", "data without behavior, which every build is made from"),
    "step": ("core/tests/test_build_steps.py", "data, and steps that a build is made of"),
    "selection": ("core/tests/test_candidates.py", "data without behavior, which choosing writes"),
    "run/validation_job": ("tests/test_states.py", "data without behavior, which a validation reads"),
}
"""Modules of the core without tests of their own -> the file that tests them, and why there."""


def core_modules() -> list[str]:
    """Paths without suffix.

    Not the operators, which `test_ops.py` tests all alike, nor what is itself for tests.
    """
    result = sorted(p.relative_to(CORE) for p in CORE.glob("**/*.py") if p.name != "__init__.py")
    return [str(p.with_suffix("")) for p in result if p.parts[0] not in ("ops", "testing", "scaffold_files")]


def own_tests(module: str) -> list[Path]:
    """The files of tests that may be the module's: `run/tables` has test_run_tables.py, or test_tables.py."""
    stem, whole = Path(module).name, module.replace("/", "_")
    taken = CORE / f"{stem}.py" if "/" in module else CORE / "no module"
    names = {whole} if taken.exists() else {whole, stem}
    return [path for name in sorted(names) if (path := CORE_TESTS / f"test_{name}.py").exists()]


def test_core_modules_have_tests_of_their_own() -> None:
    """A changed module is tested alone by the file that bears its name, or by the one that the list names."""
    faults = {module: fault for module in core_modules() if (fault := fault_of_tests(module))}
    assert faults == {}


def fault_of_tests(module: str) -> str:
    file, reason = TESTED_ELSEWHERE.get(module, ("", ""))
    if own_tests(module):
        return "it has tests of its own: take it off the list" if reason else ""
    if not reason:
        return f"write core/tests/test_{module.replace('/', '_')}.py, so that the module can be tested alone"
    return "" if (ROOT / file).is_file() else f"{file} does not exist"


def test_the_list_of_modules_tested_elsewhere_is_of_modules() -> None:
    assert set(TESTED_ELSEWHERE) - set(core_modules()) == set()


def test_test_modules_that_others_import_have_names_of_their_own() -> None:
    """All folders of tests are in one path: of two modules of one name, the first would be imported."""
    files = [file for folder in ("core", "tests", *KINDS) for file in (ROOT / folder).glob("**/test_*.py")]
    places = Counter(file.stem for file in files)
    imported = {
        name for file in files for name in re.findall(r"^from (test_\w+) import", text_of(file), re.M)
    }
    assert not [name for name in imported if places[name] > 1]
