"""The list of odd shapes itself: which ops it has."""

from __future__ import annotations

from collections import Counter

import pytest
from odd_shapes import build_odd_shapes

from mace_core.ir import DType
from mace_core.ops import core_ops
from mace_core.testing.samples import sample
from mace_target_opencl.target import Opencl


@pytest.mark.slow
def test_every_op_that_the_target_takes_has_three_odd_shapes() -> None:
    target = Opencl()
    counts = Counter(node.op.name for node in build_odd_shapes().nodes)
    for name in core_ops():
        graphs = [sample(name, dtype) for dtype in (DType.F32, DType.BOOL, DType.I32, DType.I8)]
        is_taken = any(g and not any(target.refuses(node, g) for node in g.nodes) for g in graphs)
        assert not is_taken or counts[name] >= 3, name
    assert len(counts) >= 129
