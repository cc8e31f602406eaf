"""The level `sme` gives floats the bits of `dotprod`, with vectors of every length of the architecture."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import BuiltForArm, require_toolchain
from test_outer_products import VECTOR_BYTES

from mace_core.attributes import AttributeValues
from mace_core.emit.render import render
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Shape
from mace_core.job import SEPARATE_ROUNDING
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge
from mace_target_arm.isa import KERNELS, SME

NONE = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
BORDER = {"pads_before": (1, 1), "pads_after": (1, 1)}


def multiply(name: str, shape: Shape, filters: Shape, attrs: AttributeValues | None = None) -> Graph:
    """A convolution with a bias, and Relu and the sum of a second input behind it."""
    rng = np.random.default_rng(len(name))
    builder = Builder(name)
    x = builder.input("x", DType.F32, shape)
    w = builder.weight("w", rng.normal(size=filters).astype(np.float32))
    bias = builder.weight("b", rng.normal(size=filters[0]).astype(np.float32))
    y = builder.one("Conv", [x, w, bias], {"low": -40.0, **NONE, **(attrs or {})})
    other = builder.input("other", DType.F32, builder.tensors[y].shape)
    return builder.finish(builder.add("Add", [y, other]))


def blocks() -> list[Graph]:
    """Rows, columns and depths around the edges of tiles, of blocks, and of transposed pieces."""
    sizes = [(8, 64, 64), (9, 129, 33), (15, 31, 255), (32, 128, 256), (33, 17, 257), (67, 145, 517)]
    graphs = [
        multiply(f"block{rows}_{columns}_{depth}", (1, 1, rows, depth), (columns, 1, 1, depth))
        for rows, columns, depth in sizes
    ]
    graphs.append(multiply("window", (1, 9, 7, 40), (24, 3, 3, 40), BORDER))
    graphs.append(multiply("gathered", (1, 9, 17, 3), (24, 5, 5, 3), {**BORDER, "strides": (2, 1)}))
    graphs.append(multiply("grouped", (1, 9, 7, 48), (80, 3, 3, 24), {**BORDER, "group": 2}))
    builder = Builder("computed")
    a, b = builder.input("a", DType.F32, (2, 19, 70)), builder.input("b", DType.F32, (2, 70, 50))
    graphs.append(builder.finish(builder.add("MatMul", [a, b])))
    return graphs


def draw_floats(graph: Graph) -> dict[str, Array]:
    """Values around 0, all of them different."""
    rng = np.random.default_rng(11)
    return {name: rng.normal(size=graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}


def assert_equal_with_all_vectors(graph: Graph, folder: Path, tools: tuple[str, str]) -> None:
    """Assert that the level gives the bits of `dotprod`, and those what the references give, nearly."""
    inputs = draw_floats(graph)
    arrays = [inputs[name] for name in graph.inputs]
    built = BuiltForArm.from_graph(graph, folder, *tools)
    expected = built.run(arrays, "dotprod")
    reference = execute(graph, inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(array, reference[name], rtol=1e-5, atol=1e-4)
    for length in VECTOR_BYTES:
        results = built.run(arrays, "sme", f"max,sme-default-vector-length={length}")
        for name, array in results.items():
            assert array.tobytes() == expected[name].tobytes(), f"{name} with vectors of {length} bytes"


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a")], ids="-".join)
def test_products_have_the_bits_of_dotprod(tools: tuple[str, str], tmp_path: Path) -> None:
    assert_equal_with_all_vectors(merge("products", blocks()), tmp_path, tools)


@pytest.mark.slow
def test_a_small_product_has_the_bits_of_dotprod(tmp_path: Path) -> None:
    """A small case of the test above."""
    assert_equal_with_all_vectors(blocks()[1], tmp_path, ("gnu", "arm64"))


def test_kernels_that_round_products_do_not_multiply_tiles() -> None:
    template = KERNELS / "gemm_tiles.h.in"
    assert "fmopa" in render(template, level=SME)
    separate = replace(SME, flags=(*SME.flags, *SEPARATE_ROUNDING))
    assert render(template, level=separate).strip() == "#define gemm_tiles_rows gemm_rows"


@pytest.mark.exhaustive
def test_sums_of_a_caller_are_left_alone(tmp_path: Path) -> None:
    compiler = require_toolchain("gnu", "arm64").compiler("arm64")
    owner, source = tmp_path / "owner.o", Path(__file__).with_name("owner_of_sums.c")
    words = [*compiler.cc, *compiler.flags, "-O1", "-c", str(source), "-o", str(owner)]
    subprocess.run(words, check=True, capture_output=True)
    graph = blocks()[1]
    arrays = [*draw_floats(graph).values()]
    built = BuiltForArm.from_graph(graph, tmp_path, "gnu", "arm64", owner)
    results = {}
    for level in ("dotprod", "sme"):
        done = built.execute(arrays, level, "max,sme-default-vector-length=64")
        assert (done.returncode, "sums there" in done.stderr) == (0, True), done.stderr
        results[level] = (tmp_path / "output_0.bin").read_bytes()
    assert results["sme"] == results["dotprod"]
