"""Operators that torch's exporters write as something else, beside torch itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_cases import load, saved, torch

from mace_core.deployment import Model, Port
from mace_core.ir import DType
from mace_core.run.reference import execute


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.F32, DType.I32, DType.I64])
def test_quotients_are_rounded_down(dtype: DType, tmp_path: Path) -> None:
    t = torch()

    class Quotients(t.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x // 2, t.floor_divide(x, -3)

    numbers = np.array([-7, -6, -1, 0, 1, 6, 7, 9], dtype.numpy)
    file = saved(Quotients(), {"x": (8,)}, tmp_path / "model.traced.pt")
    graph = load(Model("case", (file,), inputs=(Port("x", (8,), dtype=dtype),)))
    values = execute(graph, {"x": numbers})
    for name, expected in zip(graph.outputs, Quotients()(t.from_numpy(numbers)), strict=True):
        assert values[name].dtype == expected.numpy().dtype
        np.testing.assert_array_equal(values[name], expected.numpy())


@pytest.mark.slow
def test_the_exporter_is_left_as_it_was(tmp_path: Path) -> None:
    t = torch()
    from torch.onnx._internal.torchscript_exporter.registration import registry

    before = registry.get_function_group("aten::floor_divide").get(17)
    file = saved(t.nn.ReLU(), {"x": (8,)}, tmp_path / "model.traced.pt")
    assert load(Model("case", (file,), inputs=(Port("input", (8,)),))).outputs
    assert registry.get_function_group("aten::floor_divide").get(17) is before
