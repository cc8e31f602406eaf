"""ONNX's own operator cases through the frontend and the ops' numpy references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_cases import cases, graph_of, quick_cases

from mace_core.ir import Array, Graph
from mace_core.run.reference import execute
from mace_frontend_onnx.ops import handlers
from mace_frontend_onnx.translate import handler_name

pytestmark = pytest.mark.slow  # the cases take 12 seconds to make, whichever test is first

PASS, WRONG, REFUSED = "pass", "wrong", "refused"
FLOOR = 1579
"""Of the 1884 cases of onnx 1.23.

The others are of training, text, sequences, small floats, and operators without handler.
"""


QUICK_FLOOR = 560


@dataclass(frozen=True)
class Outcome:
    kind: str
    why: str = ""


def outcome(case: Any, path: Path) -> Outcome:
    result = graph_of(case, path)
    return Outcome(REFUSED, result) if isinstance(result, str) else compare(case, *result)


def compare(case: Any, graph: Graph, arrays: dict[str, Array], outputs: Sequence[Array]) -> Outcome:
    values = execute(graph, arrays)
    for name, expected in zip(graph.outputs, outputs, strict=True):
        if values[name].dtype != np.asarray(expected).dtype:
            return Outcome(WRONG, f"{name} is {values[name].dtype}")
        try:
            np.testing.assert_allclose(values[name], expected, rtol=case.rtol, atol=case.atol)
        except AssertionError as error:
            return Outcome(WRONG, " ".join(str(error).split()))
    return Outcome(PASS)


@cache
def outcomes() -> dict[str, Outcome]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return {case.name: outcome(case, Path(folder, "case.onnx")) for case in cases()}


def expected_to_pass(case: Any) -> bool:
    """Whether every tensor is of a type that the IR holds, floats in single precision, and every operator has a handler."""
    kinds = {
        v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else 0
        for v in (*case.model.graph.input, *case.model.graph.output)
    }
    known = {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.BOOL,
        onnx.TensorProto.INT32,
        onnx.TensorProto.INT64,
        onnx.TensorProto.UINT8,
    }
    known |= {
        onnx.TensorProto.INT8,
        onnx.TensorProto.INT16,
        onnx.TensorProto.UINT16,
        onnx.TensorProto.UINT32,
        onnx.TensorProto.UINT64,
    }
    return kinds <= known and all(handler_name(node) in handlers() for node in case.model.graph.node)


RESIZE = tuple(
    f"test_resize_downsample_{by}_{mode}_antialias"
    for by in ("scales", "sizes")
    for mode in ("linear", "cubic")
)
REASONS: Mapping[str, tuple[str, ...]] = {
    "The IR's Resize has no antialias.": RESIZE,
    "Corners of the rounded size are aligned, as ONNX Runtime does; the cases align those of the unrounded one.": (
        "test_resize_downsample_scales_linear_align_corners",
        "test_resize_downsample_scales_cubic_align_corners",
    ),
    "The case was computed in single precision; where it has 1e-7, the sum is 0.": (
        "test_dft_inverse",
        "test_dft_inverse_opset19",
    ),
    "Random numbers: a library computes the same from the same inputs.": (
        "test_bernoulli_seed",
        "test_bernoulli_seed_expanded",
    ),
    "Training mode: a library only infers.": (
        "test_batchnorm_epsilon_training_mode",
        "test_batchnorm_example_training_mode",
        "test_training_dropout",
        "test_training_dropout_default",
        "test_training_dropout_default_mask",
        "test_training_dropout_mask",
    ),
    "Operator sets before 7; Scan before 9.": ("test_not_2d", "test_not_3d", "test_not_4d", "test_scan_sum"),
}
"""Why cases of mapped operators do not pass."""


@pytest.mark.exhaustive
def test_every_failure_has_its_reason() -> None:
    listed = {name for names in REASONS.values() for name in names}
    failed = {
        c.name: outcomes()[c.name] for c in cases() if expected_to_pass(c) and outcomes()[c.name].kind != PASS
    }
    assert {name: o.why for name, o in failed.items() if name not in listed} == {}
    assert sorted(listed & {c.name for c in cases()} - set(failed)) == [], "they pass now"


@pytest.mark.exhaustive
def test_enough_pass() -> None:
    counts = Counter(o.kind for o in outcomes().values())
    assert counts[PASS] >= FLOOR, counts


@pytest.mark.exhaustive
def test_quick_cases_pass(tmp_path: Path) -> None:
    listed = {name for names in REASONS.values() for name in names}
    tried = [case for case in quick_cases() if expected_to_pass(case) and case.name not in listed]
    assert len(tried) > QUICK_FLOOR
    failed = {case.name: outcome(case, tmp_path / "case.onnx") for case in tried}
    assert {name: found.why for name, found in failed.items() if found.kind != PASS} == {}
