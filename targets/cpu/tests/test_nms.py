"""Boxes of which only the best of those that overlap are kept, against the numpy reference."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu


def boxes(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Around few places, so that they overlap.

    Some corners swapped, one box empty, one unknown, one endless.
    """
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 6, (*shape, 2)) / 4
    result = np.concatenate([low, low + rng.integers(1, 9, (*shape, 2)) / 4], -1).astype(np.float32)
    result[..., 1::5, :] = result[..., 1::5, :][..., [2, 3, 0, 1]]
    flat = result.reshape(-1, 4)
    flat[3], flat[4, 1], flat[5, 2] = 1.0, np.nan, np.inf
    return result


def scores(shape: tuple[int, ...], seed: int = 1) -> Array:
    """Few different values, so that some are equal; and one that is no number."""
    result = (np.random.default_rng(seed).integers(0, 40, shape) / 40).astype(np.float32)
    result.reshape(-1)[7] = np.nan
    return result


@pytest.mark.slow
@pytest.mark.parametrize("center", [False, True])
def test_by_class(tmp_path: Path, center: bool) -> None:
    graphs: list[Graph] = []
    inputs: dict[str, dict[str, Array]] = {}
    for i, (images, classes, count, limit) in enumerate(
        ((1, 1, 60, 100), (2, 3, 50, 6), (3, 1, 1000, 20), (1, 4, 30, 1))
    ):
        arrays = [boxes((images, count)), scores((images, classes, count))]
        for iou, least in ((0.5, -np.inf), (0.0, 0.3), (1.0, 0.9), (0.25, 2.0)):
            name = f"nms{len(graphs)}"
            attrs = {"per_class": limit, "iou_threshold": iou, "score_threshold": least, "center": center}
            graphs.append(case(name, "NonMaxSuppression", arrays, attrs, outputs=2))
            inputs[name] = {"x0": arrays[0], "x1": arrays[1]}
        assert i < 4
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=0)


def combined(name: str, arrays: list[Array], **attrs: Attribute) -> Graph:
    return case(name, "CombinedNonMaxSuppression", arrays, attrs, outputs=5)


@pytest.mark.slow
def test_of_all_classes_together(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    inputs: dict[str, dict[str, Array]] = {}
    for images, count, classes, kinds in ((1, 60, 1, 1), (2, 50, 5, 1), (2, 40, 4, 4)):
        arrays = [boxes((images, count, kinds)), scores((images, count, classes))]
        # Three candidates a class are fewer than what is kept of them.
        for per_class, total, candidates in ((5, 12, 0), (100, 7, 10), (3, 400, 0), (100, 50, 3)):
            name = f"all{len(graphs)}"
            attrs = {"per_class": per_class, "total": total, "candidates": candidates, "score_threshold": 0.2}
            graphs.append(combined(name, arrays, **attrs))
            inputs[name] = {"x0": arrays[0], "x1": arrays[1]}
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=0)


def test_decoded(tmp_path: Path) -> None:
    arrays = [np.zeros((2, 70, 4), np.float32), np.zeros((70, 4), np.float32)]
    attrs = {"variances": (0.1, 0.1, 0.2, 0.25)}
    check_graphs(Cpu(), [case("d", "DecodeBoxes", arrays, attrs), case("e", "DecodeBoxes", arrays)], tmp_path)
    prior, delta = np.array([[2, 4, 1, 2]], np.float32), np.array([[[5, 0, 0, np.log(2) * 5]]], np.float32)
    actual = execute(
        case("f", "DecodeBoxes", [delta, prior], {"variances": (0.1, 0.1, 0.2, 0.2)}),
        {"x0": delta, "x1": prior},
    )
    np.testing.assert_allclose(actual["y0"], [[[2, 2, 3, 6]]], rtol=1e-6)


def test_what_is_kept() -> None:
    three = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [2, 2, 3, 3]]], np.float32)
    weights = np.array([[[0.8, 0.9, 0.1], [0.2, 0.2, 0.7]]], np.float32)
    graph = case(
        "k",
        "NonMaxSuppression",
        [three, weights],
        {"per_class": 2, "iou_threshold": 0.5, "score_threshold": 0.15},
        outputs=2,
    )
    actual = execute(graph, {"x0": three, "x1": weights})
    assert actual["y0"].tolist() == [[0, 0, 1], [0, 1, 2], [0, 1, 0], [-1, -1, -1]]
    assert actual["y1"].tolist() == [3]
    graph = combined(
        "c", [three[:, :, None], weights.transpose(0, 2, 1)], per_class=2, total=3, score_threshold=0.15
    )
    actual = execute(graph, {"x0": three[:, :, None], "x1": weights.transpose(0, 2, 1)})
    np.testing.assert_array_equal(actual["y1"], np.array([[0.9, 0.7, 0.2]], np.float32))
    assert (actual["y2"].tolist(), actual["y3"].tolist(), actual["y4"].tolist()) == (
        [[0, 1, 1]],
        [[1, 2, 0]],
        [3],
    )
