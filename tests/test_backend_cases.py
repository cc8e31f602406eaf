"""ONNX's own operator cases through frontend, transforms and generated C on this machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_cases import cases, graph_of

from mace_core.ir import Array, DType, Graph
from mace_core.registry import Registry
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

BATCH = 800
"""Cases of one library: few enough for the compiler's memory, many enough to compile the kernels seldom."""

LEAST = 1564
"""Cases that pass in all types; a regression shows as fewer."""

CORNERS = "the IR's Resize aligns the corners of the rounded size, as onnxruntime does; the case those of the unrounded one"
NOISE = "its expected sums hold 1.9e-7 of float32 noise where they are 0, and its tolerance is 1e-7"
EXCEPTIONS: Mapping[str, str] = {
    "test_resize_downsample_scales_linear_align_corners": CORNERS,
    "test_resize_downsample_scales_cubic_align_corners": CORNERS,
    "test_dft_inverse": NOISE,
    "test_dft_inverse_opset19": NOISE,
}
"""Cases of float32 and mapped ops that do not pass -> why."""


class Case:
    """A case that the frontend reads and the target takes."""

    def __init__(
        self, case: Any, number: int, graph: Graph, data: tuple[dict[str, Array], list[Array]]
    ) -> None:
        self.case, self.name, self.graph = case, f"case{number}", graph.with_name(f"case{number}")
        self.inputs, self.outputs = data

    def fault(self, found: Mapping[str, Array]) -> str:
        """What is wrong with what the library gives by output; "" if nothing."""
        for name, expected in zip(self.graph.outputs, self.outputs, strict=True):
            if found[name].dtype != expected.dtype:
                return f"{name} is {found[name].dtype}"
            try:
                np.testing.assert_allclose(
                    found[name], expected.reshape(found[name].shape), rtol=self.case.rtol, atol=self.case.atol
                )
            except AssertionError as error:
                return " ".join(str(error).split())[:200]
        return ""


def is_float_case(case: Any) -> bool:
    """Whether all its float tensors are in single precision."""
    kinds = {v.type.tensor_type.elem_type for v in (*case.model.graph.input, *case.model.graph.output)}
    return 1 in kinds and kinds <= {1, 6, 7, 9}


def ready(folder: Path, refused: Counter[str]) -> Iterator[Case]:
    """Every case that can be compiled; why the others cannot goes to `refused`."""
    registry, target = Registry.load(), Cpu()
    for number, case in enumerate(cases()):
        result = graph_of(case, folder / "case.onnx")
        if isinstance(result, str):
            refused["frontend"] += 1
            continue
        graph = run_phases(result[0], registry)
        reasons = [r for n in graph.nodes if (r := target.refuses(n, graph))]
        if reasons or any(t.dtype is DType.F16 for t in graph.tensors.values() if is_float_case(case)):
            refused[reasons[0] if reasons else "f16"] += 1
            continue
        yield Case(case, number, graph, result[1:])


def faults(batch: list[Case], folder: Path) -> dict[str, str]:
    """By name of the case what is wrong with it, of one library with all of the batch."""
    folder.mkdir()
    inputs = {case.name: case.inputs for case in batch}
    actual = run_merged(
        Cpu(), [case.graph for case in batch], folder, inputs, levels_here(Cpu().levels("host"))[:1]
    )
    return {case.case.name: case.fault(actual[case.name]) for case in batch}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_cases_pass_through_generated_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused: Counter[str] = Counter()
    compiled = list(ready(tmp_path, refused))
    found: dict[str, str] = {}
    for start in range(0, len(compiled), BATCH):
        found |= faults(compiled[start : start + BATCH], tmp_path / str(start))
    floats = [c.case.name for c in compiled if is_float_case(c.case)]
    wrong = {name: why for name, why in found.items() if why}
    passed = len(found) - len(wrong)
    floats_passed = sum(not found[n] for n in floats)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(cases())} cases, {len(found)} compiled, {passed} passed; ")
        sys.stdout.write(f"of {len(floats)} in float32 {floats_passed} passed\n")
    assert {n: w for n, w in wrong.items() if n in floats and n not in EXCEPTIONS} == {}
    assert all(found[n] for n in EXCEPTIONS), "an exception passes now; take it off the list"
    assert len(found) - len(wrong) >= LEAST
