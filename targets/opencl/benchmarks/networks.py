"""Times whole networks on the device beside ONNX Runtime, at batches of 1 and 8.

    uv run python targets/opencl/benchmarks/networks.py [--networks NAME ...] [--batches 1 8] [--device cpu]

Ours computes on a GPU, or on what --device names; processors with an OpenCL driver are taken only where it
says so.

MobileNetV2 and ResNet-50 (`benchmarks/imagenet.py`) and MiniLM (`minilm.py`), in f32 with random weights; a
batch is a dimension of the model itself. ONNX Runtime computes by its CUDA provider, without TF32, where it
has one that opens (`pip install onnxruntime-gpu`), else on all processors. Both are in one process and run
in turn, from inputs in host memory to outputs there, copies included. Both must agree. Prints a table for
people, of the least and the median milliseconds; the ratio is ours to ONNX Runtime's, of the least, and
below 1 we are faster.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import imagenet
from minilm import WORDS, minilm
from peer_models import PeerModel
from runtimes import OnnxRuntime, Ours, Runtime, Session

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Deployment, Model
from mace_core.generation import encode
from mace_core.ir import Array
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.compile import shared_library

CHOICE = "host+opencl"
TOLERANCE = 1e-3
"""The largest difference, relative to the largest output, of two that agree.

Both sum in f32, in other orders, through up to 50 layers.
"""

SEED = 3
CUDA = "CUDAExecutionProvider"


@dataclass(frozen=True)
class NetworkTime:
    """The times of a network, milliseconds.

    device: what computed ours, a part each.  peer: what ONNX Runtime computed by.
    error: the largest difference, relative to the largest output.  ratio: of the least times, ours to theirs.
    """

    network: str
    batch: int
    device: str
    peer: str
    min_ms: float
    median_ms: float
    peer_min_ms: float
    peer_median_ms: float
    ratio: float
    error: float

    @property
    def is_right(self) -> bool:
        """Tell whether both computed the same."""
        return self.error < TOLERANCE


class Cuda(Runtime):
    """ONNX Runtime's CUDA provider, in f32: tensor cores would round its factors to TF32."""

    name, distribution = "CUDA", "onnxruntime-gpu"

    def open(self, model: PeerModel, inputs: Mapping[str, Array], threads: int) -> Session:
        """Open the ONNX file, with inputs and outputs in host memory; RuntimeError where it does not open."""
        import onnxruntime

        if CUDA not in onnxruntime.get_available_providers():
            raise RuntimeError("this ONNX Runtime is built without CUDA")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        providers = [(CUDA, {"use_tf32": "0"}), "CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(model.onnx), options, providers=providers)
        # Without the libraries of CUDA, ONNX Runtime goes on with the next provider.
        if session.get_providers()[0] != CUDA:
            raise RuntimeError("ONNX Runtime has no CUDA provider that opens here")
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for value in session.get_outputs():
            binding.bind_output(value.name)
        return Session(lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu)


def build_image_network(name: str) -> Callable[[int], onnx.ModelProto]:
    """Return what makes a network of imagenet.py with a batch of images."""

    def build(batch: int) -> onnx.ModelProto:
        model = imagenet.NETWORKS[name]()
        for port in (*model.graph.input, *model.graph.output):
            port.type.tensor_type.shape.dim[0].dim_value = batch
        # The shapes between them are those of one image.
        del model.graph.value_info[:]
        return model

    return build


NETWORKS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "mobilenet_v2": build_image_network("mobilenet_v2"),
    "resnet50": build_image_network("resnet50"),
    "minilm": minilm,
}


