"""Counts what a device is asked for in a run: launches of kernels, and bytes that they read and write.

Once with fused kernels, as libraries are built, and once with a kernel for each op, where a bias and a clamp
(Relu, Relu6) that the graph has in a convolution are ops of their own:

    uv run python targets/opencl/benchmarks/launches.py MODEL.onnx MODEL.tflite ...

The counts are those of the program that is built, so no device is needed: a kernel reads each operand and
writes each result once. Caches make what reaches memory less than that, and tiles that overlap make it more,
in both cases alike. A line of the table: model, launches and megabytes with a kernel for each op, then fused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from math import inf
from pathlib import Path

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import load_deployment
from mace_core.ir import Graph
from mace_core.program import Call, Program
from mace_core.registry import Registry
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.options import MEASURED_UNITS, TYPES, OpenclOptions
from mace_target_opencl.target import Opencl

MEGABYTE = 1e6
BIASED = ("Conv", "ConvTranspose", "MatMul")
"""Ops whose third operand is a bias, whose few bytes the product reads in both cases."""


class Unfused(Opencl):
    """Computes each op by a kernel of its own."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Return nothing: no kernel computes two calls."""
        return None

    def place(self, call: Call, joint: Call, program: Program) -> Call | None:
        """Return nothing: joints copy their operands."""
        return None


@dataclass(frozen=True)
class RunCounts:
    """What a run asks of the device.  read, written: bytes."""

    launches: int
    read: int
    written: int

    @classmethod
    def of_program(cls, program: Program) -> RunCounts:
        """Return the sums over the calls of a program."""
        sizes = {name: tensor.bytes for name, tensor in program.tensors.items()}
        sizes |= {name: weight.make().nbytes for name, weight in program.weights.items()}
        read = written = 0
        for call in program.calls:
            read += sum(sizes[name] for name in call.reads if name)
            written += sum(sizes[name] for name in call.writes)
        return cls(len(program.calls), read, written)

    def separate_ops(self, graph: Graph, storage: str) -> RunCounts:
        """Return the counts with an op for each bias and clamp that other ops of the graph have."""
        share = 2 if storage == "f16" else 1
        launches, read, written = self.launches, self.read, self.written
        for node in graph.nodes:
            result = graph.tensors[node.outputs[0]].bytes // share
            bias = node.inputs[2] if node.op.name in BIASED and len(node.inputs) > 2 else ""
            if bias:
                launches, read, written = launches + 1, read + result, written + result
            low, high = getattr(node.attrs, "low", -inf), getattr(node.attrs, "high", inf)
            if low > -inf or high < inf:
                launches, read, written = launches + 1, read + result, written + result
        return RunCounts(launches, read, written)

    def __str__(self) -> str:
        return f"{self.launches} | {(self.read + self.written) / MEGABYTE:.2f}"


def read_graph(model_file: Path) -> Graph:
    """Return the model's graph as targets are asked for it."""
    with tempfile.TemporaryDirectory() as folder:
        deployment = Path(folder) / "launches.yml"
        # JSON is YAML, and keeps whatever a path is made of.
        models = {"m": {"model_file_path": str(model_file.resolve())}}
        deployment.write_text(json.dumps({"library_name": "launches", "models": models}), encoding="utf-8")
        registry = Registry.load()
        (model,) = load_deployment(deployment).models
        return compile_model(model, Compilation(registry.select("host")[0], registry)).graph


def count(graph: Graph, target: Opencl) -> RunCounts:
    """Return what a target asks of its device for the nodes that it takes; raises where it refuses one."""
    refusals = [target.refuses(node, graph) for node in graph.nodes]
    refused = [node.name for node, refusal in zip(graph.nodes, refusals, strict=True) if refusal]
    if refused:
        raise SystemExit(f"{graph.name}: the device does not compute {', '.join(refused[:5])}")
    program = target.lower(graph)
    return RunCounts.of_program(store_in_half(program) if target.options.storage == "f16" else program)


def main() -> None:
    """Print a table with a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--winograd", type=int, choices=(0, 2, 4), default=0)
    parser.add_argument("--compute-units", type=int, default=MEASURED_UNITS, help="of the device")
    parser.add_argument("--images", action="store_true", help="as with cl_mem_type: image")
    parser.add_argument("--storage", choices=TYPES, default="f32", help="the type in which floats lie")
    arguments = parser.parse_args()
    options = OpenclOptions(
        arguments.storage,
        winograd=arguments.winograd,
        compute_units=arguments.compute_units,
        images=arguments.images,
    )
    sys.stdout.write("| model | launches | MB | fused: launches | MB |\n|---|---|---|---|---|\n")
    for path in arguments.models:
        graph = read_graph(path)
        plain = count(graph, Unfused(options)).separate_ops(graph, options.storage)
        fused = count(graph, Opencl(options))
        sys.stdout.write(f"| {path.stem} | {plain} | {fused} |\n")


if __name__ == "__main__":
    main()
