"""The contract that every frontend keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.testing.frontend import FrontendContract
from mace_frontend_ai8x.checkpoint.state import CheckpointState
from mace_frontend_ai8x.checkpoint.write import write_state
from mace_frontend_ai8x.frontend import Ai8x

DESCRIPTION = """
arch: small
dataset: none
layers:
  - name: {name}
    processors: 0x1
    data_format: HWC
    operation: conv2d
    kernel_size: 1x1
    pad: 0
    activate: ReLU
    out_offset: 0x1000
"""
WEIGHTS = np.array([64.0, -128.0, 127.0], np.float32)
"""Of a kernel of one position and one input channel for each of three output channels."""


class TestAi8x(FrontendContract):
    frontend = Ai8x()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "input", "y")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        """Write a description of one layer, called y; the input of every description is called `input`."""
        description, checkpoint = folder / "net.yaml", folder / "net.pth.tar"
        description.write_text(DESCRIPTION.format(name=json.dumps(y)))
        tensors = {
            "conv.op.weight": WEIGHTS.reshape(3, 1, 1, 1),
            "conv.weight_bits": np.array([8], np.float32),
        }
        write_state(CheckpointState(checkpoint, tensors, "small"), checkpoint)
        return description, checkpoint

    def _load(self, files: tuple[Path, ...]) -> Graph:
        port = Port("input", shape=(1, 1, 4, 4))
        both = (files[0], files[-1])
        return self.frontend.load(both, Model("sample", both, inputs=(port,)), core_ops())

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        sums = inputs["input"].astype(np.int64) * WEIGHTS.astype(np.int64).reshape(1, 3, 1, 1)
        return {"y": np.clip((sums + 64) >> 7, 0, 127)}
