"""Wheels in a clean environment outside the repository: what the workspace hides, such as a file left out of a wheel, shows here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from mace_core.testing.requirements import require

pytestmark = [pytest.mark.slow, pytest.mark.wheels]
ROOT = Path(__file__).parents[1]
KINDS = ("frontends", "plugins", "targets", "toolchains")
FOLDERS = [
    ROOT / "bundle",
    ROOT / "core",
    *(p.parent for kind in KINDS for p in ROOT.glob(f"{kind}/*/pyproject.toml")),
]
SCONSTRUCT = """
from mace_core.scons import Build

build = Build(ARGUMENTS)
rules = build.rules()
product = rules["mace_library"](name="digits", deployment="digits.yml")
rules["mace_test"](library=product)
rules["mace_package"](name="product", libraries=[product])
"""


def run(*command: str, folder: Path, status: int = 0) -> str:
    """Run a command without anything of this environment: neither its packages nor its compilers' caches."""
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "MACE_MODELS")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


class Environment:
    """A virtual environment that knows our wheels and the package index."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder, self.wheels = folder, wheels
        run("uv", "venv", "-q", str(folder), folder=folder.parent)

    def install(self, *packages: str) -> None:
        """Install by name, as a user would; our own distributions come from the wheels."""
        python = str(self.folder / "bin/python")
        run(
            "uv",
            "pip",
            "install",
            "-q",
            "--find-links",
            str(self.wheels),
            "--python",
            python,
            *packages,
            folder=self.folder,
        )

    def uninstall(self, package: str) -> None:
        """Remove a package that only one test wants."""
        run(
            "uv",
            "pip",
            "uninstall",
            "-q",
            "--python",
            str(self.folder / "bin/python"),
            package,
            folder=self.folder,
        )

    def run(self, program: str, *arguments: str, folder: Path, status: int = 0) -> str:
        """Run a program of the environment."""
        return run(str(self.folder / "bin" / program), *arguments, folder=folder, status=status)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of all distributions, and no source distribution beside them."""
    require(None if shutil.which("uv") else "uv is not installed: pip install uv")
    folder = tmp_path_factory.mktemp("wheels")
    run("uv", "build", "-q", "--wheel", "--all-packages", "--out-dir", str(folder), folder=ROOT)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Environment:
    """What `pip install mace-build` gives."""
    environment = Environment(tmp_path_factory.mktemp("bundle") / "venv", wheels)
    environment.install("mace-build")
    return environment


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A user's folder: the digits network and nothing of the repository."""
    folder = tmp_path / "my product"
    shutil.copytree(ROOT / "models/digits", folder, ignore=shutil.ignore_patterns("*.py", "SConscript"))
    return folder


def test_every_wheel_carries_its_license_and_its_code(wheels: Path) -> None:
    built = sorted(wheels.glob("*.whl"))
    assert len(built) == len(FOLDERS)
    for wheel in built:
        names = zipfile.ZipFile(wheel).namelist()
        assert any(n.endswith("licenses/LICENSE") for n in names), wheel.name
        assert not any("/tests/" in n or n.startswith("tests/") for n in names), wheel.name
        assert wheel.name.startswith("mace_build") or any(n.endswith("__init__.py") for n in names), (
            wheel.name
        )


def test_one_install_is_enough_for_a_first_build(bundle: Environment, product: Path) -> None:
    listed = json.loads(bundle.run("mace", "plugins", "--json", folder=product))
    assert {"mace-frontend-onnx", "mace-target-cpu", "mace-toolchain-zig", "mace-transform-standard"} <= {
        p["distribution"] for p in listed
    }
    assert not any(p["broken"] for p in listed)
    assert "ready for target=host" in bundle.run("mace", "check", "digits.yml", folder=product)
    bundle.run("mace", "build", "digits.yml", folder=product)
    assert (product / "builds/digits/lib/host/libdigits.a").is_file()
    (row,) = json.loads(bundle.run("mace", "validate", "digits.yml", "--json", folder=product))
    assert row["passed"]


