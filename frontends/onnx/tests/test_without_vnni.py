"""ONNX Runtime is the same oracle on processors without VNNI: some of its comparisons, executed by an emulator of one.

QEMU has AVX2 and no VNNI, as many machines. ONNX Runtime adds products of uint8 and int8 in 16 bits there.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mace_core.testing.requirements import require

pytestmark = [pytest.mark.slow, pytest.mark.emulator]

FOLDER = Path(__file__).parent
EMULATOR = "qemu-x86_64"

SATURATING = """
import numpy as np, onnxruntime
from onnx import helper, numpy_helper, parser
body = 'm (uint8[1,64] x) => (int32[1,1] y) { y = MatMulInteger(x, w) }'
graph = parser.parse_graph(body)
graph.initializer.append(numpy_helper.from_array(np.full((64, 1), 127, np.int8), 'w'))
model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString())
(y,) = session.run(None, {'x': np.full((1, 64), 255, np.uint8)})
print(y.item(), 255 * 127 * 64)
"""
"""Prints a sum of products as ONNX Runtime computes it, and as it is."""

COMPARISONS = [
    "test_quantized_operands.py::test_product_of_integers_has_the_bits_of_onnx_runtime[crossed_computed]",
    "test_quantized_operands.py::test_product_of_integers_has_the_bits_of_onnx_runtime[matrix_computed]",
    *(
        f"test_quantizer_sweep.py::test_network_is_a_step_from_onnx_runtime[{case}]"
        for case in (
            "qoperator-u8i8-tensor-volume",
            "qoperator-u8i8-channels-conv",
            "qoperator-u8i8-channels-table",
            "qoperator-u8u8-channels-tanh",
            "qoperator-i8i8-channels-conv",
            "dynamic-u8i8-channels-gemm",
            "dynamic-u8i8-channels-table",
        )
    ),
]
"""Tests that failed there, and one of int8 alone."""


def emulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python, with the packages of this one, on the emulated processor."""
    program = Path(sys.executable)
    # The emulator opens the file itself; its name in arguments tells Python where its packages are.
    command = [EMULATOR, "-cpu", "max", "-0", str(program), str(program.resolve()), *arguments]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def test_comparisons_hold_where_sums_of_onnx_runtime_saturate() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("wheels of another processor are installed")
    require(None if shutil.which(EMULATOR) else f"{EMULATOR} is not in PATH: apt-get install qemu-user")
    shown = emulate("-c", SATURATING)
    assert shown.returncode == 0, shown.stderr[-1000:]
    computed, exact = map(int, shown.stdout.split())
    assert computed < exact, "this processor has VNNI"
    done = emulate("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "", *COMPARISONS)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert f"{len(COMPARISONS)} passed" in done.stdout.splitlines()[-1]
