"""Times each kernel of models, and of large convolutions and products, beside what the device reaches.

    uv run python targets/opencl/benchmarks/kernels.py [MODEL.onnx ...] [--json FILE] [--max-gflop N]

Without models the table of `kernel_cases.py` is measured, as with `--cases`. Each kernel's time is the
least of the rounds, by the events of the device; each kernel is alone in the queue. In the same run,
`device_peaks.c` measures the most multiply-adds and the fastest copy of the device by kernels of its own,
and CLBlast's sgemm of the same product (Debian: libclblast1; another place: `--clblast FILE`). A
convolution's product is that of its windows, laid out as a matrix, with its filters: what CLBlast would have
to compute after a copy, which is not counted against it. Ours has its constant operand in the order that it
reads best, CLBlast has not.

The bound of a kernel is the larger of two times: its bytes at the rate of the copy, each operand once, and
its product at the rate of CLBlast, or where that is absent at the device's peak. A kernel whose operands
lie in the device's cache may be faster than its bound. CLBlast's products follow each other in the queue,
so what the event of a kernel without work lasts, where it is alone, is added to its times and to the bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from itertools import chain
from pathlib import Path

from kernel_cases import CASES, Matrices

from mace_core.api import GeneratedFiles
from mace_core.compilation import Compilation, CompiledModel, compile_graph, compile_model
from mace_core.deployment import Deployment, Model
from mace_core.generation import encode
from mace_core.ir import Graph, Node
from mace_core.job import Job
from mace_core.manifest import Manifest, Product, Unit
from mace_core.program import Call, Program
from mace_core.registry import Registry
from mace_core.report import LibraryReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import link
from mace_core.run.operators import count_bytes, multiply_adds
from mace_target_opencl.target import Opencl

CHOICE = "host+opencl"
TOOL = "mace_benchmark"
MAX_NAME = 40
HEAD = ("model", "node", "us", "GFLOP", "MB", "GFLOP/s", "% of peak", "% of copy", "% of sgemm", "% of bound")
PEAKS = Path(__file__).with_name("device_peaks.c")
HEADER = Path(str(files("mace_target_opencl.driver"))) / "opencl_api.h"


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a model: its shortest time, its work, and the shares of what the device reaches.

    sgemm_ns: CLBlast's time of the same product; None where there is none, or no CLBlast.
    bound_ns: see the text of this file.  All shares are below or above 1, 1 being the device's.
    """

    model: str
    node: str
    kernel: str
    ns: int
    flops: int
    bytes: int
    matrices: Matrices | None
    sgemm_ns: float | None
    peak_share: float
    copy_share: float
    sgemm_share: float | None
    bound_share: float


@dataclass(frozen=True)
class Peaks:
    """What the device reaches: flops and bytes in a nanosecond, and CLBlast's products in nanoseconds.

    launch_ns: of a kernel without work.
    """

    device: str
    flops: float
    bytes: float
    launch_ns: float
    sgemm: dict[Matrices, float]
    remark: str

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> Peaks:
        """Read what device_peaks prints."""
        words = [line.split() for line in lines]
        single = {line[0]: " ".join(line[1:]) for line in words}
        products = {Matrices(*map(int, line[1:4])): float(line[4]) for line in words if line[0] == "sgemm"}
        flops, copy, launch = (float(single[name].split()[0]) for name in ("multiply", "copy", "launch"))
        return cls(single["device"], flops, copy, launch, products, single.get("absent", ""))


@dataclass(frozen=True)
class Work:
    """A model that was timed: its calls on the device, with their times and products."""

    model: str
    device: str
    program: Program
    graph: Graph
    ns: tuple[int, ...]

    @property
    def products(self) -> list[Matrices | None]:
        """The product of each call; None of a call that computes none."""
        found: list[Matrices | None] = [None] * len(self.program.calls)
        for node in self.graph.nodes:
            if matrices := Matrices.of_node(node, self.graph):
                found[find_call(node, self.program.calls)] = matrices
        return found

    def compare(self, peaks: Peaks) -> Iterator[KernelTime]:
        """Yield its kernels beside the device's peaks."""
        macs = [0] * len(self.program.calls)
        for node in self.graph.nodes:
            if count := multiply_adds(node, self.graph):
                macs[find_call(node, self.program.calls)] += count
        for call, ns, count, matrices in zip(self.program.calls, self.ns, macs, self.products, strict=True):
            moved = count_bytes(call, self.program)
            sgemm = peaks.sgemm.get(matrices) if matrices else None
            copy_ns, peak_ns = moved / peaks.bytes, 2 * count / peaks.flops
            bound = max(copy_ns, peak_ns if sgemm is None else sgemm) + peaks.launch_ns
            yield KernelTime(
                self.model,
                call.node,
                call.kernel.name,
                ns,
                2 * count,
                moved,
                matrices,
                sgemm,
                peak_ns / ns,
                copy_ns / ns,
                None if sgemm is None else (sgemm + peaks.launch_ns) / ns,
                bound / ns,
            )


