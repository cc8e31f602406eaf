"""Selection of boxes with each of its options, against LiteRT's plain kernels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import Case, Operand, check, expected, f32, i8, ints, load

from mace_core.errors import MaceError
from mace_core.run.reference import execute

POINTS = np.float32([0.5, 1.5, 2.5, 10.5, 10.6, 100.5])
ANCHORS = np.stack([POINTS / 2, POINTS, np.full(6, 1.5), np.full(6, 1)], 1).astype(np.float32)
OPTIONS = {
    "max_detections": 4,
    "max_classes_per_detection": 1,
    "detections_per_class": 3,
    "num_classes": 3,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.4,
    "y_scale": 10.0,
    "x_scale": 8.0,
    "h_scale": 5.0,
    "w_scale": 4.0,
    "use_regular_nms": False,
}
FOUND = (f32(1, 4, 4), f32(1, 4), f32(1, 4), f32(1))


def detection(width: int = 3, scores: Operand = None, without: str = "", **changes: object) -> Case:
    """An SSD's last node; width: columns of scores.  without: options that the file lacks."""
    options = {key: value for key, value in {**OPTIONS, **changes}.items() if key not in without.split()}
    limit = int(changes.get("max_detections", 4))  # type: ignore[call-overload]
    outputs = (f32(1, limit, 4), f32(1, limit), f32(1, limit), f32(1)) if 0 < limit < 100 else FOUND
    operands: list[Operand] = [f32(1, 6, 4), f32(1, 6, width) if scores is None else scores, ANCHORS]
    code = "custom TFLite_Detection_PostProcess"
    return Case(
        "ssd", code, operands, outputs=outputs, low=0, high=1, custom=bytes(flexbuffers.Dumps(options))
    )


def steps(*numbers: float) -> np.ndarray:
    """Scores of six boxes in two classes, few of them different."""
    return np.float32(numbers).reshape(1, 6, 2)


EQUAL = steps(0.5, 0.25, 0.25, 0.5, 0.125, 0.5, 0.75, 0.25, 0.0, 0.0, 0.25, 0.125)


@pytest.mark.parametrize(
    "case",
    [
        detection(),
        detection(4),
        detection(use_regular_nms=True),
        detection(4, use_regular_nms=True),
        detection(use_regular_nms=True, detections_per_class=1),
        detection(use_regular_nms=True, without="detections_per_class"),
        detection(without="use_regular_nms"),
        detection(1, num_classes=1),
        detection(2, num_classes=1),
        detection(1, num_classes=1, use_regular_nms=True),
        detection(max_detections=1),
        detection(max_detections=6),
        detection(scores=EQUAL, num_classes=2, nms_score_threshold=0.25),
        detection(scores=EQUAL, num_classes=2, nms_score_threshold=0.25, use_regular_nms=True),
        detection(scores=EQUAL, num_classes=1, nms_score_threshold=0.5),
        detection(nms_iou_threshold=0.9),
    ],
)
def test_detections_are_those_of_litert(case: Case, tmp_path: Path) -> None:
    """Behind the last one, LiteRT leaves what was in its memory; the graph has zeros there."""
    graph, arrays = load(tmp_path, case.written()), case.arrays()
    values = execute(graph, arrays)
    wanted = expected(tmp_path, arrays)
    *results, number = graph.outputs
    count = int(wanted[number][0])
    assert values[number].tolist() == [count]
    assert 0 < count <= values[results[0]].shape[1]
    for name in results:
        assert values[name].shape == wanted[name].shape
        np.testing.assert_allclose(values[name][:, :count], wanted[name][:, :count], rtol=2e-6, atol=2e-6)
        assert not values[name][:, count:].any()


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (detection(5), "it has 5 scores for 3 classes"),
        (detection(2), "it has 2 scores for 3 classes"),
        (detection(1, num_classes=0), "it has 1 scores for 0 classes"),
        (detection(max_detections=0), "it has 3 scores for 3 classes"),
        (detection(max_detections=(1 << 20) + 1), "it has 3 scores for 3 classes"),
        (detection(max_classes_per_detection=2), "several classes of one box"),
        (detection(without="y_scale"), "options that cannot be read"),
        (detection(nms_score_threshold="high"), "options that cannot be read"),
    ],
)
def test_detections_that_make_no_sense_are_refused(case: Case, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=re.escape(problem)):
        load(tmp_path, case.written())


def test_a_file_without_a_number_of_classes_for_a_box_means_one(tmp_path: Path) -> None:
    """As the kernel's default; LiteRT cannot run such a file."""
    graph = load(tmp_path, detection(without="max_classes_per_detection").written())
    assert len(graph.outputs) == 4


CORNERS = np.float32(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
)


@pytest.mark.parametrize("limit", [1, 3, 6, 9])
@pytest.mark.parametrize("version", ["V4", "V5"])
def test_boxes_are_those_of_litert(version: str, limit: int, tmp_path: Path) -> None:
    """Results have the stated size, also one above the number of boxes; 0 stands behind the last."""
    operands: list[Operand] = [CORNERS, f32(6), np.int32(limit), np.float32(0.5), np.float32(0.4)]
    outputs = [ints(limit), ints()]
    if version == "V5":
        operands.append(np.float32(0))
        outputs.insert(1, f32(limit))
    check(Case("boxes", f"NON_MAX_SUPPRESSION_{version}", operands, None, outputs, low=0, high=1), tmp_path)


def test_quantized_detections_are_decoded_as_numbers(tmp_path: Path) -> None:
    boxes, scores = i8(1, 6, 4, scale=0.02), i8(1, 6, 3, scale=1 / 256, zero=-128)
    case = detection(scores=scores)
    plain, quantized = (
        Case("ssd", case.code, [first, second, ANCHORS], outputs=FOUND, custom=case.custom)
        for first, second in ((f32(1, 6, 4), f32(1, 6, 3)), (boxes, scores))
    )
    graph, arrays = load(tmp_path, quantized.written()), quantized.arrays()
    actual = execute(graph, arrays)
    real = {
        "in0": (arrays["in0"] - np.float32(3)) * np.float32(0.02),
        "in1": (arrays["in1"] + np.float32(128)) / 256,
    }
    real = {name: array.astype(np.float32) for name, array in real.items()}
    wanted = execute(load(tmp_path, plain.written()), real)
    for name in graph.outputs:
        np.testing.assert_allclose(actual[name], wanted[name], rtol=1e-4, atol=1e-5)
