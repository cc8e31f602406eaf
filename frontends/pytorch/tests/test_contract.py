"""The contract that every frontend keeps."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_pytorch import PyTorch
from mace_frontend_pytorch.program import silence_torch


@pytest.mark.slow
class TestPyTorch(FrontendContract):
    frontend = PyTorch()

    def sample(self, folder: Path) -> tuple[Path, ...] | None:
        if find_spec("torch") is None:
            return None
        import torch

        file = folder / "sample.pt2"
        with silence_torch():
            torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(2, 3),)), file)
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        (x,) = inputs.values()
        return {"output": np.maximum(x, 0)}
