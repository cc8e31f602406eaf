"""Operators that only TensorFlow's own optimizer writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Frozen, floats

from mace_core.errors import MaceError
from mace_core.run.reference import execute
from mace_frontend_tensorflow.messages import GraphDef

FLOAT = 1
STATISTICS = (floats(4), floats(4, seed=1), floats(4, seed=2), np.abs(floats(4, seed=3)) + np.float32(0.5))


def fused(
    folder: Path,
    op: str,
    shape: tuple[int, ...],
    *constants: Any,
    steps: tuple[bytes, ...],
    **lists: list[int],
) -> Frozen:
    """A graph of one operator with its steps."""
    graph = GraphDef()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = FLOAT
    for size in shape:
        x.attr["shape"].shape.dim.add(size=size)
    for i, array in enumerate(constants):
        constant = graph.node.add(name=f"c{i}", op="Const")
        constant.attr["dtype"].type = constant.attr["value"].tensor.dtype = FLOAT
        constant.attr["value"].tensor.tensor_content = array.tobytes()
        for size in array.shape:
            constant.attr["value"].tensor.tensor_shape.dim.add(size=size)
    node = graph.node.add(name="y", op=op, input=["x", *(f"c{i}" for i in range(len(constants)))])
    node.attr["T"].type = FLOAT
    node.attr["num_args"].i = len(constants) - 1
    node.attr["fused_ops"].list.s.extend(steps)
    node.attr["epsilon"].f = 0.01
    if lists:
        node.attr["padding"].s = b"SAME"
        node.attr["TArgs"].list.type.extend([FLOAT] * (len(constants) - 1))
    for key, values in lists.items():
        node.attr[key].list.i.extend(values)
    file = folder / "fused.pb"
    file.write_bytes(graph.SerializeToString())
    return Frozen(file, ["y"], "fused")


@pytest.mark.parametrize(
    "steps", [(), (b"Relu",), (b"Relu6",), (b"Elu",), (b"LeakyRelu",), (b"Tanh",), (b"Sigmoid",)]
)
def test_a_product_of_matrices(steps: tuple[bytes, ...], tmp_path: Path, tf: Any) -> None:
    agree(
        fused(tmp_path, "_FusedMatMul", (3, 5), floats(5, 4), floats(4), steps=(b"BiasAdd", *steps)), (3, 5)
    )


def test_a_convolution(tmp_path: Path, tf: Any) -> None:
    shape = (1, 6, 6, 3)
    agree(
        fused(
            tmp_path,
            "_FusedConv2D",
            shape,
            floats(3, 3, 3, 4),
            floats(4),
            steps=(b"BiasAdd", b"Relu"),
            strides=[1, 2, 2, 1],
        ),
        shape,
    )
    normal = fused(
        tmp_path,
        "_FusedConv2D",
        shape,
        floats(3, 3, 3, 4),
        *STATISTICS,
        steps=(b"FusedBatchNorm", b"Relu6"),
        strides=[1] * 4,
    )
    agree(normal, shape)


def agree(frozen: Frozen, shape: tuple[int, ...]) -> None:
    x = {"x": floats(*shape, seed=4)}
    np.testing.assert_allclose(execute(frozen.graph(), x)["y"], frozen.expected(x)["y"], rtol=4e-6, atol=4e-6)


def test_an_unknown_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        MaceError,
        match=r"step 'Swirl' of an operator of TensorFlow's optimizer; freeze the model without optimizing it",
    ):
        fused(tmp_path, "_FusedMatMul", (3, 5), floats(5, 4), floats(4), steps=(b"Swirl",)).graph()
    with pytest.raises(MaceError, match=r"no operand for its step 'BiasAdd'"):
        fused(tmp_path, "_FusedMatMul", (3, 5), floats(5, 4), steps=(b"BiasAdd",)).graph()
