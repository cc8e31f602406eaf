"""Counts what the inner loops of matrix kernels consist of, and what llvm-mca says of them for some cores.

Nothing here is measured: llvm-mca computes cycles from LLVM's tables of a core, with all data in the
first-level cache.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.levels import Level, with_levels
from mace_core.plan import plan_calls
from mace_core.run.files import write_all
from mace_target_arm import Arm
from mace_target_cpu.isa import CpuLevel


@dataclass(frozen=True)
class Processor:
    """How llvm-mca calls the processors of an ABI.

    triple, extensions: what it must know to read the instructions.  cores: those that it has tables for.
    """

    triple: str
    extensions: str
    cores: tuple[str, ...]


# LLVM 14 reads the Cortex-A76 and X1 from its table of the A57. It has none for 32-bit code of later cores.
AARCH64 = Processor(
    "aarch64-linux-gnu", "+dotprod,+i8mm,+fp16fml,+fullfp16", ("cortex-a55", "cortex-a76", "cortex-x1")
)
AARCH32 = Processor("armv8a-linux-gnueabihf", "+neon", ("cortex-a57",))
PROCESSORS: Mapping[str, Processor] = {
    "arm64-v8a": AARCH64,
    "arm64": AARCH64,
    "armeabi-v7a": AARCH32,
    "armhf": AARCH32,
}

ONE_A_CYCLE = ("cortex-a55",)
"""Cores that begin one product of 128 bits in a cycle, where LLVM's table has two.

