"""Times the operators of a built library beside what one core can do: the roofline of each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path

from mace_core.api import GeneratedFiles
from mace_core.build_manifest import library_levels
from mace_core.commands import BuiltModels
from mace_core.compilation import Compilation, CompiledModel, compile_model
from mace_core.errors import MaceError
from mace_core.ir import Graph, Node
from mace_core.json_types import Json, JsonObject
from mace_core.levels import Level
from mace_core.manifest import Manifest, Product, Unit
from mace_core.program import Call, Program
from mace_core.registry import Choice
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import link
from mace_core.run.results import Timing
from mace_core.run.tables import table

SOURCE = "peak.c"


@dataclass(frozen=True)
class Peak:
    """What one core does in a nanosecond: multiply-adds of floats and of bytes, bytes read from its caches.

    0 for what the processor has no program for.  bf16: multiply-adds of floats rounded to bfloat16.
    """

    f32: float
    i8: float
    bytes: float
    bf16: float = 0.0


@dataclass(frozen=True)
class OperatorTime:
    """The shortest time of one call, nanoseconds, and the least that its work takes.

    macs: multiply-adds of convolutions and matrix products; 0 for all others.  bytes: of the tensors and
    weights that it reads and writes.  bound_ns: the longer of the two at the level's peak, with all threads;
    0 where it is unknown.
    """

    model: str
    name: str
    kernel: str
    level: str
    ns: int
    macs: int
    bytes: int
    peak_macs: float
    bound_ns: float

    @property
    def rate(self) -> float:
        """Multiply-adds in a nanosecond, which are GMAC/s."""
        return self.macs / self.ns if self.ns else 0.0

    def as_json(self) -> Json:
        """Return it as JSON has it."""
        return asdict(self) | {"gmacs": self.rate}


def time_operators(models: BuiltModels, rounds: int) -> list[OperatorTime]:
    """Time every call of every model in its place in the model.

    Raises MaceError where the library is of another model than the deployment, or its level has no peak.
    """
    parsed, choice, registry = models.open()
    built = BuiltLibrary.open(
        models.builds / parsed.library, choice.text, registry.find_runner(choice, parsed.models)
    )
    times: list[OperatorTime] = []
    for model in parsed.models:
        timing = built.time(model.name, models.threads, rounds, layers=True)
        levels = library_levels(registry.targets_for(choice, model.runtimes), choice.abi)
        level = find_level(timing.device, levels.values())
        peak = measure_peak(level, choice, built)
        compiled = compile_model(model, Compilation(choice, registry))
        times += combine(compiled, timing, level.name, peak)
    return times


def find_level(device: str, levels: Iterable[Sequence[Level]]) -> Level:
    """Return the level that a library names as its device: "cpu: avx2".

    MaceError where no target has it.
    """
    name = device.rpartition(": ")[2]
    for level in chain.from_iterable(levels):
        if level.name == name:
            return level
    remedy = "name the levels as they were built, or leave --op out"
    raise MaceError("--op", f"the library computes on {device!r}, which is no level of a target", remedy)


def measure_peak(level: Level, choice: Choice, built: BuiltLibrary) -> Peak:
    """Compile the level's program and run it where the library runs; MaceError where the level has none."""
    if level.peak is None:
        problem = "its target has no program that measures what a core can do"
        raise MaceError(f"level {level.name}", problem, "use --layers, which needs none")
    program = Manifest("peak", Product.PROGRAM, generated=(SOURCE,), units=(Unit(SOURCE, flags=level.flags),))
    sources = GeneratedFiles({SOURCE: level.peak.read_text(encoding="utf-8")}, (program,))
    with tempfile.TemporaryDirectory() as folder:
        link(sources, choice.compiler, Path(folder), ("-O2",))
        printed = replace(built, programs=Path(folder)).execute("peak", [])
    rates = JsonObject.parse(printed, SOURCE)
    f32 = rates.number("f32")
    bf16 = rates.number("bf16") if "bf16" in rates else f32
    return Peak(f32, rates.number("i8"), rates.number("bytes"), bf16)