def test_a_users_own_sconstruct_builds_checks_and_packs(bundle: Environment, product: Path) -> None:
    (product / "SConstruct").write_text(SCONSTRUCT)
    assert "passed" in bundle.run("scons", "-Q", "target=host", "check", folder=product)
    bundle.run("scons", "-Q", "target=host", "package", folder=product)
    assert (product / "builds/product.tar.gz").stat().st_size > 20_000


CHAIN = """
{
  "inputs": {"x": [1, 4]},
  "nodes": [
    {"op": "Scale", "name": "half", "inputs": ["x"], "by": 0.5},
    {"op": "Relu", "name": "y", "inputs": ["half"]}
  ],
  "outputs": ["y"]
}
"""


def test_new_plugins_install_and_build_a_model(
    bundle: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a new frontend, through a new transform, by kernels of a new target, with a new toolchain."""
    for kind in ("target", "frontend", "transform", "toolchain"):
        bundle.run("mace", "new", kind, f"new-{kind}", folder=tmp_path)
        run("uv", "build", "-q", "--wheel", str(tmp_path / f"mace-{kind}-new-{kind}"), folder=tmp_path)
    bundle.install(*(str(wheel) for wheel in tmp_path.glob("*/dist/*.whl")))
    listed = {
        p["distribution"]: p for p in json.loads(bundle.run("mace", "plugins", "--json", folder=tmp_path))
    }
    for kind in ("target", "frontend", "transform", "toolchain"):
        assert not listed[f"mace-{kind}-new-{kind}"]["broken"]
    assert "new-transform          mace-transform-new-transform 0.1.0" in bundle.run(
        "mace", "explain", "--passes", folder=tmp_path
    )
    (tmp_path / "chain.new-frontend").write_text(CHAIN)
    (tmp_path / "chain.yml").write_text(
        "library_name: chain\nmodels:\n  net: {model_file_path: chain.new-frontend}\n"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    choice = "new-toolchain+new-target"
    text = bundle.run("mace", "build", "chain.yml", "--target", choice, folder=tmp_path, status=2)
    assert "new-toolchain-gcc and new-toolchain-ar not in PATH" in text
    for tool in ("gcc", "ar"):
        (tmp_path / f"new-toolchain-{tool}").symlink_to(str(shutil.which(tool)))
    bundle.run("mace", "build", "chain.yml", "--target", choice, folder=tmp_path)
    (library,) = (tmp_path / "builds").rglob("libchain.a")
    (program,) = (tmp_path / "builds").rglob("chain_net_program.c")
    assert "new_target_relu_f32" in program.read_text()
    assert library.stat().st_size > 0


SWISH7 = """library_name: swish
models:
  net: {model_file_path: net.onnx}
"""


def write_swish7(folder: Path) -> None:
    """A model of x * Sigmoid(7 x), spelled out."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in ("x", "y")]
    nodes = [
        ("Mul", ["x", "seven"], ["wide"]),
        ("Sigmoid", ["wide"], ["gate"]),
        ("Mul", ["x", "gate"], ["y"]),
    ]
    seven = helper.make_tensor("seven", TensorProto.FLOAT, [], [7.0])
    graph = helper.make_graph(
        [helper.make_node(*node) for node in nodes], "net", ports[:1], ports[1:], [seven]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        folder / "net.onnx",
    )
    (folder / "swish.yml").write_text(SWISH7)


def test_a_transform_of_a_stranger_runs_by_being_installed(bundle: Environment, tmp_path: Path) -> None:
    write_swish7(tmp_path)
    program = tmp_path / "sources/swish_net_program.c"
    bundle.run("mace", "convert", "swish.yml", "--target", "host", "--output", "sources", folder=tmp_path)
    assert "swish7" not in program.read_text()
    wheel = tmp_path / "wheel"
    run(
        "uv",
        "build",
        "-q",
        "--wheel",
        "--out-dir",
        str(wheel),
        str(ROOT / "tests/plugins/mace-transform-acme"),
        folder=tmp_path,
    )
    bundle.install(*map(str, wheel.glob("*.whl")))
    try:
        bundle.run("mace", "convert", "swish.yml", "--target", "host", "--output", "sources", folder=tmp_path)
        assert "acme_swish7_f32" in program.read_text()
        phases = json.loads(bundle.run("mace", "explain", "--passes", "--json", folder=tmp_path))["phases"]
        (fuse,) = (phase for phase in phases if phase["name"] == "fuse")
        order = [step["transform"] for step in fuse["passes"]]
        assert order.index("fuse-swish7") + 1 == order.index("fuse-gates")
        assert fuse["passes"][order.index("fuse-swish7")]["distribution"] == "mace-transform-acme"
    finally:
        bundle.uninstall("mace-transform-acme")


def test_hardware_is_a_package_more(wheels: Path, tmp_path: Path, product: Path) -> None:
    """The advice that a user without the package gets installs it, and firmware comes out."""
    environment = Environment(tmp_path / "venv", wheels)
    environment.install("mace-build")
    text = environment.run("mace", "check", "digits.yml", "--target", "max78000", folder=product, status=2)
    assert "pip install mace-target-max78000" in text
    environment.install("mace-target-max78000")
    environment.run(
        "mace", "convert", "digits.yml", "--target", "max78000", "--output", "firmware", folder=product
    )
    assert list((product / "firmware").rglob("cnn.c"))


def test_an_accelerator_is_a_package_more(wheels: Path, tmp_path: Path, product: Path) -> None:
    """The library has the device's driver and network beside the kernels of the CPU, and links nothing of the vendor's."""
    environment = Environment(tmp_path / "venv", wheels)
    environment.install("mace-build", "mace-target-mdla")
    text = (product / "digits.yml").read_text()
    options = "runtime: apu\n    fallback: cpu\n    target_options: {mdla: {soc: MT8195}}"
    for old, new in (("library_name: digits", "library_name: accelerated"), ("runtime: cpu", options)):
        assert old in text
        text = text.replace(old, new)
    (product / "accelerated.yml").write_text(text)
    (lint,) = json.loads(
        environment.run("mace", "lint", "accelerated.yml", "--target", "host+mdla", "--json", folder=product)
    )
    assert lint
    environment.run("mace", "build", "accelerated.yml", "--target", "host+mdla", folder=product)
    (library,) = (product / "builds").rglob("libaccelerated.so")
    symbols = run("nm", "-D", "--undefined-only", str(library), folder=product)
    assert "Neuron" not in symbols
    assert b"libneuron_adapter.so" in library.read_bytes()


def test_four_packages_build_without_the_transforms(wheels: Path, tmp_path: Path, product: Path) -> None:
    environment = Environment(tmp_path / "venv", wheels)
    environment.install("mace-core", "mace-frontend-onnx", "mace-target-cpu", "mace-toolchain-zig")
    text = environment.run("mace", "build", "digits.yml", folder=product)
    assert "no transforms are installed" in text
    assert "pip install mace-transform-standard" in text
    (row,) = json.loads(environment.run("mace", "validate", "digits.yml", "--json", folder=product))
    assert row["passed"]


def test_the_matrix_feeds_the_workflow(bundle: Environment, tmp_path: Path) -> None:
    matrix = json.loads(bundle.run("mace", "matrix", "--json", folder=tmp_path))
    assert "host" in matrix["target"]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert (
        workflow["jobs"]["build"]["strategy"]["matrix"]["target"]
        == "${{ fromJSON(needs.matrix.outputs.target) }}"
    )
    assert any("mace matrix --json" in step.get("run", "") for step in workflow["jobs"]["matrix"]["steps"])