def draw_inputs(model: onnx.ModelProto) -> dict[str, Array]:
    """Return random inputs: images, or words of which all are to be attended."""
    rng = np.random.default_rng(SEED)
    inputs: dict[str, Array] = {}
    for port in model.graph.input:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        if port.name == "input_ids":
            inputs[port.name] = rng.integers(0, WORDS, shape, np.int64)
        elif port.name == "attention_mask":
            inputs[port.name] = np.ones(shape, np.int64)
        else:
            inputs[port.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


def build_library(name: str, file: Path, folder: Path) -> Path:
    """Build the model for the device; it must compute all nodes."""
    registry = Registry.load()
    choice = registry.select(CHOICE)[0]
    model = Model(name, (file,))
    compiled = compile_model(model, Compilation(choice, registry))
    refused = [refusal for refusal in compiled.refusals if refusal.target == "opencl"]
    if refused:
        sys.stderr.write(f"{name}: {len(refused)} nodes are left to the processor: {refused[0].refusal}\n")
    sources = encode(Job(Deployment(name, (model,)), choice), [compiled], registry)
    return shared_library(sources, choice.compiler, folder)


def open_peer(model: PeerModel, inputs: Mapping[str, Array]) -> tuple[str, Session]:
    """Return ONNX Runtime's session by CUDA, else on all processors; and what it computes by."""
    try:
        return "CUDA, f32", Cuda().open(model, inputs, 1)
    except (RuntimeError, ValueError):
        threads = len(os.sched_getaffinity(0))
        return f"CPU, {threads} threads", OnnxRuntime().open(model, inputs, threads)


def run_in_turn(sessions: Sequence[Session], rounds: int) -> list[list[float]]:
    """Return the milliseconds of each run of each session, after a run that does not count."""
    times: list[list[float]] = [[] for _ in sessions]
    for number in range(rounds + 1):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter_ns()
            session.run()
            if number:
                taken.append((time.perf_counter_ns() - start) / 1e6)
    return times


def measure_error(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of outputs, relative to the largest value of each; infinity for NaN."""
    errors = [
        float(np.abs(a - b.reshape(a.shape)).max()) / max(1e-30, float(np.abs(b).max()))
        for a, b in zip(actual, expected, strict=True)
    ]
    return max(errors) if np.isfinite(errors).all() else float("inf")


def measure(network: str, batch: int, arguments: argparse.Namespace, folder: Path) -> NetworkTime:
    """Build and time a network; MaceError where no device has the name that the command line gives."""
    name = f"{network}_{batch}"
    built = NETWORKS[network](batch)
    file = folder / f"{name}.onnx"
    onnx.save(built, str(file))
    inputs = draw_inputs(built)
    library = build_library(name, file, folder / name)
    model = PeerModel(name, "float32", "more", onnx=file)
    ours = Ours(library, options=f"opencl.device={arguments.device}").open(model, inputs, 1)
    by, peer = open_peer(model, inputs)
    times, peer_times = run_in_turn((ours, peer), arguments.rounds)
    least, peer_least = min(times), min(peer_times)
    medians = (median(times), median(peer_times))
    error = measure_error(ours.outputs(), peer.outputs())
    shown = (least, medians[0], peer_least, medians[1])
    return NetworkTime(network, batch, ours.level, by, *shown, least / peer_least, error)


def show(one: NetworkTime) -> str:
    """Return a line of the table."""
    ours, peer = (
        f"{one.min_ms:.3f} ({one.median_ms:.3f})",
        f"{one.peer_min_ms:.3f} ({one.peer_median_ms:.3f})",
    )
    error = f"{one.error:.1e}" if one.is_right else f"DIFFERS {one.error:.1e}"
    return f"| {one.network} | {one.batch} | {ours} | {peer} | {one.ratio:.2f} | {error} | {one.peer} |\n"


def main() -> None:
    """Print the table; exit status 1 where outputs differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", default="gpu", help="gpu, cpu, or a part of the device's name")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    results: list[NetworkTime] = []
    sys.stdout.write(
        "| network | batch | ours ms (median) | ONNX Runtime ms (median) | ratio | error | peer |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        for network in arguments.networks:
            for batch in arguments.batches:
                results.append(measure(network, batch, arguments, Path(folder)))
                sys.stdout.write(show(results[-1]))
                sys.stdout.flush()
    sys.stdout.write(f"ours: {', '.join(dict.fromkeys(one.device for one in results))}\n")
    if arguments.json:
        document = [asdict(one) for one in results]
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not all(one.is_right for one in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
