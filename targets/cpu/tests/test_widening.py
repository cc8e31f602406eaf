"""The kernels that restore weights: every bit, on every level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.compact_weights import PIECE, compact_weights
from mace_core.emit import code
from mace_core.ir import Array, DType, Tensor
from mace_core.levels import Level
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Program, Weight
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu, is_x86
from mace_target_cpu.isa import GENERIC, KERNELS, X86

COPY = Kernel("copy", KERNELS / "copy.c.in", (("n", "i64"),))
LEVELS = levels_here((*X86, *GENERIC) if is_x86("host") else Cpu().levels("host"))


def weights() -> dict[str, Array]:
    """Every half but signaling NaNs, which numpy may turn quiet.

    Then few of them, and floats, among zeros, in odd sizes.
    """
    rng = np.random.default_rng(0)
    halves = np.arange(65536, dtype=np.uint16)
    signaling = (halves & 0x7FFF > 0x7C00) & (halves & 0x200 == 0)
    dense = halves[~signaling].view(np.float16).astype(np.float32)
    few = np.zeros(3 * PIECE + 77, np.float32)
    few[::3] = rng.choice(dense, few[::3].size)
    floats = np.where(rng.random(2 * PIECE + 1) < 0.2, rng.standard_normal(2 * PIECE + 1), 0).astype(
        np.float32
    )
    floats[-1] = np.uint32(0x7F812345).view(np.float32)  # a signaling NaN
    floats[PIECE] = -0.0
    return {"dense": dense, "few": few, "floats": floats, "zeros": np.zeros(PIECE, np.float32)}


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_every_bit(level: Level, tmp_path: Path) -> None:
    stored = weights()
    calls = [Call(COPY, {"n": a.nbytes}, (n,), (f"y_{n}",), node=n) for n, a in stored.items()]
    tensors = {f"y_{n}": Tensor(f"y_{n}", DType.F32, a.shape) for n, a in stored.items()}
    packed = {n: Weight.of(a) for n, a in stored.items()}
    program = Program("m", tuple(calls), tensors, packed, {}, (), tuple(tensors))
    compacted = compact_weights(program, Cpu().widening_kernels()).program
    names = [call.kernel.name for call in compacted.calls]
    assert names[::2] == ["widen_f16", "expand_sparse_f16", "expand_sparse_f32", "expand_sparse_f16"]
    sources = code.library("widen", [plan_calls(compacted)], [level])
    model = native.load(shared_library(sources, host(), tmp_path, ("-O3",)), "widen")["m"]
    for name, found in model.run({}).items():
        assert np.array_equal(found.view(np.uint32), stored[name.removeprefix("y_")].view(np.uint32)), name
