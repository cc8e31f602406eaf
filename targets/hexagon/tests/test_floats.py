"""Floats on HVX: bits by QEMU where version 66 has the instructions; for version 68, what the compiler makes.

Nothing of version 68 is executed: QEMU 7.2 does not know it. Its kernels are compiled, their loops are read,
and their C runs on this machine with `probe/emulated_hvx` in the place of the instructions.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated import ABI, assert_equal, require_compiler

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.levels import with_levels
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.testing.compiled import check_graphs, generate_library, merge
from mace_target_hexagon.isa import HVX_QF, WITH_QF
from mace_target_hexagon.processor import Hvx

FLAGS = ("-O1", "-s")
TILES = ("12x1", "8x2", "5x3", "4x4")
QF = re.compile(r"v\d+\.qf32 = (\w+)\(")
SCALAR = re.compile(r"\bsf(add|sub|mpy)\(")
ON_STACK = re.compile(r"vmemu?\(r29")
EMULATED = Path(__file__).parent / "probe" / "emulated_hvx"


def apply(name: str, op: str, shapes: tuple[tuple[int, ...], ...], **attrs: object) -> Graph:
    """Return an op of inputs of floats."""
    builder = Builder(name)
    operands = [builder.input(f"x{i}", DType.F32, shape) for i, shape in enumerate(shapes)]
    return builder.finish([builder.one(op, operands, attrs)])


def cast(name: str, elements: int, source: DType, result: DType) -> Graph:
    builder = Builder(name)
    x = builder.input("x", source, (elements,))
    return builder.finish([builder.one("Cast", [x], {"to": result.value})])


def convolve(name: str, channels: int, filters: int, size: int) -> Graph:
    builder = Builder(name)
    rng = np.random.default_rng(channels)
    x = builder.input("x", DType.F32, (1, 5, 6, channels))
    shape = (filters, size, size, channels)
    w = builder.weight("w", rng.normal(size=shape).astype(np.float32))
    b = builder.weight("b", rng.normal(size=filters).astype(np.float32))
    pads = (size // 2, size // 2)
    attrs = {"strides": (1, 1), "pads_before": pads, "pads_after": pads, "dilations": (1, 1)}
    return builder.finish([builder.one("Conv", [x, w, b], attrs)])


FLOATS = (
    apply("add", "Add", ((3, 77), (3, 77))),
    apply("subtract", "Sub", ((2, 5, 33), (33,))),
    apply("multiply", "Mul", ((4, 1), (4, 64))),
    apply("scale", "Mul", ((1, 130), (1, 1))),
    apply("relu", "Relu", ((131,),)),
    apply("product", "MatMul", ((2, 7, 19), (2, 19, 70))),
    apply("row", "MatMul", ((1, 40), (40, 300))),
    convolve("window", 5, 37, 3),
    convolve("point", 16, 130, 1),
)


def draw_floats(count: int) -> Array:
    """Return floats of all exponents, and the ends of ranges."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count, np.uint64).astype(np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    # Halves, their neighbors, and the middles between two of them, where ties are.
    neighbors = (
        halves.view(np.uint32)[:, None] + np.array([0, 1, 0x0FFF, 0x1000, 0x1001], np.uint32)
    ).ravel()
    floats: Array = np.concatenate([bits, neighbors.astype(np.uint32)]).view(np.float32)
    return floats


@pytest.mark.slow
@pytest.mark.emulator
def test_halves_and_relu_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    floats = draw_floats(5001)
    graph = merge(
        "floats",
        (
            cast("widen", 1 << 16, DType.F16, DType.F32),
            cast("few", 65, DType.F16, DType.F32),
            cast("narrow", floats.size, DType.F32, DType.F16),
            apply("relu", "Relu", (floats.shape,)),
        ),
    )
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    arrays = {"widen": halves, "few": halves[-65:], "narrow": floats, "relu": floats}
    inputs = {name: arrays[name.partition("/")[0]] for name in graph.inputs}
    assert_equal(graph, inputs, tmp_path, ("hvx",), FLAGS)


def compile_kernels(abi: str, folder: Path) -> str:
    """Return the kernels of floats for a version of the DSP as assembly."""
    require_compiler()
    compiler = Registry.load().toolchains["zig"].compiler(abi)
    target = with_levels(Hvx(), [level for level in Hvx().known_levels(abi) if level.name == HVX_QF.name])
    sources = generate_library([target], [merge("floats", FLOATS)], abi)
    write_all(folder, sources.files)
    for manifest in sources.manifests:
        for name, path in manifest.copies.items():
            (folder / name).write_bytes(path.read_bytes())
    (kernels,) = (name for name in sources.files if name.endswith("_kernels_hvx_qf.c"))
    flags = ("-std=gnu11", "-O2", "-g0", *HVX_QF.flags, "-S", "-o", "kernels.s")
    subprocess.run([*compiler.cc, *compiler.flags, *flags, kernels], cwd=folder, check=True)
    return (folder / "kernels.s").read_text()


def read_loop(assembly: str, function: str) -> str:
    """Return the part between two labels of a function that has the most instructions of qf."""
    body = assembly[assembly.index(f"\n{function}:") :]
    body = re.sub(r"//.*", "", body[: body.index(".Lfunc_end")])
    return max(re.split(r"\n\.LBB\w+:", body), key=lambda part: len(QF.findall(part)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("abi", WITH_QF)
def test_loops_of_floats_have_instructions_of_vectors(abi: str, tmp_path: Path) -> None:
    assembly = compile_kernels(abi, tmp_path)
    for tile in TILES:
        loop = read_loop(assembly, f"gemm_{tile}")
        rows, vectors = map(int, tile.split("x"))
        counts = {name: QF.findall(loop).count(name) for name in ("vmpy", "vadd")}
        assert counts["vmpy"] == counts["vadd"] >= rows * vectors
        assert counts["vmpy"] % (rows * vectors) == 0
        assert not ON_STACK.search(loop), "sums are kept on the stack"
        assert not SCALAR.search(loop), "floats are computed one by one"
    for op, instruction in (("add", "vadd"), ("sub", "vsub"), ("mul", "vmpy")):
        loop = read_loop(assembly, f"{op}_qf")
        assert instruction in QF.findall(loop)
        assert not SCALAR.search(loop), "floats are computed one by one"


@pytest.mark.exhaustive
def test_kernels_of_version_68_compute_what_the_reference_does_where_instructions_are_emulated(
    tmp_path: Path,
) -> None:
    # Other helpers serve kernels of bytes, with instructions that the header does not have.
    helpers = tuple(path for path in HVX_QF.helpers if path.name in ("hvx.h.in", "qf.h.in"))
    flags = ("-Wno-psabi", f"-I{EMULATED}")
    level = replace(HVX_QF, flags=flags, available="", probe=None, helpers=helpers)
    check_graphs(with_levels(Hvx(), [level]), FLOATS, tmp_path)


def test_floats_by_qf_are_for_whoever_asks() -> None:
    """They were executed nowhere."""
    for abi in (ABI, *WITH_QF):
        assert [level.name for level in Hvx().levels(abi)] == ["hvx", "plain"]
        assert (HVX_QF in Hvx().known_levels(abi)) is (abi in WITH_QF)