def combine(compiled: CompiledModel, timing: Timing, level: str, peak: Peak) -> Iterator[OperatorTime]:
    """Yield the times of a model's calls with their work; MaceError where they are those of another model."""
    program = compiled.plan.program
    calls = find_calls(compiled, timing, level)
    products = count_products(compiled.graph, calls)
    for call, layer, macs in zip(calls, timing.layers, products, strict=True):
        rate = _choose_rate(call, program, peak) * timing.threads
        moved = count_bytes(call, program)
        limits = [macs / rate] if rate else []
        limits += [moved / (peak.bytes * timing.threads)] if peak.bytes else []
        bound = max(limits, default=0.0)
        yield OperatorTime(compiled.name, layer.name, layer.kernel, level, layer.ns, macs, moved, rate, bound)


def _choose_rate(call: Call, program: Program, peak: Peak) -> float:
    """Return the multiply-adds in a nanosecond of the numbers that a call multiplies."""
    if any(program.tensors[name].quant for name in call.reads if name in program.tensors):
        return peak.i8
    return peak.bf16 if "is_bf16" in call.kernel.params else peak.f32


def find_calls(compiled: CompiledModel, timing: Timing, level: str) -> list[Call]:
    """Return the calls behind the layers of a timing; MaceError where they are those of another model."""
    calls = [call for call in compiled.plan.program.calls if call.is_made_at(level)]
    if [call.kernel.name for call in calls] != [layer.kernel for layer in timing.layers]:
        problem = "the library makes other calls than the deployment says"
        raise MaceError(f"model {compiled.name!r}", problem, "build it again")
    return calls


def count_bytes(call: Call, program: Program) -> int:
    """Return the bytes of the tensors and weights that a call reads and writes, each once."""
    total = 0
    for name in {*call.reads, *call.writes}:
        if name in program.weights:
            total += program.weights[name].bytes
        elif name in program.tensors:
            tensor = program.tensors[name]
            total += tensor.elements * tensor.dtype.size
    return total


def count_products(graph: Graph, calls: Sequence[Call]) -> list[int]:
    """Return the multiply-adds of each call.

    A node's are those of the call of its name; where a later one has taken it in, of the first call that
    computes all of the node's sources.
    """
    counts = [0] * len(calls)
    for node in graph.nodes:
        macs = multiply_adds(node, graph)
        named = [i for i, call in enumerate(calls) if call.node == node.name]
        sources = {*node.sources}
        merged = [i for i, call in enumerate(calls) if sources and sources <= {*call.sources}]
        # The product is the last call of a node: calls before it gather or convert.
        for index in (named[-1:] or merged[:1]) if macs else ():
            counts[index] += macs
    return counts


def multiply_adds(node: Node, graph: Graph) -> int:
    """Return the multiply-adds of a convolution [O, kernel, I / group] or a matrix product; 0 for others."""
    if node.op.name not in ("Conv", "MatMul"):
        return 0
    x, weights, result = (graph.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
    return result.elements * (prod(weights.shape[1:]) if node.op.name == "Conv" else x.shape[-1])


def show_operators(times: Sequence[OperatorTime]) -> str:
    """Return a table of each model's calls, the longest first, with a last line for all of them."""
    text = ""
    for model in dict.fromkeys(time.model for time in times):
        of_model = sorted((time for time in times if time.model == model), key=lambda time: -time.ns)
        rows = [_cells(time) for time in of_model]
        total = sum(time.ns for time in of_model)
        bound = sum(time.bound_ns for time in of_model)
        macs = sum(time.macs for time in of_model)
        share = f"{100 * bound / total:.0f}" if total else "-"
        rows.append(
            ("all", "", f"{total / 1e3:.1f}", f"{macs / 1e6:.2f}", "", "", f"{bound / 1e3:.1f}", share)
        )
        head = (model, "kernel", "us", "MMAC", "GMAC/s", "% of peak", "bound us", "% of bound")
        text += f"{model} at {of_model[0].level}\n" + table(head, rows)
    return text


def _cells(time: OperatorTime) -> tuple[str, ...]:
    has_products = bool(time.macs and time.peak_macs)
    return (
        time.name,
        time.kernel,
        f"{time.ns / 1e3:.1f}",
        f"{time.macs / 1e6:.2f}" if time.macs else "-",
        f"{time.rate:.1f}" if time.macs else "-",
        f"{100 * time.rate / time.peak_macs:.0f}" if has_products else "-",
        f"{time.bound_ns / 1e3:.1f}" if time.bound_ns else "-",
        f"{100 * time.bound_ns / time.ns:.0f}" if time.bound_ns and time.ns else "-",
    )
