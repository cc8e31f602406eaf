"""What tests of the driver share: the stub of the vendor's libraries, parts without the rules of a chip, a program around a session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mace_core.api import (
    BlobBody,
    BufferKind,
    BuildConfig,
    Compiler,
    Manifest,
    Part,
    Refusal,
    Region,
    Target,
)
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, host, with_quick_flags
from mace_core.testing.probe_program import FILE_CACHE, ProbeProgram, generate_session, link_probe
from mace_target_mdla.driver import ADAPTERS, RUNTIMES, SYMBOL, manifests
from mace_target_mdla.network import encode_network, refuse_encoding
from mace_tflite_writer import refuses, write_tflite

STUB = Path(__file__).parent / "stub"
PROGRAM = ProbeProgram(STUB / "session_probe.c", (FILE_CACHE,))
BUILDS = (
    "NeuronModel_create",
    "NeuronModel_addOperand",
    "NeuronModel_setOperandValue",
    "NeuronModel_addOperation",
    "NeuronModel_identifyInputsAndOutputs",
    "NeuronModel_relaxComputationFloat32toFloat16",
    "NeuronModel_finish",
    "NeuronModel_getSupportedOperations",
    "NeuronCompilation_create",
    "NeuronCompilation_setPreference",
    "NeuronCompilation_setPriority",
    "NeuronCompilation_finish",
    "NeuronExecution_create",
)
"""The functions of the vendor by which the driver builds a network, in the order of its calls."""
EXECUTOR = {"NEURON_STUB_EXECUTOR": f"{sys.executable} {STUB / 'executor.py'}"}
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BUFFERS = (BufferKind.DMABUF, BufferKind.AHARDWAREBUFFER)
BUILT_BY, BUILT_FOR = "mace-target-mdla 0.1.0", "MDLA 3.0"


class Direct(Target):
    """Takes all that the writer of TFLite files takes, so that the driver is tested apart from the rules of a chip.

    network: the bytes of the part in the place of those that are made of the region.
    """

    name, device = "mdla", "apu"

    def __init__(self, network: bytes | None = None) -> None:
        self.network = network

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return refuses(node, graph) or refuse_encoding(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        network = self.network or encode_network(region.graph, write_tflite(region.graph))
        inputs, outputs = (tuple(replace(p, kinds=BUFFERS) for p in ports) for ports in region.ports())
        body = BlobBody(network, built_by=BUILT_BY, built_for=BUILT_FOR)
        nodes = tuple(node.name for node in region.graph.nodes)
        return Part(region.name, self.name, inputs, outputs, body, driver=SYMBOL, nodes=nodes)

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        return manifests(library)


def small_graph() -> Graph:
    """Operations that the stub executes by itself: (x + c) * x, then Relu, and the sum as a second output."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, 50))
    c = builder.weight("c", np.linspace(-1, 1, 50, dtype=np.float32))
    (added,) = builder.add("Add", [x, c], {})
    (product,) = builder.add("Mul", [added, x], {})
    (result,) = builder.add("Relu", [product], {})
    return builder.finish([result, added])


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Inputs that fill the range of their types."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind = tensor.dtype.numpy
        if tensor.dtype.is_float:
            inputs[name] = rng.normal(0, 1, tensor.shape).astype(kind)
        elif kind.kind == "b":
            inputs[name] = rng.integers(0, 2, tensor.shape).astype(kind)
        else:
            ends = np.iinfo(kind)
            inputs[name] = rng.integers(ends.min, ends.max, tensor.shape, kind, endpoint=True)
    return inputs


