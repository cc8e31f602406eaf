"""Reductions, pools, resizes and movement of quantized tensors against the exact meaning: real numbers, rounded once."""

from __future__ import annotations

from pathlib import Path

import pytest
from quantized_graphs import I8, I16, POOL, U8, check, graph, storage

from mace_core.ir import DType

pytestmark = pytest.mark.slow


def test_reductions_pools_and_softmax(tmp_path: Path) -> None:
    image = (2, 6, 7, 11)
    graphs = [
        graph("mean", "ReduceMean", [(I8, image)], {"axes": (1, 2)}, storage(DType.I8, 0.02, -4)),
        graph(
            "sum", "ReduceSum", [(U8, image)], {"axes": (3,), "keepdims": False}, storage(DType.U8, 0.3, 90)
        ),
        graph("max", "ReduceMax", [(I8, image)], {"axes": (1, 2)}, I8),
        graph("arg", "ArgMax", [(U8, image)], {"axis": 3}, None),
        graph("average", "AveragePool", [(I8, image)], POOL, I8),
        graph("average_16", "AveragePool", [(I16, image)], POOL, I16),
        graph("mean_16", "ReduceMean", [(I16, image)], {"axes": (1, 2)}, I16),
        graph("softmax_16", "Softmax", [(I16, (5, 10))], {}, storage(DType.I16, 1 / 32768)),
        graph(
            "average_all",
            "AveragePool",
            [(U8, image)],
            {**POOL, "count_pad": True},
            storage(DType.I8, 0.05, 0),
        ),
        graph("max_pool", "MaxPool", [(I8, image)], POOL, I8),
        graph("softmax", "Softmax", [(I8, (5, 10))], {}, storage(DType.I8, 1 / 256, -128)),
        graph("softmax_inner", "Softmax", [(I8, (5, 10, 3))], {"axis": 1}, storage(DType.U8, 1 / 256)),
        graph("layer_norm", "LpNorm", [(I8, (5, 10))], {}, storage(DType.I8, 1 / 128)),
    ]
    check(graphs, tmp_path)


def test_resizes(tmp_path: Path) -> None:
    image = (2, 6, 7, 11)
    twice = {"sizes": (2, 12, 13, 11), "scales": (1.0, 2.0, 13 / 7, 1.0)}
    tall = {"sizes": (2, 9, 7, 11), "scales": (1.0, 1.5, 1.0, 1.0)}
    wider = storage(DType.I8, 0.07, -9)
    graphs = [
        graph("nearest", "Resize", [(I8, image)], {**twice, "mode": "nearest"}, I8),
        graph("linear", "Resize", [(I8, image)], {**twice, "mode": "linear"}, I8),
        graph(
            "linear_u8",
            "Resize",
            [(U8, (1, 5, 4, 1))],
            {"sizes": (1, 10, 8, 1), "scales": (1.0, 2.0, 2.0, 1.0), "mode": "linear"},
            U8,
        ),
        graph("cubic", "Resize", [(U8, image)], {**twice, "mode": "cubic"}, storage(DType.U8, 0.05, 100)),
        graph(
            "line", "Resize", [(I8, image)], {**tall, "mode": "linear", "coordinates": "align_corners"}, wider
        ),
        graph("sixteen", "Resize", [(I16, image)], {**twice, "mode": "linear"}, I16),
        graph(
            "cut",
            "Resize",
            [(I8, image)],
            {
                **twice,
                "mode": "linear",
                "coordinates": "tf_crop_and_resize",
                "extrapolation": 1.0,
                "roi": (0.0, -0.2, 0.1, 0.0, 1.0, 1.2, 0.9, 1.0),
            },
            I8,
        ),
    ]
    kernels = check(graphs, tmp_path)
    assert all("quantize_" not in name for name in kernels.values()), kernels


def test_movement(tmp_path: Path) -> None:
    shape = (2, 3, 4)
    other = storage(DType.I8, 0.1, -7)
    graphs = [
        graph("pad", "Pad", [(U8, shape)], {"before": (0, 1, 2), "after": (1, 0, 1)}, U8),
        graph("concat", "Concat", [(I8, shape), (other, shape)], {"axis": 1}, I8),
        graph("concat_same", "Concat", [(I8, shape), (I8, shape)], {"axis": 1}, I8),
        graph("transpose", "Transpose", [(I8, shape)], {"perm": (2, 0, 1)}, I8),
        graph(
            "slice", "Slice", [(I8, shape)], {"starts": (0, 1, 0), "sizes": (2, 2, 2), "steps": (1, 1, 2)}, I8
        ),
    ]
    check(graphs, tmp_path)
