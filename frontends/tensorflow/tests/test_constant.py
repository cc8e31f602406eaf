"""Operators whose results are known when the model is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_graphs import make_graph

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_frontend_tensorflow import TensorFlow


def result_of(graph: Any, folder: Path) -> Array:
    """What a graph without inputs computes."""
    file = folder / "model.pb"
    file.write_bytes(graph.SerializeToString())
    graph = TensorFlow().load((file,), Model("m", (file,)), core_ops())
    (result,) = (execute(graph, {})[name] for name in graph.outputs)
    return result


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [
        # A quotient just above an integer in double precision, and the integer itself in single precision.
        *((0, limit, 0.1) for limit in (0.3, 0.6, 0.7, 0.9, 1.1)),
        (1, 0, -0.25),
        (0, 1, 2),
        (0, 0, 1),
    ],
)
def test_a_range_has_the_numbers_of_tensorflow(
    start: float, limit: float, delta: float, tf: Any, tmp_path: Path
) -> None:
    operands = [np.array(number, np.float32) for number in (start, limit, delta)]
    actual = result_of(make_graph("Range", operands, {}), tmp_path)
    expected = tf.range(start, limit, delta, dtype=tf.float32).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_range_without_end_is_refused(tmp_path: Path) -> None:
    operands = [np.array(number, np.float32) for number in (-3e38, 3e38, 1e-3)]
    with pytest.raises(
        MaceError, match=r"it makes numbers from -3e\+38 to 3e\+38 by 0.001; export the model"
    ):
        result_of(make_graph("Range", operands, {}), tmp_path)
