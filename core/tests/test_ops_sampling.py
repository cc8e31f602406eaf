"""What the ops of sampling, detection and spectra make of simple operands, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array, DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.op import OpError
from mace_core.testing.compiled import case

F = np.float32


def run(op: str, *arrays: Array, **attrs: Attribute) -> tuple[Array, ...]:
    """What an op's reference computes, its outputs as the inference says."""
    count = len(core_ops()[op].outputs)
    graph = case("t", op, arrays, attrs, outputs=count)
    actual = core_ops()[op].compute(arrays, core_ops()[op].complete(attrs))
    for name, array in zip(graph.outputs, actual, strict=True):
        assert (array.shape, array.dtype) == (graph.tensors[name].shape, graph.tensors[name].dtype.numpy)
    return actual


def image(height: int, width: int) -> Array:
    return np.arange(height * width, dtype=F).reshape(1, height, width, 1)


def test_a_grid_of_its_own_pixels_is_the_image() -> None:
    x = image(3, 4)
    across, down = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 3))
    grid = np.stack([across, down], -1)[None].astype(F)
    for mode in ("nearest", "linear", "cubic"):
        np.testing.assert_allclose(run("GridSample", x, grid, mode=mode, align_corners=True)[0], x, atol=1e-5)


@pytest.mark.parametrize(("padding", "expected"), [("zeros", 0), ("border", 3), ("reflection", 2)])
def test_padding_of_a_grid(padding: str, expected: float) -> None:
    # At 3 of four elements half the width behind the last: reflected there, 3 - 1.
    grid = np.array([[[2.0]]], F)
    x = np.arange(4, dtype=F).reshape(1, 4, 1)
    (y,) = run(
        "GridSample",
        x,
        np.where(padding == "reflection", F(5 / 3), grid),
        padding=padding,
        align_corners=True,
    )
    assert y.reshape(()) == pytest.approx(expected)


def test_no_number_is_no_place() -> None:
    grid = np.full((1, 1, 1, 2), np.nan, F)
    assert run("GridSample", image(2, 2) + 1, grid)[0].item() == 0


def test_regions_of_a_ramp() -> None:
    rois, images = np.array([[0, 0, 4, 4]], F), np.zeros(1, np.int64)
    (y,) = run("RoiAlign", image(4, 4), rois, images, size=(2, 2))
    np.testing.assert_allclose(y[0, :, :, 0], [[2.5, 4.5], [10.5, 12.5]])
    (y,) = run("RoiMaxPool", image(4, 4), rois[:, [0, 1, 2, 2]] - F([0, 0, 1, 1]), images, size=(2, 2))
    np.testing.assert_array_equal(y[0, :, :, 0], [[5, 7], [13, 15]])


def test_windows_put_together_count_how_often_they_saw() -> None:
    attrs: Mapping[str, object] = {
        "kernel": (2, 2),
        "strides": (1, 1),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    (columns,) = run("Im2Col", image(3, 3), **attrs)
    np.testing.assert_array_equal(columns[0, 1, 0], [3, 4, 6, 7])
    (y,) = run("Col2Im", columns, **attrs, size=(3, 3))
    np.testing.assert_array_equal(
        y, image(3, 3) * np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]], F)[None, :, :, None]
    )
    (same,) = run("DeformIm2Col", image(3, 3), np.zeros((1, 2, 2, 8), F), **attrs)
    np.testing.assert_array_equal(same, columns)
    _, indices = run("MaxPoolIndices", image(3, 3) % 4, **attrs, ceil=False)
    np.testing.assert_array_equal(indices.reshape(2, 2), [[3, 2], [3, 7]])


def test_forth_and_back_through_the_spectrum() -> None:
    x = np.random.default_rng(0).standard_normal((2, 9, 1)).astype(F)
    (half,) = run("DFT", x, length=9, onesided=True)
    assert half.shape == (2, 5, 2)
    np.testing.assert_allclose(run("DFT", half, length=9, inverse=True, onesided=True)[0], x, atol=1e-6)
    np.testing.assert_allclose(
        run("DFT", run("DFT", x, length=9)[0], length=9, inverse=True)[0][..., :1], x, atol=1e-6
    )


def test_running_products() -> None:
    x = np.array([2, 3, 4], np.int32)
    assert run("CumProd", x, axis=0, exclusive=True)[0].tolist() == [1, 2, 6]
    assert run("CumProd", x, axis=0, reverse=True)[0].tolist() == [24, 12, 4]


REFUSED: tuple[tuple[str, tuple[Array, ...], Mapping[str, object], str], ...] = (
    ("GridSample", (image(2, 2), np.zeros((1, 2, 2, 3), F)), {}, r"it must be \[1, 2 axes, 2\]"),
    ("GridSample", (image(2, 2).astype(np.int32), np.zeros((1, 2, 2, 2), F)), {}, "to be interpolated"),
    (
        "RoiAlign",
        (image(2, 2), np.zeros((3, 4), F), np.zeros(2, np.int64)),
        {"size": (1, 1)},
        r"images have shape \[2\]",
    ),
    (
        "RoiMaxPool",
        (image(2, 2), np.zeros((3, 5), F), np.zeros(3, np.int64)),
        {"size": (1, 1)},
        r"it must be \[R, 4\]",
    ),
    (
        "NonMaxSuppression",
        (np.zeros((1, 3, 4), F), np.zeros((1, 1, 4), F)),
        {"per_class": 1},
        "boxes have shape",
    ),
    (
        "NonMaxSuppression",
        (np.zeros((1, 3, 4), F), np.zeros((1, 1, 3), F)),
        {"per_class": 0},
        "it must be positive",
    ),
    ("DFT", (np.zeros((4, 3), F),), {"length": 4, "axis": 0}, "real or complex"),
    ("Det", (np.zeros((2, 3), F),), {}, "must have the same length"),
    ("DecodeBoxes", (np.zeros((1, 3, 4), F), np.zeros((2, 4), F)), {}, "priors have shape"),
)


@pytest.mark.parametrize(("op", "arrays", "attrs", "text"), REFUSED)
def test_refused(op: str, arrays: tuple[Array, ...], attrs: Mapping[str, object], text: str) -> None:
    tensors = [Tensor(f"x{i}", DType.of(a), a.shape) for i, a in enumerate(arrays)]
    with pytest.raises(OpError, match=text):
        core_ops()[op].infer(tensors, core_ops()[op].complete(attrs))
