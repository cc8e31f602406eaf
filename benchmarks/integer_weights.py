"""Times one row through weights of four and eight bits: `uv run python benchmarks/integer_weights.py`.

    uv run python benchmarks/integer_weights.py [--rows 1] [--size 2048] [--level avx2,avx512vnni] [--seconds 5]

Writes ONNX models of com.microsoft.MatMulNBits with random weights: a product of ROWS x SIZE by SIZE x SIZE, and
a block of a transformer that computes one token beside 64 earlier ones. Builds each with `weights: packed`
(floats) and `weights: as-stored`, and prints bytes of the shared library and the least milliseconds of a run of
both, and of ONNX Runtime. All of a model take turns in one process, on one thread. With `--accuracy-level 4` ONNX
Runtime may round activations to eight bits, so its outputs differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from peer_models import PeerModel
from peers import Contestant, disagreement, race
from runtimes import Inputs, OnnxRuntime, Ours

FOLDER = Path("builds/stored_weights")
FORMS = ("packed", "as-stored")
STORAGES = ((8, 2048), (8, 32), (4, 32), (4, 128))
"""Bits and block of the weights that are measured; a block of 2048 of eight bits is a scale for each column."""

EARLIER = 64
HEADS = 8


@dataclass
class Network:
    """The nodes of an ONNX graph whose products have weights of so many bits, a scale for each block."""

    bits: int
    block: int
    accuracy_level: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, op: str, inputs: Sequence[str], **attributes: object) -> str:
        """Add a node; return its result."""
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def constant(self, array: np.ndarray) -> str:
        """Add a constant; return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def product(self, x: str, depth: int, columns: int) -> str:
        """Multiply by random weights [depth, columns]."""
        blocks = -(-depth // self.block)
        bytes_of_block = self.block * self.bits // 8
        stored = self.rng.integers(0, 256, (columns, blocks, bytes_of_block), np.uint8)
        scales = self.rng.uniform(0.5, 1, (columns * blocks)).astype(np.float32)
        scales /= depth**0.5 * (1 << (self.bits - 2))
        sizes = {"K": depth, "N": columns, "bits": self.bits, "block_size": self.block}
        sizes |= {"accuracy_level": self.accuracy_level} if self.accuracy_level else {}
        operands = [x, self.constant(stored), self.constant(scales)]
        return self.add("MatMulNBits", operands, domain="com.microsoft", **sizes)

    def transformer(self, size: int) -> str:
        """Add a block with attention to EARLIER tokens, whose keys and values are inputs."""
        heads = {"shape": self.constant(np.array([1, HEADS, -1, size // HEADS]))}["shape"]
        scale = self.constant(np.ones(size, np.float32))
        norm = self.add("LayerNormalization", ["x", scale], axis=-1)
        query = self.add("Reshape", [self.product(norm, size, size), heads])
        scores = self.add("Softmax", [self.add("MatMul", [query, "keys"])], axis=-1)
        mixed = self.add("MatMul", [scores, "values"])
        flat = self.add("Reshape", [mixed, self.constant(np.array([1, size]))])
        x = self.add("Add", ["x", self.product(flat, size, size)])
        norm = self.add("LayerNormalization", [x, scale], axis=-1)
        gate, up = (self.product(norm, size, 3 * size) for _ in range(2))
        wide = self.add("Mul", [self.add("Mul", [gate, self.add("Sigmoid", [gate])]), up])
        return self.add("Add", [x, self.product(wide, 3 * size, size)])

    def save(self, name: str, inputs: dict[str, list[int]], output: str) -> PeerModel:
        """Write the model; return it."""
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, name, ports, [result], self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        file = FOLDER / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
        return PeerModel(name, "float32", "small", onnx=file)


def make_model(kind: str, storage: tuple[int, int], options: argparse.Namespace) -> tuple[PeerModel, Inputs]:
    """Write a model of a kind, and return it with inputs for it."""
    (bits, block), rows, size = storage, options.rows, options.size
    network = Network(bits, min(block, size), options.accuracy_level)
    shapes = {"x": [rows, size]}
    if kind == "product":
        output = network.product("x", size, size)
    else:
        shapes = {"x": [1, size], "keys": [1, HEADS, size // HEADS, EARLIER]}
        shapes["values"] = [1, HEADS, EARLIER, size // HEADS]
        output = network.transformer(size)
    name = f"{kind}_{rows}x{size}_{bits}bits_{block}"
    inputs = {n: network.rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return network.save(name, shapes, output), inputs


def build(model: PeerModel, form: str, levels: Sequence[str]) -> Path:
    """Build the library of a model with its weights in one form."""
    folder = FOLDER / form
    deployment = FOLDER / f"{model.name}_{form}.yml"
    deployment.write_text(
        f"library_name: {model.name}\ncpu_features: [{', '.join(levels)}]\nmodels:\n  {model.name}:\n"
        f"    model_file_path: {model.files[0].resolve()}\n    weights: {form}\n    subgraphs:\n      - {{}}\n"
    )
    command = [sys.executable, "-m", "mace_core.cli", "build", str(deployment), "--builds", str(folder)]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603  # our own build
    return folder / model.name / "lib/host" / f"lib{model.name}.so"


def measure(model: PeerModel, inputs: Inputs, options: argparse.Namespace) -> None:
    """Print bytes and times of a model."""
    levels = options.level.split(",")
    libraries = {form: build(model, form, levels) for form in FORMS}
    file = model.files[0].stat().st_size
    sizes = ", ".join(f"{form} {library.stat().st_size:,}" for form, library in libraries.items())
    sys.stdout.write(f"{model.name}: bytes of the file {file:,}, of libraries {sizes}\n")
    opened = [Ours(libraries[form], level, form) for level in levels for form in FORMS]
    contestants = [
        Contestant(runtime.name, runtime.open(model, inputs, 1)) for runtime in (*opened, OnnxRuntime())
    ]
    clock = time.process_time_ns if options.processor_time else time.perf_counter_ns
    race(contestants, options.seconds, clock)
    expected = contestants[-1].session.outputs()
    for contestant in contestants:
        problem = disagreement(contestant.session.outputs(), expected, model.dtype)
        sys.stdout.write(f"  {contestant.name:28} {contestant.min_ms:8.3f} ms {problem}\n")


def main() -> None:
    """Measure every model that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", default="product,transformer")
    parser.add_argument("--storage", default=",".join(f"{bits}:{block}" for bits, block in STORAGES))
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--accuracy-level", type=int, default=0)
    parser.add_argument("--level", default="avx2,avx512vnni")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in options.kind.split(","):
        for storage in options.storage.split(","):
            bits, block = map(int, storage.split(":"))
            measure(*make_model(kind, (bits, block), options), options)


if __name__ == "__main__":
    main()
