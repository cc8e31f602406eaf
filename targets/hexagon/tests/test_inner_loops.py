"""The inner loops of products as the compiler schedules them: how full their packets are."""

from __future__ import annotations

import re
import subprocess

import pytest
from emulated import ABI, require_compiler
from test_dsp_products import CASES

from mace_core.run.files import write_all
from mace_core.testing.compiled import generate_library, merge
from mace_target_hexagon.processor import Hvx

PER_PACKET = 2
"""Products of a register with a scalar that a packet holds at most."""

TILES = ("12x1", "8x2", "8x3", "6x4")
KERNELS = tuple(f"igemm_{form}_{tile}" for form in ("bytes", "wide") for tile in TILES)


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kernels for HVX as assembly."""
    compiler = require_compiler()
    folder = tmp_path_factory.mktemp("assembly")
    halves = [case for case in CASES if case.name == "halves"]
    sources = generate_library([Hvx()], [merge("products", (CASES[0], *halves))], ABI)
    write_all(folder, sources.files)
    for manifest in sources.manifests:
        for name, path in manifest.copies.items():
            (folder / name).write_bytes(path.read_bytes())
    (kernels,) = (name for name in sources.files if name.endswith("_kernels_hvx.c"))
    flags = ("-std=gnu11", "-O2", "-g0", "-mhvx", "-S", "-o", "kernels.s")
    subprocess.run([*compiler.cc, *compiler.flags, *flags, kernels], cwd=folder, check=True)
    return (folder / "kernels.s").read_text()


def inner_loop(assembly: str, function: str) -> str:
    """Return the part between two labels of a function that has the most products."""
    body = assembly[assembly.index(f"\n{function}:") :]
    body = re.sub(r"//.*", "", body[: body.index(".Lfunc_end")])
    return max(re.split(r"\n\.LBB\w+:", body), key=lambda part: part.count("vrmpy"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("tile", KERNELS)
def test_packets_of_a_tile_are_four_fifths_full(assembly: str, tile: str) -> None:
    """Those of bytes, and of 16 bits as two bytes."""
    rows, vectors = map(int, tile.rpartition("_")[2].split("x"))
    loop = inner_loop(assembly, tile)
    products, packets = loop.count("vrmpy"), len(re.findall(r"^\s*\{", loop, re.MULTILINE))
    assert products == 4 * rows * vectors
    assert products / PER_PACKET >= 0.8 * packets, f"{products} products in {packets} packets"
    assert "r29" not in loop, "sums are kept on the stack"


@pytest.mark.exhaustive
def test_l2fetch_stands_in_front_of_the_loops_of_products(assembly: str) -> None:
    """No tile has one: there it would take a place of a load in each round."""
    bodies = re.split(r"^(\w+):", assembly, flags=re.MULTILINE)
    functions = dict(zip(bodies[1::2], bodies[2::2], strict=True))
    counts = {name: len(re.findall(r"l2fetch\(r\d+,r\d+:\d+\)", text)) for name, text in functions.items()}
    tiles = [name for name in functions if re.fullmatch(r"igemm_(bytes|wide)_\d+x\d", name)]
    assert len(tiles) >= len(KERNELS)
    assert not any(counts[name] for name in tiles)
    assert sum(counts.values()) >= 3, "rows, the first weights, and the next ones"
