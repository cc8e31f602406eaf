"""`arithmetic: f16`: products of halves summed in half precision, 32 at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import FLAGS, BuiltForArm, as_bits, require_runner, require_toolchain

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.json_types import Json
from mace_core.kernel_target import KernelTarget
from mace_core.levels import with_levels
from mace_core.run.compile import program
from mace_core.testing.compiled import case, generate_library, merge
from mace_target_arm import Arm
from mace_target_arm.isa import AARCH64

PARTIAL = 32
UNIT = 2.0**-11
"""Half of the distance from 1 to the next number of half precision."""


def configure(options: Json) -> Arm:
    """Return the target as a model asks for it."""
    target = Arm().configure(Model("m", (), keys={"target_options": {"arm": options}}))
    assert isinstance(target, Arm)
    return target


@dataclass(frozen=True)
class Product:
    """A product of two matrices of halves and a bias."""

    x: Array
    w: Array
    bias: Array

    @classmethod
    def draw(cls, rows: int, depth: int, columns: int, spread: float = 1.0) -> Product:
        rng = np.random.default_rng((rows, depth, columns))
        factors = [
            (spread * rng.standard_normal(shape)).astype(np.float16)
            for shape in ((rows, depth), (depth, columns), (columns,))
        ]
        return cls(*factors)

    def to_graph(self, name: str) -> Graph:
        return case(name, "MatMul", [self.x, self.w, self.bias], {}, constants=(1, 2))

    def sum_as_kernel(self) -> Array:
        """Return what the kernel computes, by its order of roundings.

        Float64 holds a product of halves of about one, and its sum with a half, exactly: so one conversion
        rounds as a fused multiply-add does.
        """
        depth = self.x.shape[1]
        x, w = self.x.astype(np.float64), self.w.astype(np.float64)
        sums = np.tile(self.bias.astype(np.float32), (len(x), 1))
        whole = depth // 8 * 8
        for first in range(0, whole, PARTIAL):
            halves = np.zeros(sums.shape, np.float16)
            for k in range(first, min(first + PARTIAL, whole)):
                halves = (halves + x[:, k, None] * w[k]).astype(np.float16)
            sums = sums + halves.astype(np.float32)
        for k in range(whole, depth):
            sums = (sums + x[:, k, None] * w[k]).astype(np.float32)
        return sums.astype(np.float16)

    def bound_error(self) -> Array:
        """Return how far results may be from exact ones: the documented bound, and their own rounding."""
        x, w = np.abs(self.x.astype(np.float64)), np.abs(self.w.astype(np.float64))
        magnitudes = x @ w
        # A number below 2^-14 is rounded by up to 2^-25.
        least = self.x.shape[1] * 2.0**-25
        bound: Array = (PARTIAL + 1) * UNIT * magnitudes + UNIT * np.abs(self.exact()) + least
        return bound

    def exact(self) -> Array:
        result: Array = self.x.astype(np.float64) @ self.w.astype(np.float64) + self.bias
        return result


# Tiles of both widths and of single rows; depths with whole parts of 32, of eight, and what is left.
SHAPES = ((1, 64, 40), (9, 8, 8), (8, 32, 16), (13, 107, 21), (3, 600, 33), (2, 5, 4))
PRODUCTS = {f"product_{number}": Product.draw(*shape) for number, shape in enumerate(SHAPES)}
# A sum of 2048 and one is 2048 in half precision, so a single sum of all would be off by half.
LONG = Product(np.ones((2, 4096), np.float16), np.ones((4096, 16), np.float16), np.zeros(16, np.float16))


def build(products: Mapping[str, Product], folder: Path, tools: tuple[str, str]) -> BuiltForArm:
    graph = merge("products", [product.to_graph(name) for name, product in products.items()])
    toolchain = require_toolchain(*tools)
    runner = require_runner(toolchain, tools[1])
    target = with_levels(configure({"arithmetic": "f16"}), AARCH64.known)
    sources = generate_library([target], [graph], tools[1])
    path = program("mace_run", sources, toolchain.compiler(tools[1]), folder, FLAGS)
    return BuiltForArm(path, runner, tuple(graph.tensors[name] for name in graph.outputs))


def check(products: Mapping[str, Product], folder: Path, tools: tuple[str, str]) -> None:
    """Assert the bound at levels of both kinds, and the bits of the order of sums where halves are added."""
    built = build(products, folder, tools)
    inputs = [product.x for product in products.values()]
    for level in ("fp16", "fp16fml", "dotprod"):
        results = built.run(inputs, level).values()
        for (name, product), result in zip(products.items(), results, strict=True):
            error = np.abs(result.astype(np.float64) - product.exact())
            assert (error <= product.bound_error()).all(), (level, name)
            if level == "dotprod":
                continue
            differing = int((as_bits(result) != as_bits(product.sum_as_kernel())).sum())
            assert differing == 0, (level, name)


@pytest.mark.slow
def test_sums_of_halves_have_the_bits_of_their_order(tmp_path: Path) -> None:
    check({"small": PRODUCTS["product_3"]}, tmp_path, ("gnu", "arm64"))


@pytest.mark.exhaustive
@pytest.mark.emulator
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a")], ids="-".join)
def test_all_sums_of_halves_have_the_bits_of_their_order(tools: tuple[str, str], tmp_path: Path) -> None:
    check({**PRODUCTS, "long": LONG}, tmp_path, tools)


def test_only_a_model_that_asks_sums_in_half_precision() -> None:
    graph = PRODUCTS["product_0"].to_graph("product")
    levels = with_levels(configure({"arithmetic": "f16"}), AARCH64.known)
    assert isinstance(levels, KernelTarget)
    for target, kernel in ((Arm(), "conv_f16"), (levels, "conv_f16_half_sums")):
        assert [call.kernel.name for call in target.lower(graph, "arm64").calls] == [kernel]
    assert configure({}).arithmetic == "f32"
    # 32-bit processors compute in floats: one deployment file may be for both.
    assert configure({"arithmetic": "f16"}).lower(graph, "armhf").calls[0].kernel.name == "cast_f16_f32"


def test_a_request_that_would_do_nothing_is_refused() -> None:
    target = configure({"arithmetic": "f16"})
    graph = PRODUCTS["product_0"].to_graph("product")
    with pytest.raises(MaceError, match=r"no level of the library \(dotprod, neon\) adds .* cpu_features"):
        target.lower(graph, "arm64")
    floats = case("floats", "MatMul", [np.ones((2, 2), np.float32)] * 2, {}, constants=(1,))
    leveled = with_levels(target, AARCH64.known)
    assert isinstance(leveled, KernelTarget)
    with pytest.raises(MaceError, match="the model's are floats; convert the model"):
        leveled.lower(floats, "arm64")


def test_reproducible_floats_have_no_sums_of_halves() -> None:
    graph = PRODUCTS["product_0"].to_graph("product")
    levels = with_levels(configure({"arithmetic": "f16"}), AARCH64.known)
    assert isinstance(levels, Arm)
    (call,) = levels.lower(graph, "arm64").calls
    assert "sums in half precision" in (levels.varies(call) or "")
    (call,) = Arm().lower(graph, "arm64").calls
    assert Arm().varies(call) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arithmetic": "f64"}, r"arithmetic: 'f64' is not allowed; write f32, bf16 or f16"),
        ({"arithmetic": ["f16"]}, r"is not allowed; write f32, bf16 or f16"),
        ({"storage": "f16"}, r"'storage' is no option of the target; remove it; the option is arithmetic"),
    ],
)
def test_wrong_options_are_refused(options: Json, message: str) -> None:
    with pytest.raises(MaceError, match=message):
        Arm().check_options(Model("m", (), keys={"target_options": {"arm": options}}))
