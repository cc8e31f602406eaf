"""Resize and Upsample: sizes, scales, axes, regions and policies on both sides of their limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase

from mace_core.errors import MaceError

IMAGE = "float[1,2,6,5] x"
CROP = 'coordinate_transformation_mode="tf_crop_and_resize"'


def floats(*values: float) -> np.ndarray:
    return np.float32(values)


def resize(attributes: str, inputs: str, opset: int = 18, **constants: object) -> RuntimeCase:
    return RuntimeCase(f"y = Resize<{attributes}>(x, {inputs})", IMAGE, constants, opset)


LINEAR = 'mode="linear"'
CASES = {
    "scales": resize(LINEAR, ", s", s=floats(1, 1, 1.7, 0.5)),
    "no sizes": resize(LINEAR, "e, e, n", 11, e=floats(), n=[1, 2, 9, 4]),
    "sizes": resize(LINEAR, ", , n", n=[1, 2, 9, 4]),
    "cubic": resize('mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1', ", , n", n=[1, 2, 9, 4]),
    "nearest": resize('mode="nearest", nearest_mode="ceil"', ", , n", n=[1, 2, 9, 4]),
    "axes of scales": resize(f"{LINEAR}, axes=[3,2]", ", s", s=floats(2, 0.5)),
    "axes of sizes": resize(f"{LINEAR}, axes=[-1]", ", , n", n=[8]),
    "not larger": resize(f'{LINEAR}, axes=[2,3], keep_aspect_ratio_policy="not_larger"', ", , n", n=[9, 9]),
    "not smaller": resize(f'{LINEAR}, axes=[2,3], keep_aspect_ratio_policy="not_smaller"', ", , n", n=[9, 9]),
    "a half is rounded up": resize(
        f'{LINEAR}, axes=[2,3], keep_aspect_ratio_policy="not_larger"', ", , n", n=[3, 5]
    ),
    "crop by sizes": resize(
        f"{LINEAR}, {CROP}, extrapolation_value=7.0",
        "r, , n",
        r=floats(0, 0, 0.25, 0.4, 1, 1, 0.75, 1.2),
        n=[1, 2, 4, 7],
    ),
    "upsample of 7": RuntimeCase('y = Upsample<scales=[1.0,1.0,2.0,1.5], mode="linear">(x)', IMAGE, opset=7),
    "upsample of 9": RuntimeCase("y = Upsample(x, s)", IMAGE, {"s": floats(1, 1, 2, 1.5)}, 9),
    **{
        f"resize of 10 by {height} and {width}": RuntimeCase(
            "y = Resize(x, s)", "float[1,2,7,5] x", {"s": floats(1, 1, height, width)}, 10
        )
        for height, width in ((2, 0.5), (0.6, 1.7), (1.7, 0.3), (0.6, 0.3), (1, 0.7), (2.5, 1))
    },
    **{
        f"{length} times {scale}": RuntimeCase(
            "y = Resize(x, , s)", f"float[1,1,{length},3] x", {"s": floats(1, 1, scale, 1)}, 13
        )
        for length, scale in ((5, 1.4), (10, 0.7), (20, 0.15), (11, 1.1))
    },
    "upsample of 5 by 1.4": RuntimeCase(
        "y = Upsample(x, s)", "float[1,1,5,3] x", {"s": floats(1, 1, 1.4, 1)}, 9
    ),
    "resize of 10 that interpolates less": RuntimeCase(
        f"y = Resize<{LINEAR}>(x, s)", IMAGE, {"s": floats(1, 1, 0.6, 0.7)}, 10
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_resize_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("region", "scales", "axes", "expected"),
    [
        (
            (0, 0, 0.25, 0.4, 1, 1, 0.75, 0.9),
            (1, 1, 2, 3),
            "",
            ((1, 2, 6, 7), (0, 0, 0.25, 0.4, 1, 1, 0.75, 0.9)),
        ),
        ((0.25, 0.5, 0.75, 1), (2, 2), ", axes=[2,3]", ((1, 2, 6, 5), (0, 0, 0.25, 0.5, 1, 1, 0.75, 1))),
        ((0.5, 0.25, 1, 0.75), (2, 2), ", axes=[3,2]", ((1, 2, 6, 5), (0, 0, 0.25, 0.5, 1, 1, 0.75, 1))),
        ((0.2, 0.6), (4,), ", axes=[-1]", ((1, 2, 6, 8), (0, 0, 0, 0.2, 1, 1, 1, 0.6))),
    ],
)
def test_region_times_scale(
    region: tuple[float, ...],
    scales: tuple[float, ...],
    axes: str,
    expected: tuple[tuple[int, ...], tuple[float, ...]],
    tmp_path: Path,
) -> None:
    """The size is the length of the region times the scale, rounded down; other axes keep theirs.

    Not against ONNX Runtime, which takes a region for all axes only.
    """
    case = resize(f"{LINEAR}, {CROP}{axes}", "r, s", r=floats(*region), s=floats(*scales))
    graph = case.load(tmp_path / "m.onnx")
    assert graph.tensors["y"].shape == expected[0]
    assert graph.nodes[0].attrs.roi == pytest.approx(expected[1])


@pytest.mark.parametrize(
    ("case", "ops"),
    [
        (resize(LINEAR, ", , n", n=[1, 2, 6, 5]), []),
        (resize(LINEAR, ", s", s=floats(1, 1, 1, 1)), []),
        (resize(LINEAR, ", s", s=floats(1, 1, 1.1, 1)), ["Resize"]),
        (resize(f"{LINEAR}, {CROP}", "r, , n", r=floats(0, 0, 0, 0, 1, 1, 1, 1), n=[1, 2, 6, 5]), ["Resize"]),
    ],
)
def test_only_a_resize_that_changes_nothing_is_left_out(
    case: RuntimeCase, ops: list[str], tmp_path: Path
) -> None:
    """ONNX Runtime leaves out every one that keeps the size, also where the scale moves the elements."""
    graph = case.load(tmp_path / "m.onnx")
    assert [node.op.name for node in graph.nodes if node.op.name != "Identity"] == ops


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (resize(LINEAR, ", s", s=floats(1, 1, 2)), "3 scales for 4 axes"),
        (resize(LINEAR, ", s", s=floats(1, 1, 0, 2)), "scales [1.0, 1.0, 0.0, 2.0] for [1, 2, 6, 5]"),
        (resize(f"{LINEAR}, axes=[2]", ", s", s=floats(2, 2)), "2 scales for 1 axes"),
        (resize(f"{LINEAR}, axes=[2]", ", , n", n=[2, 2]), "2 sizes for 1 axes"),
        (
            resize(f"{LINEAR}, {CROP}, axes=[2,3]", "r, , n", r=floats(0, 0, 0, 0, 1, 1, 1, 1), n=[2, 2]),
            "8 values of roi for 2 axes",
        ),
        (resize(f"{LINEAR}, antialias=1", ", , n", n=[1, 2, 3, 3]), "antialias; export the model without it"),
        (RuntimeCase("y = Upsample(x, s)", IMAGE, {"s": floats(1, 1, 2)}, 9), "scales [1.0, 1.0, 2.0] for"),
    ],
)
def test_resize_that_fits_nothing_is_refused(case: RuntimeCase, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        case.load(tmp_path / "m.onnx")
    assert message in str(error.value)