def find_call(node: Node, calls: Sequence[Call]) -> int:
    """Return the number of the call that computes a node, or has taken it in."""
    named = [number for number, call in enumerate(calls) if call.node == node.name]
    sources = {*node.sources}
    merged = [number for number, call in enumerate(calls) if sources and sources <= {*call.sources}]
    if not named and not merged:
        raise SystemExit(f"{node.name}: no kernel computes it; measure a model without it")
    return (named[-1:] or merged[:1])[0]


def compile_for_device(model: Model, graph: Graph | None, registry: Registry) -> CompiledModel:
    """Return a model that the device computes completely; SystemExit for another."""
    compilation = Compilation(registry.select(CHOICE)[0], registry)
    compiled = compile_graph(model, graph, compilation) if graph else compile_model(model, compilation)
    refused = [refusal.node for refusal in compiled.refusals if refusal.target == "opencl"]
    if refused or len(compiled.regions) != 1:
        raise SystemExit(f"{model.name}: the device does not compute {', '.join(refused[:5])}")
    return compiled


def measure(models: Sequence[CompiledModel], rounds: int, folder: Path, registry: Registry) -> list[Work]:
    """Build the library of models, and return the shortest times of the kernels of each."""
    choice = registry.select(CHOICE)[0]
    # One library for all: what takes long is the compilation of what they share.
    deployment = Deployment("kernels", tuple(compiled.model for compiled in models))
    sources = encode(Job(deployment, choice), models, registry)
    manifests = tuple(m for m in sources.manifests if m.joins_library or m.name == TOOL)
    link(replace(sources, manifests=manifests), choice.compiler, folder, ())
    runner = registry.find_runner(choice, deployment.models)
    assert runner is not None
    reports = {compiled.name: compiled.report() for compiled in models}
    built = BuiltLibrary(folder, runner, LibraryReport(reports))
    return [time_model(compiled, built, rounds, choice.abi) for compiled in models]


def time_model(compiled: CompiledModel, built: BuiltLibrary, rounds: int, abi: str) -> Work:
    """Run a model of a library, and return the shortest times of its kernels."""
    sys.stderr.write(f"{compiled.name}\n")
    timing = built.time(compiled.name, 1, rounds, layers=True)
    (region,) = compiled.regions
    target = region.target
    assert isinstance(target, Opencl)
    program = target.lower(region.graph, abi)
    # Layers are those of the library, and calls those of a second lowering: they must be the same.
    if [call.kernel.name for call in program.calls] != [layer.kernel for layer in timing.layers]:
        raise SystemExit(f"{compiled.name}: the library has other kernels than its graph")
    ns = tuple(max(1, layer.ns) for layer in timing.layers)
    return Work(compiled.name, timing.devices[0], program, region.graph, ns)


def measure_peaks(products: Sequence[Matrices], clblast: str, rounds: int, folder: Path) -> Peaks:
    """Compile device_peaks and return what it prints."""
    unit = Unit(PEAKS.name, reads=(HEADER.name,))
    copies = {PEAKS.name: PEAKS, HEADER.name: HEADER}
    manifest = Manifest(PEAKS.stem, Product.PROGRAM, copies=copies, units=(unit,))
    compiler = Registry.load().select("host")[0].compiler
    program = link(GeneratedFiles({}, (manifest,)), compiler, folder, ("-O2",))
    sizes = chain.from_iterable((one.rows, one.columns, one.depth) for one in products)
    words = (str(program), clblast, str(rounds), *map(str, sizes))
    # Drivers write to the standard error what they please.
    printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  # ours
    return Peaks.of_lines(printed.stdout.splitlines())


def check_device(work: Sequence[Work], peaks: Peaks) -> None:
    """End the benchmark where the peaks are those of another device than computed the models."""
    for one in work:
        # Names may have several spaces in a row, of which `Peaks.of_lines` leaves one.
        if not " ".join(one.device.split()).startswith(f"opencl: {peaks.device}"):
            raise SystemExit(
                f"{one.model}: computed by {one.device}, and the peaks are those of {peaks.device}"
            )


