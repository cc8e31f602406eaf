"""What tests of the proof plugins share: the plugins in this process, a network that goes back and forth between targets, and a probe.

The plugins lie in tests/plugins; none of them is installed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mace_core.api import Compiler, Target
from mace_core.deployment import load_deployment
from mace_core.generation import Generated, generate
from mace_core.ir import Array
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.testing.compiled import with_quick_flags
from mace_core.testing.probe_program import ProbeProgram, link_probe

PLUGINS = Path(__file__).parent / "plugins"
NAMES = ("island", "capsule", "cpu-wide", "remote")
CAPSULE_RUNTIME = PLUGINS / "mace-target-capsule/src/mace_target_capsule/runtime"
ROWS = 5
INNER = (24, 40, 40, 10)
"""Widths of the network's layers; none is a multiple of a wide panel."""


def target(name: str) -> Target:
    """The target of a proof plugin."""
    source = PLUGINS / f"mace-target-{name}" / "src"
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    module = importlib.import_module(f"mace_target_{name.replace('-', '_')}")
    (found,) = module.mace_targets()
    assert isinstance(found, Target)
    return found


def registry_with(*names: str) -> Registry:
    """What is installed, and proof plugins."""
    registry = Registry.load()
    return replace(registry, targets={**registry.targets, **{name: target(name) for name in names}})


def write_network(folder: Path, fallback: bool = False) -> Path:
    """Write relay.onnx and relay.yml: matrix products, simple arithmetic and curves in turn, so that each target has several regions."""
    rng = np.random.default_rng(3)
    weights = [rng.normal(0, 0.3, (INNER[i], INNER[i + 1])).astype(np.float32) for i in range(3)]
    constants = {
        "w1": weights[0],
        "w2": weights[1],
        "w3": weights[2],
        "c": rng.normal(0, 0.5, (INNER[1],)).astype(np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w1"], "m1"),
        ("Tanh", ["m1"], "t1"),
        ("Sub", ["t1", "c"], "s1"),
        ("Max", ["s1", "t1"], "p1"),
        ("Sigmoid", ["p1"], "g1"),
        ("MatMul", ["g1", "w2"], "m2"),
        ("Tanh", ["m2"], "t2"),
        ("Mul", ["t2", "p1"], "q"),
        ("Relu", ["q"], "r"),
        ("Tanh", ["r"], "u"),
        ("MatMul", ["u", "w3"], "m3"),
        ("Abs", ["m3"], "y"),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, INNER[0]]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, INNER[3]]),
        helper.make_tensor_value_info("r", TensorProto.FLOAT, [ROWS, INNER[1]]),
    ]
    results = [helper.make_node(op, inputs, [output], output) for op, inputs, output in nodes]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(results, "relay", ports[:1], ports[1:], initializers)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        folder / "relay.onnx",
    )
    text = "library_name: relay\nmodels:\n  relay:\n    model_file_path: relay.onnx\n"
    (folder / "relay.yml").write_text(text + ("    fallback: cpu\n" if fallback else ""))
    return folder / "relay.yml"


def network_input(seed: int = 0) -> Array:
    """An input of the network."""
    return np.random.default_rng(seed).normal(0, 1, (ROWS, INNER[0])).astype(np.float32)


def generate_network(folder: Path, choice: str, names: Sequence[str], fallback: bool = False) -> Generated:
    """The sources of the network's library for a choice, with these plugins."""
    registry = registry_with(*names)
    deployment = load_deployment(write_network(folder, fallback))
    return generate(Job(deployment, registry.select(choice)[0]), registry)


def build_capsule_runtime(
    folder: Path, compiler: Compiler, name: str = "libcapsule_rt.so.2", flags: Sequence[str] = ()
) -> Path:
    """Build the library of the capsules' vendor into a folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = str(CAPSULE_RUNTIME / "capsule_runtime.c")
    command = [
        *compiler.cc,
        *compiler.flags,
        "-O2",
        "-fPIC",
        "-shared",
        *flags,
        source,
        "-o",
        str(folder / name),
    ]
    subprocess.run(command, check=True)
    return folder


@dataclass(frozen=True)
class Probed:
    """What the probe said: lines by their first word, the last of each kind.

    And the outputs of the last run that went well.
    """

    lines: tuple[str, ...]
    outputs: tuple[Array, ...]

    def said(self, start: str) -> list[str]:
        """The lines that begin so."""
        return [line for line in self.lines if line.startswith(start)]


@dataclass(frozen=True)
class Probe:
    """A program around the network's library: see probe.c."""

    program: Path
    command: tuple[str, ...] = ()

    @classmethod
    def build(cls, made: Generated, compiler: Compiler, folder: Path, flags: Sequence[str] = ()) -> Probe:
        """Compile the library and the probe; without flags those that take the shortest time."""
        sources = made.sources if flags else with_quick_flags(made.sources, compiler)
        return cls(link_probe(ProbeProgram(PLUGINS / "probe.c"), sources, folder, flags, compiler))

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None, status: int = 0) -> Probed:
        """Run it on the network's input."""
        folder = self.program.parent
        (folder / "x.bin").write_bytes(network_input().tobytes())
        command = [*self.command, str(self.program), *arguments]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, done.stdout + done.stderr
        shapes = ((ROWS, INNER[3]), (ROWS, INNER[1]))
        files = [folder / f"output_{i}.bin" for i in range(2)]
        outputs = tuple(
            np.frombuffer(f.read_bytes(), np.float32).reshape(s)
            for f, s in zip(files, shapes, strict=True)
            if f.exists()
        )
        for file in files:
            file.unlink(missing_ok=True)
        return Probed(tuple(done.stdout.splitlines()), outputs)