def expected(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """What the numpy references compute."""
    values = execute(graph, inputs)
    return [values[name] for name in graph.outputs]


def build_stub(
    folder: Path, name: str, source: str, flags: Sequence[str] = (), compiler: Compiler | None = None
) -> Path:
    """Build a library of the vendor's into a folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = compiler or host()
    command = [*chosen.cc, *chosen.flags, "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", *flags]
    subprocess.run([*command, str(STUB / source), "-o", str(folder / name)], check=True)
    return folder


def build_adapter(
    folder: Path, name: str = ADAPTERS[-1], flags: Sequence[str] = (), compiler: Compiler | None = None
) -> Path:
    """Build the stub of the Neuron adapter; flags: -DFUNCTION=OTHER takes a function away."""
    return build_stub(folder, name, "neuron_stub.c", flags, compiler)


def build_runtime(folder: Path, name: str = RUNTIMES[-1], flags: Sequence[str] = ()) -> Path:
    """Build the stub of the Neuron runtime; flags: -DONLY_V1 leaves version 2 out."""
    return build_stub(folder, name, "runtime_stub.c", flags)


@dataclass(frozen=True)
class Told:
    """What the program printed, and the outputs of the last run that went well."""

    lines: tuple[str, ...]
    outputs: tuple[bytes, ...]
    status: int = 0
    errors: str = ""

    def said(self, start: str) -> list[str]:
        return [line for line in self.lines if line.startswith(start)]


@dataclass(frozen=True)
class SessionProgram:
    """The program stub/session_probe.c around a library with the model `m`."""

    program: Path
    graph: Graph
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        fallback: int = 0,
        runs: int = 1,
        sessions: int = 1,
        *,
        options: str = "-",
        cache_file: str = "-",
        bind: int = 0,
        environment: Mapping[str, str] | None = None,
        status: int = 0,
    ) -> Told:
        """Run it; its status must be `status`."""
        folder = self.program.parent
        for i, array in enumerate(random_inputs(self.graph).values()):
            (folder / f"input_{i}.bin").write_bytes(array.tobytes())
        words = [str(word) for word in (fallback, runs, sessions, options, cache_file, bind)]
        done = subprocess.run(
            [*self.command, str(self.program), *words],
            cwd=folder,
            env={**os.environ, **self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        files = [folder / f"output_{i}.bin" for i in range(len(self.graph.outputs))]
        outputs = tuple(file.read_bytes() for file in files if file.exists())
        for file in files:
            file.unlink(missing_ok=True)
        return Told(tuple(done.stdout.splitlines()), outputs, done.returncode, done.stderr)

    def expected(self) -> list[bytes]:
        return [array.tobytes() for array in expected(self.graph, random_inputs(self.graph))]


def build_session(
    graph: Graph,
    folder: Path,
    target: Target | None = None,
    flags: Sequence[str] = ("-O1", "-g"),
    compiler: Compiler | None = None,
) -> SessionProgram:
    """Build the program for a graph that the target computes, with the CPU for what it refuses and as its fallback."""
    choice = "host+mdla" if compiler is None else "arm64+mdla"
    sources = generate_session(graph, choice, target or Direct())
    folder.mkdir(parents=True, exist_ok=True)
    return SessionProgram(link_probe(PROGRAM, sources, folder, flags, compiler), graph)


def compile_by_stub(graphs: Sequence[Graph], folder: Path) -> dict[str, bytes]:
    """What the stub was told of each graph by the driver, by the graph's name, as executor.py reads it."""
    networks = folder / "networks"
    networks.mkdir(parents=True)
    sources = with_quick_flags(generate_library([Direct()], graphs))
    library = shared_library(sources, host(), folder / "library", ())
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(build_adapter(folder / "vendor")),
        "NEURON_STUB_FOLDER": str(networks),
    }
    command = [sys.executable, str(STUB / "open_models.py"), str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (networks / str(i)).read_bytes() for i, name in enumerate(done.stdout.split())}


def encodable(graphs: Iterable[Graph]) -> list[Graph]:
    """Those that a TFLite file can state and the adapter can be told, node by node."""
    return [
        graph
        for graph in graphs
        if not any(refuses(node, graph) or refuse_encoding(node, graph) for node in graph.nodes)
    ]