def format_row(*cells: str) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |\n"


def format_percent(share: float | None) -> str:
    """Return a share as a cell."""
    return "" if share is None else f"{100 * share:.0f}"


def show_kernel(one: KernelTime) -> str:
    """Return a kernel's line of the table."""
    # Names of nodes are the model's, as long as they please and with any characters.
    node = one.node[-MAX_NAME:].replace("|", "/").replace("\n", " ")
    rate = f"{one.flops / one.ns:.1f}" if one.flops else ""
    sizes = (f"{one.ns / 1e3:.1f}", f"{one.flops / 1e9:.3f}", f"{one.bytes / 1e6:.2f}", rate)
    shares = (one.peak_share, one.copy_share, one.sgemm_share, one.bound_share)
    return format_row(one.model, node, *sizes, *map(format_percent, shares))


def show_model(times: Sequence[KernelTime]) -> str:
    """Return the line of all kernels of a model."""
    ns, flops = sum(one.ns for one in times), sum(one.flops for one in times)
    bound = sum(one.ns * one.bound_share for one in times)
    sizes = (f"{ns / 1e3:.1f}", f"{flops / 1e9:.3f}", f"{sum(one.bytes for one in times) / 1e6:.2f}")
    shares = ("", "", "", format_percent(bound / ns))
    return format_row(times[0].model, f"all {len(times)}", *sizes, f"{flops / ns:.1f}", *shares)


def show(times: Sequence[KernelTime], peaks: Peaks) -> str:
    """Return the table in Markdown, with a line for all kernels of a model that has several."""
    text = f"{peaks.device}: {peaks.flops:.0f} GFLOP/s of multiply-adds, {peaks.bytes:.0f} GB/s of a copy, "
    text += f"{peaks.launch_ns / 1e3:.1f} us of a kernel without work\n"
    if peaks.remark:
        text += f"no CLBlast: {peaks.remark}\n"
    text += "\n" + format_row(*HEAD) + format_row(*["---"] * len(HEAD))
    for model in dict.fromkeys(one.model for one in times):
        kernels = [one for one in times if one.model == model]
        text += "".join(map(show_kernel, kernels))
        text += show_model(kernels) if len(kernels) > 1 else ""
    return text


def read_arguments() -> argparse.Namespace:
    """Return the words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--cases", action="store_true", help="measure the table of cases beside models too")
    parser.add_argument(
        "--max-gflop", type=float, default=1e9, help="leave larger cases out, for slow devices"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clblast", default="libclblast.so.1", help='file of CLBlast; "-" for none')
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def list_models(arguments: argparse.Namespace, registry: Registry) -> Iterator[CompiledModel]:
    """Compile and yield what the command line asks for."""
    for file in arguments.models:
        name = "".join(letter if letter.isalnum() else "_" for letter in file.stem)
        yield compile_for_device(Model(f"m_{name}", (file.resolve(),)), None, registry)
    for case in CASES if arguments.cases or not arguments.models else ():
        graph = case.build()
        (node,) = graph.nodes
        if 2 * multiply_adds(node, graph) > 1e9 * arguments.max_gflop:
            sys.stderr.write(f"{case.name}: left out by --max-gflop\n")
            continue
        yield compile_for_device(Model(case.name, ()), graph, registry)


def main() -> None:
    """Print the table, and write the figures."""
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        registry = Registry.load()
        models = list(list_models(arguments, registry))
        if not models:
            raise SystemExit("no model is left to measure; raise --max-gflop")
        if len({compiled.name for compiled in models}) < len(models):
            raise SystemExit("two models have the same name; rename a file")
        work = measure(models, arguments.rounds, folder, registry)
        products = {*filter(None, chain.from_iterable(one.products for one in work))}
        ordered = sorted(products, key=lambda one: (one.flops, one.rows, one.columns))
        peaks = measure_peaks(ordered, arguments.clblast, arguments.rounds, folder)
    check_device(work, peaks)
    times = list(chain.from_iterable(one.compare(peaks) for one in work))
    sys.stdout.write(show(times, peaks))
    if arguments.json:
        described = {
            "device": peaks.device,
            "sessions": sorted({one.device for one in work}),
            "gflops": peaks.flops,
            "gb_s": peaks.bytes,
            "launch_ns": peaks.launch_ns,
            "clblast": peaks.remark or arguments.clblast,
            "kernels": [asdict(one) for one in times],
        }
        arguments.json.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
