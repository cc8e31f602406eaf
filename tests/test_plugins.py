"""Plugins from outside: new ones, broken ones, and one that brings an operator with a kernel of its own."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, PathDistribution, entry_points
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mace_core.api import BuildConfig, Region
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError, PluginWarning
from mace_core.generation import generate
from mace_core.hookspecs import GROUP
from mace_core.job import Job
from mace_core.plugin_loader import DISABLED
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.files import write_all
from mace_core.scaffold import HARDWARE, write_plugin
from mace_core.testing.compiled import case, host, with_quick_flags

ROOT = Path(__file__).parents[1]
ACME = ROOT / "tests/plugins/mace-transform-acme/src"
RUFF_OPTIONS = (
    "--no-cache",
    f"--config={ROOT / 'pyproject.toml'}",
    "--config=lint.pycodestyle.max-line-length=110",
)


def installed(folder: Path, kind: str, name: str, version: str = "0.1.0") -> EntryPoint:
    """Make a plugin in `folder` look installed: the metadata that pip would write beside its package."""
    info = folder / f"mace_{kind}_{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mace-{kind}-{name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{kind}-{name} = mace_{kind}_{name}\n")
    return EntryPoint(f"{kind}-{name}", f"mace_{kind}_{name}", GROUP)._for(PathDistribution(info))


@pytest.mark.slow
@pytest.mark.sampled(cases="transform")
@pytest.mark.parametrize(
    ("kind", "hardware"),
    [
        *(("target", hardware) for hardware in HARDWARE),
        ("frontend", ""),
        ("transform", ""),
        ("toolchain", ""),
    ],
)
def test_a_new_plugin_installs_loads_and_keeps_its_contract(tmp_path: Path, kind: str, hardware: str) -> None:
    folder = write_plugin(kind, "acme", tmp_path, hardware)
    installed(folder / "src", kind, "acme")
    # A new toolchain has no compiler yet.
    known = {k: v for k, v in os.environ.items() if k != "MACE_REQUIRE_TOOLS"}
    environment = {**known, "PYTHONPATH": str(folder / "src")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(folder / "tests"),
    ]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    listed = subprocess.run(
        [sys.executable, "-m", "mace_core.cli", "plugins"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{kind}-acme" in listed.stdout


@pytest.mark.slow
def test_new_plugins_pass_the_checks_of_the_house(tmp_path: Path) -> None:
    """ruff with our rules and mypy in strict mode; some names are those of classes that the templates import."""
    folders = [write_plugin("target", hardware, tmp_path, hardware) for hardware in HARDWARE]
    folders += [write_plugin(kind, "graph", tmp_path) for kind in ("frontend", "transform", "toolchain")]
    checks = [
        ("ruff", "format", "--check", "--line-length=110", str(tmp_path)),
        ("ruff", "check", *RUFF_OPTIONS, *(str(folder / "src") for folder in folders)),
        ("ruff", "check", *RUFF_OPTIONS, "--ignore=D,S", *(str(folder / "tests") for folder in folders)),
        ("mypy", "--strict", *(str(next((folder / "src").iterdir())) for folder in folders)),
    ]
    paths = [str(ROOT / "core/src"), *(str(folder / "src") for folder in folders)]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(paths)}
    for check in checks:
        command = [sys.executable, "-m", *check]
        process = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize(("name", "expected"), [("acme", "Acme"), ("graph", "GraphFrontend")])
def test_a_new_class_hides_none_that_its_module_imports(tmp_path: Path, name: str, expected: str) -> None:
    folder = write_plugin("frontend", name, tmp_path)
    assert f"class {expected}(Frontend):" in (folder / f"src/mace_frontend_{name}/__init__.py").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
def test_a_new_transform_runs_once_it_is_installed(tmp_path: Path) -> None:
    folder = write_plugin("transform", "acme", tmp_path)
    module = folder / "src/mace_transform_acme/__init__.py"
    # The template keeps every node; here its rule tells that it was asked.
    module.write_text(
        module.read_text().replace(
            "    return None\n", '    raise RuntimeError(f"asked about {match.node.op.name}")\n'
        )
    )
    installed(folder / "src", "transform", "acme")
    digits = ROOT / "models/digits/digits.yml"
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [
        sys.executable,
        "-m",
        "mace_core.cli",
        "convert",
        str(digits),
        "--target",
        "host",
        "--output",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "mace-transform-acme 0.1.0: its transform 'acme' in phase 'fuse' fails: RuntimeError: asked about "
        in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_none_and_a_folder_that_exists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="is not a plugin name"):
        write_plugin("target", "Acme Corp", tmp_path)
    write_plugin("target", "acme", tmp_path)
    with pytest.raises(MaceError, match="exists already"):
        write_plugin("target", "acme", tmp_path)
    with pytest.raises(MaceError, match="choose one of cpu, device, blob, project"):
        write_plugin("target", "other", tmp_path, "quantum")
    with pytest.raises(MaceError, match="a frontend has no kinds"):
        write_plugin("frontend", "other", tmp_path, "device")


def test_a_new_project_computes_relu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the project, compiled for this machine, which has no start after a reset."""
    folder = write_plugin("target", "firm", tmp_path, "project")
    monkeypatch.syspath_prepend(str(folder / "src"))
    (target,) = importlib.import_module("mace_target_firm").mace_targets()
    x = np.linspace(-2, 2, 12, dtype=np.float32)
    graph = case("net", "Relu", [x])
    part = target.compile(Region(target, graph), BuildConfig("cortex-m4", "firm", Model("net", ())))
    write_all(tmp_path, part.body.files)
    subprocess.run(
        [*host().cc, "-shared", "-fPIC", "-Wall", "-Werror", "network.c", "-o", "network.so"],
        cwd=tmp_path,
        check=True,
    )
    y = np.ones_like(x)
    ends = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, y)]
    ctypes.CDLL(str(tmp_path / "network.so")).network_run(*ends)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


