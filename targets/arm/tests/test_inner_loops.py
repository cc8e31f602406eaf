"""The inner loops of matrix products, as the zig toolchain compiles them."""

from __future__ import annotations

import re
import shutil
from functools import cache

import pytest
from emulated_arm import require_toolchain

from mace_core.testing.requirements import require
from mace_target_arm import Arm
from mace_target_arm.inner_loops import (
    PROCESSORS,
    PRODUCT,
    compile_tiles,
    count_loop,
    find_loop,
    find_tiles,
    measure_shares,
)

TILES = [(abi, str(level.name)) for abi in ("arm64-v8a", "armeabi-v7a") for level in Arm().known_levels(abi)]


@cache
def compile_level(abi: str, level: str) -> str:
    compiler = require_toolchain("zig", abi).compiler(abi)
    return compile_tiles(
        abi, next(known for known in Arm().known_levels(abi) if known.name == level), compiler
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("abi", "level"), TILES)
def test_tiles_keep_all_sums_in_registers(abi: str, level: str) -> None:
    assembly = compile_level(abi, level)
    tiles = find_tiles(assembly)
    assert {name.partition("_")[0] for name in tiles} == {"gemm", "igemm"}
    for name in tiles:
        loop = count_loop(assembly, name)
        rows, vectors = map(int, name.rpartition("_")[2].split("x"))
        assert loop.products >= rows * vectors
        assert (loop.spills, loop.reloads, loop.moves) == (0, 0, 0), name


# By rows of a and columns of b a product of 64-bit ARM needs a load of each row, and one of each vector of b.
@pytest.mark.exhaustive
def test_a_tile_loads_nothing_twice() -> None:
    assembly = compile_level("arm64-v8a", "dotprod")
    for name in ("gemm_6x4", "igemm_bytes_6x4"):
        loop = count_loop(assembly, name)
        # Two vectors by one ldp, or each by its own instruction.
        registers = sum(line.count("q") for line in find_loop(assembly, name) if line.startswith("ld"))
        assert (loop.products, registers) == (96, 22), name


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["neon", "dotprod"])
def test_cores_reach_nine_tenths_of_their_products(level: str) -> None:
    require(None if shutil.which("llvm-mca") else "llvm-mca is not installed: apt-get install llvm")
    assembly = compile_level("arm64-v8a", level)
    families = ("gemm", "igemm_bytes") if level == "dotprod" else ("gemm",)
    wide = [f"{family}_{tile}" for family in families for tile in ("7x3", "6x4")]
    assert set(wide) <= set(find_tiles(assembly))
    shares = {name: measure_shares(assembly, name, "arm64-v8a") for name in wide}
    assert all(set(of) == set(PROCESSORS["arm64-v8a"].cores) for of in shares.values())
    assert all(share >= 0.9 for of in shares.values() for share in of.values()), shares


@pytest.mark.exhaustive
def test_cores_reach_all_products_of_halves() -> None:
    require(None if shutil.which("llvm-mca") else "llvm-mca is not installed: apt-get install llvm")
    assembly = compile_level("arm64-v8a", "fp16fml")
    for name in ("gemm_halves_8x2", "gemm_halves_5x4"):
        assert all(line.startswith("fmlal") for line in find_loop(assembly, name) if PRODUCT.match(line))
        shares = measure_shares(assembly, name, "arm64-v8a")
        assert min(shares.values()) > 0.98, (name, shares)


@pytest.mark.exhaustive
def test_cores_reach_nine_tenths_of_their_sums_of_halves() -> None:
    """Eight products an instruction, and no instruction of FEAT_FHM, which the level's flag names as well."""
    require(None if shutil.which("llvm-mca") else "llvm-mca is not installed: apt-get install llvm")
    assembly = compile_level("arm64-v8a", "fp16")
    assert "fmlal" not in assembly
    for name, products in (("gemm_half_sums_8x2", 128), ("gemm_half_sums_8x1", 64)):
        lines = [line for line in find_loop(assembly, name) if PRODUCT.match(line)]
        assert len(lines) == products, name
        assert all(re.fullmatch(r"fmla\s+v\d+\.8h, v\d+\.8h, v\d+\.h\[\d\]", line) for line in lines)
        shares = measure_shares(assembly, name, "arm64-v8a")
        assert min(shares.values()) >= 0.9, (name, shares)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("tile", "instructions"), [("gemm_4x2", 42), ("igemm_pairs_2x2", 37)])
def test_cores_of_32_bits_reach_nine_tenths(tile: str, instructions: int) -> None:
    """16 cycles of products; loads that advance a pointer are two steps, and three steps begin in a cycle."""
    require(None if shutil.which("llvm-mca") else "llvm-mca is not installed: apt-get install llvm")
    assembly = compile_level("armeabi-v7a", "neon")
    assert count_loop(assembly, tile).instructions <= instructions
    (share,) = measure_shares(assembly, tile, "armeabi-v7a").values()
    assert share >= 0.9