The two pipes are 64 bits wide: Arm Cortex-A55 Software Optimization Guide, "ASIMD" tables, the Q-forms.
"""

ITERATIONS = 50

PRODUCT = re.compile(
    r"(fmla|fmlal2?|[su]mlal2?|[su]mull2?|[su]adalp|[su]dot|[su]mmla|vmla|vmlal|vmull|vpadal)\b"
)
LOAD = re.compile(r"(ldr|ldp|ldur|ld1r?|vld1|vldr|vldmia)\b")
STORE = re.compile(r"(str|stp|stur|st1|vst1|vstr|vstmia)\b")
MOVE = re.compile(r"mov\s+v\d+\.16b|vmov\s+q\d|vorr\s+(q\d+),\s*(q\d+),\s*\2\b")
STACK = re.compile(r"\[sp\b|@\s*\d+-byte (Spill|Reload)")
TILE = re.compile(
    r"^((gemm|gemm_halves|gemm_half_sums|igemm_bytes|igemm_pairs|igemm_matrices)_(\d+)x(\d+)):", re.M
)


@dataclass(frozen=True)
class InnerLoop:
    """What the loop of a function that multiplies most consists of.

    function: its name.  products: instructions that multiply, or add products.  loads: with reloads.
    spills, reloads: stores to the stack and loads from there.  moves: of vector registers.
    """

    function: str
    instructions: int
    products: int
    loads: int
    spills: int
    reloads: int
    moves: int


def compile_tiles(abi: str, level: Level, compiler: Compiler) -> str:
    """Return the kernels of products as assembly: of floats, halves and bytes.

    MaceError if they do not compile.
    """
    target = with_levels(Arm(), [level])
    assert isinstance(target, Arm)
    graphs = (_multiply_floats(DType.F32), _multiply_floats(DType.F16), _multiply_bytes())
    plans = [plan_calls(target.lower(graph, abi)) for graph in graphs]
    if isinstance(level, CpuLevel) and level.half_sums:
        target.arithmetic = "f16"
        plans.append(plan_calls(target.lower(graphs[1].with_name("half_sums"), abi)))
    sources = code.library("tiles", plans, [level])
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder), sources.files)
        (kernels,) = (name for name in sources.files if "_kernels_" in name and name.endswith(".c"))
        command = [*compiler.cc, *compiler.flags, "-O3", "-g0", *level.flags, "-S", kernels, "-o", "tiles.s"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise MaceError(kernels, done.stderr.strip()[-400:], "choose a toolchain that knows the level")
        return (Path(folder) / "tiles.s").read_text(encoding="utf-8")


def _multiply_floats(dtype: DType) -> Graph:
    builder = Builder(dtype.value)
    x = builder.input("x", dtype, (64, 64))
    w = builder.weight("w", np.ones((64, 64), dtype.numpy))
    return builder.finish(builder.add("MatMul", [x, w]))


def _multiply_bytes() -> Graph:
    builder = Builder("bytes")
    x = builder.input("x", DType.I8, (64, 64), Quant.of(0.1))
    w = builder.weight("w", np.ones((64, 64), np.int8), Quant.of(0.1))
    y = builder.reserve_output("y", Storage(DType.I8, Quant.of(0.1)))
    return builder.finish(builder.add("MatMul", [x, w], outputs=[y]))


def find_tiles(assembly: str) -> list[str]:
    """Return the functions of the highest tile of each width, those of floats first."""
    highest: dict[tuple[str, int], tuple[int, str]] = {}
    for name, family, rows, vectors in TILE.findall(assembly):
        key = (family, int(vectors))
        highest[key] = max(highest.get(key, (0, "")), (int(rows), name))
    return [name for _, (_, name) in sorted(highest.items())]


def count_loop(assembly: str, function: str) -> InnerLoop:
    """Count the instructions of the inner loop of a function."""
    lines = find_loop(assembly, function)
    on_stack = [line for line in lines if STACK.search(line)]

    def count(pattern: re.Pattern[str], some: Sequence[str]) -> int:
        return sum(1 for line in some if pattern.match(line))

    return InnerLoop(
        function,
        instructions=len(lines),
        products=count(PRODUCT, lines),
        loads=count(LOAD, lines),
        spills=count(STORE, on_stack),
        reloads=count(LOAD, on_stack),
        moves=count(MOVE, lines),
    )


def measure_shares(assembly: str, function: str, abi: str) -> dict[str, float]:
    """Return by core the cycles that the products of a loop need at least over those of the whole loop."""
    lines = tuple(find_loop(assembly, function))
    return {core: measure_share(lines, core, PROCESSORS[abi]) for core in PROCESSORS[abi].cores}


def find_loop(assembly: str, function: str) -> list[str]:
    """Return the loop of a function that multiplies most; MaceError where it has none.

    A loop is what lies between a label and a branch back to it, with no other label in between.
    """
    start = re.search(rf"^{re.escape(function)}:", assembly, re.M)
    if not start:
        raise MaceError(function, "is not in the assembly", "name a function of the kernels")
    body = assembly[start.end() : assembly.index(".Lfunc_end", start.end())]
    # Comments of 32-bit code say which accesses are spills; all others are in the way.
    body = re.sub(r"//.*|@ (?!\d+-byte).*", "", body)
    parts = re.split(r"^(\.LBB\w+):", body, flags=re.M)
    loops = []
    for label, text in zip(parts[1::2], parts[2::2], strict=True):
        back = re.search(rf"^\s+(b|cb|tb)[.\w]*\s.*{re.escape(label)}\s*$", text, re.M)
        if back:
            lines = (line.strip() for line in text[: back.end()].splitlines())
            loops.append([line for line in lines if line and line[0] not in ".#@"])
    if not loops:
        raise MaceError(function, "has no loop without another label", "name a kernel's tile")
    return max(loops, key=lambda loop: sum(1 for line in loop if PRODUCT.match(line)))


@cache
def measure_share(lines: Sequence[str], core: str, processor: Processor) -> float:
    """Return the cycles that the products of a loop need at least on a core over those of the whole loop."""
    products = [line for line in lines if PRODUCT.match(line)]
    limit = ask_mca(products, core, processor, "Block RThroughput")
    if core in ONE_A_CYCLE:
        limit = max(limit, float(len(products)))
    return limit / max(limit, ask_mca(lines, core, processor, "Total Cycles") / ITERATIONS)


def ask_mca(lines: Sequence[str], core: str, processor: Processor, line: str) -> float:
    """Return a number of llvm-mca's summary for many iterations of some instructions."""
    program = shutil.which("llvm-mca")
    if not program:
        raise MaceError("llvm-mca", "is not in PATH", "apt-get install llvm")
    # Without labels: branches go to an address.
    text = "\n".join(re.sub(r"\.L\w+", "0", re.sub(r"\s*@.*", "", line)) for line in lines)
    command = [program, f"-mtriple={processor.triple}", f"-mcpu={core}", f"-mattr={processor.extensions}"]
    command.append(f"-iterations={ITERATIONS}")
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603
    number = re.search(rf"^{line}:\s+([\d.]+)", done.stdout, re.M)
    if not number:
        raise MaceError("llvm-mca", done.stderr.strip()[-400:], "use LLVM 14 or a later version")
    return float(number[1])