HOOK = "from mace_core import hookimpl\n\n@hookimpl\n"
GOOD = "from mace_target_cpu import Cpu\n" + HOOK + "def mace_targets():\n    return (Cpu(),)\n"


def offering(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> EntryPoint:
    """A plugin of one module."""
    (folder / f"mace_target_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return installed(folder, "target", name, "1.4")


BROKEN = {
    "no module": ("import nothing_of_that_name\n", "does not load: ModuleNotFoundError"),
    "syntax": ("def f(:\n", "does not load: SyntaxError"),
    "exit": ("import sys\nsys.exit(0)\n", "does not load: SystemExit: 0"),
    "misspelt hook": (HOOK + "def mace_targetz():\n    return ()\n", "mace_targetz"),
    "hook raises": (
        HOOK + "def mace_targets():\n    raise KeyError('x')\n",
        "its hook mace_targets fails: KeyError: 'x'",
    ),
    "hook exits": (
        HOOK + "def mace_targets():\n    raise SystemExit\n",
        "its hook mace_targets fails: SystemExit",
    ),
    "hook yields and raises": (
        HOOK + "def mace_targets():\n    yield 1 / 0\n",
        "its hook mace_targets fails: ZeroDivisionError",
    ),
    "not a target": (HOOK + "def mace_targets():\n    return ('cpu',)\n", "offers 'cpu', which is no Target"),
    "nothing": (HOOK + "def mace_targets():\n    pass\n", "its hook mace_targets fails: TypeError"),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_named_and_the_others_stay_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    name = f"bad{abs(hash(text))}"  # a module of its own for each case
    points = [
        offering(tmp_path, name, text, monkeypatch),
        offering(tmp_path, f"good{name}", GOOD, monkeypatch),
    ]
    with pytest.warns(PluginWarning) as warned:
        registry = Registry.load(points)
    assert str(warned[0].message).startswith(f"mace-target-{name} 1.4: ")
    assert said in str(warned[0].message)
    assert set(registry.targets) == {"cpu"}
    monkeypatch.setenv(DISABLED, f"target-{name}")
    assert [p.distribution for p in Registry.load(points).plugins] == [f"mace-target-good{name}"]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("text", "said"), [BROKEN[k] for k in ("exit", "misspelt hook", "hook raises")])
def test_the_list_of_plugins_works_whatever_a_plugin_does(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mace_target_bad.py").write_text(text)
    installed(tmp_path, "target", "bad")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "mace_core.cli", "plugins"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MACE_DISABLED_PLUGINS=target-bad" in done.stdout or "hooks do not match" in done.stdout
    assert said in done.stdout
    assert "target cpu" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_two_plugins_with_one_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from mace_target_cpu import Cpu, hookimpl\n\n@hookimpl\ndef mace_targets():\n    return (Cpu(),)\n"
    )
    points = [offering(tmp_path, name, text, monkeypatch) for name in ("one", "two")]
    with pytest.raises(
        MaceError, match=r"targets 'cpu': mace-target-one 1\.4 and mace-target-two 1\.4 both offer it"
    ):
        Registry.load(points)


def acme_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *nodes: onnx.NodeProto
) -> tuple[dict[str, str], np.ndarray]:
    """Build a model of these nodes from x to y with mace-transform-acme installed.

    Its sources, and y of fifteen numbers.
    """
    monkeypatch.syspath_prepend(str(ACME))
    point = EntryPoint("transform-acme", "mace_transform_acme", GROUP)
    registry = Registry.load([*entry_points(group=GROUP), point])
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in ("x", "y")]
    seven = helper.make_tensor("seven", TensorProto.FLOAT, [], [7.0])
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], [seven])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("acme", 1)]
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    job = Job(Deployment("acme", (Model("net", (file,)),)), registry.select("host")[0])
    sources = generate(job, registry).sources
    library = shared_library(with_quick_flags(sources), host(), tmp_path, ())
    return {n: str(c) for n, c in sources.files.items() if isinstance(c, str)}, native.load(library, "acme")[
        "net"
    ].run({"x": X})["y"]


X = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
SWISH7 = X / (1 + np.exp(-7 * X))


@pytest.mark.slow
def test_an_operator_from_outside_runs_through_its_own_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = helper.make_node("Swish7", ["x"], ["y"], "swish", domain="acme")
    sources, found = acme_library(tmp_path, monkeypatch, node)
    assert "acme_swish7_f32" in sources["acme_net_program.c"]
    np.testing.assert_allclose(found, SWISH7, rtol=1e-6)


@pytest.mark.slow
def test_a_transform_from_outside_runs_before_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours would make a Swish of the same nodes; the stranger's says that it comes first."""
    nodes = [
        helper.make_node("Mul", ["x", "seven"], ["wide"]),
        helper.make_node("Sigmoid", ["wide"], ["gate"]),
        helper.make_node("Mul", ["x", "gate"], ["y"]),
    ]
    sources, found = acme_library(tmp_path, monkeypatch, *nodes)
    assert "acme_swish7_f32" in sources["acme_net_program.c"]
    np.testing.assert_allclose(found, SWISH7, rtol=1e-6)
