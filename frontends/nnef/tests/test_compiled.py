"""Operations of every kind through transforms and generated C on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import WHOLE, Case, floats, load, write_model

from mace_core.deployment import Model
from mace_core.registry import Registry
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_frontend_nnef import Nnef

CASES = (
    *WHOLE,
    Case(
        "a = separable_conv(x0, planes, points, border = 'replicate');\n"
        "    b = max_pool(a, size = [1, 2, 2, 1], border = 'ignore');\n"
        "    c = multilinear_upsample(b, factor = [2, 2]);\n"
        "    d = prelu(c, slope);\n"
        "    y = local_variance_normalization(d, size = [1, 1, 3, 3], epsilon = 0.5);",
        ((1, 3, 6, 7),),
        {"planes": floats(6, 1, 3, 3), "points": floats(4, 6, 1, 1), "slope": floats(1, 4)},
    ),
    Case(
        "a = linear_quantize(x0, -1.0, 1.5, bits = 4);\n    c = gt(a, 0.25);\n    s = select(c, a, -1.0);\n"
        "    q = round(s);\n    m, v = moments(s, axes = [1]);\n    n = sub(q, m);\n    y = clamp(n, v, 2.0);",
        ((2, 3, 4),),
    ),
)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_operations_through_generated_c(tmp_path: Path) -> None:
    registry, target = Registry.load(), pytest.importorskip("mace_target_cpu").Cpu()
    graphs, inputs, right = [], {}, {}
    for number, case in enumerate(CASES):
        name = f"case{number}"
        files = write_model(tmp_path / name, case.text(), case.variables)
        graphs.append(run_phases(load(files), registry).with_name(name))
        inputs[name] = case.arrays()
        right[name] = Nnef().reference(files, Model(name, files))(inputs[name])
    actual = run_merged(target, graphs, tmp_path, inputs, levels_here(target.levels("host"))[:1])
    for name, expected in right.items():
        np.testing.assert_allclose(actual[name]["y"], expected["y"], rtol=3e-5, atol=3e-5, err_msg=name)
