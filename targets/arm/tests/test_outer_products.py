"""The level `sme` has the bits of the CPU target, with vectors of every length of the architecture."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from emulated_arm import assert_equal_on_arm, require_runner, require_toolchain
from quantized_graphs import I8, U8, conv
from quantized_networks import random_network
from test_byte_levels import BORDER, NONE, convolutions, draw_inputs, products

from mace_core.ir import DType, Graph
from mace_core.testing.compiled import merge

VECTOR_BYTES = (16, 32, 64, 128, 256)
"""Lengths of vectors in streaming mode: Arm Architecture Reference Manual, "Effective SVL"."""

SMOPA = """
int main(void) {
  signed char x[256];
  int sums[2] = {0, 0};
  for (int i = 0; i < 256; i++) x[i] = i % 8;
  __asm__ volatile(
      ".arch_extension sme\\n\\tsmstart\\n\\tptrue p0.b\\n\\tzero {za}\\n\\tld1b {z0.b}, p0/z, [%0]\\n\\t"
      "smopa za0.s, p0/m, p0/m, z0.b, z0.b\\n\\tmov w12, #0\\n\\twhilelt p0.s, xzr, %2\\n\\t"
      "st1w {za0h.s[w12, 0]}, p0, [%1]\\n\\tsmstop"
      : : "r"(x), "r"(sums), "r"(2L) : "memory", "x12", "v0");
  return sums[0] == 14 && sums[1] == 38 ? 0 : 1;
}
"""
"""Two sums of the first row of a tile: (0, 1, 2, 3) by itself, and by (4, 5, 6, 7)."""


@cache
def can_multiply_bytes() -> bool:
    """Whether the emulator computes smopa: https://gitlab.com/qemu-project/qemu/-/issues/2083."""
    toolchain = require_toolchain("gnu", "arm64")
    runner = require_runner(toolchain, "arm64")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "smopa"
        source = path.with_suffix(".c")
        source.write_text(SMOPA, encoding="utf-8")
        compiler = toolchain.compiler("arm64")
        words = [*compiler.cc, *compiler.flags, "-static", "-O1", str(source), "-o", str(path)]
        subprocess.run(words, check=True, capture_output=True)
        return subprocess.run(runner.command(path, []), check=False).returncode == 0


def assert_equal_with_all_vectors(graph: Graph, folder: Path, tools: tuple[str, str]) -> None:
    """Assert that the level gives the bits of the library for this machine; skip where QEMU is wrong."""
    if not can_multiply_bytes():
        pytest.skip("this QEMU leaves out sums of smopa, as versions before 9.0 do (its issue 2083)")
    runs = [("sme", f"max,sme-default-vector-length={length}") for length in VECTOR_BYTES]
    assert_equal_on_arm(graph, draw_inputs(graph), folder, tools, runs)


def blocks() -> list[Graph]:
    """Rows and columns around the edges of tiles and of blocks of 32 x 128 sums."""
    kind = (I8, DType.I8, I8)
    sizes = [(8, 1), (9, 17), (15, 16), (16, 33), (17, 127), (31, 128), (33, 129), (67, 145)]
    graphs = [
        conv(f"block{rows}_{columns}", (1, 1, rows, 36), (columns, 1, 1, 36), kind, **NONE)
        for rows, columns in sizes
    ]
    # Pieces of a strip of three lines, of one quad and of several.
    for depth in (3, 8, 21):
        shape, filters = (1, 9, 7, depth), (20, 3, 3, depth)
        graphs.append(conv(f"strip{depth}", shape, filters, (U8, DType.I8, U8), **BORDER))
    return graphs


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a")], ids="-".join)
def test_products_have_the_bits_of_the_cpu(tools: tuple[str, str], tmp_path: Path) -> None:
    merged = merge("products", [*blocks(), *convolutions(), *products()])
    assert_equal_with_all_vectors(merged, tmp_path, tools)


@pytest.mark.slow
@pytest.mark.emulator
def test_random_networks_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    merged = merge("networks", [random_network(seed) for seed in range(12)])
    assert_equal_with_all_vectors(merged, tmp_path, ("gnu", "arm64"))


@pytest.mark.slow
def test_a_small_product_has_the_bits_of_the_cpu(tmp_path: Path) -> None:
    """A small case of the tests above."""
    assert_equal_with_all_vectors(blocks()[3], tmp_path, ("gnu", "arm64"))
