"""fuse-quantize on graphs as exporters write them."""

from __future__ import annotations

import numpy as np

from mace_core.build import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_transform_quantize.fuse_quantize import fuse_quantize

X = Storage(DType.I8, Quant.of(0.05, 3))
Y = Storage(DType.I8, Quant.of(0.11, -9))
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def through_floats(*, reads_twice: bool = False) -> Graph:
    """Quantize, Dequantize, Conv with dequantized weights, Quantize, Dequantize."""
    rng = np.random.default_rng(0)
    new = Builder("qdq")
    x = new.add("Quantize", [new.input("x", DType.F32, (1, 5, 5, 3))], outputs=[new.stored("q", X)])[0]
    w = new.weight("w", rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8), Quant((0.01, 0.02, 0.03, 0.04), (0,) * 4, 0))
    conv = new.one("Conv", [new.one("Dequantize", [x]), new.one("Dequantize", [w])], WINDOW)
    y = new.add("Quantize", [conv], outputs=[new.stored("r", Y)])[0]
    outputs = [new.one("Dequantize", [y]), *([conv] if reads_twice else [])]
    return new.finish(outputs)


def same_numbers(before: Graph, after: Graph) -> None:
    given = {"x": np.random.default_rng(1).standard_normal((1, 5, 5, 3)).astype(np.float32)}
    expected, found = execute(before, given), execute(after, given)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)


def test_an_op_between_them_reads_and_stores_integers() -> None:
    before = through_floats()
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes] == ["Quantize", "Conv", "Dequantize"]
    conv = after.nodes[1]
    assert [t.quant is not None for t in (*after.inputs_of(conv), *after.outputs_of(conv)) if t] == [True, True, True]
    same_numbers(before, after)


def test_a_result_that_is_read_as_floats_too_stays_so() -> None:
    before = through_floats(reads_twice=True)
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes if n.op.name == "Conv"] == ["Conv"]
    same_numbers(before, after)


def test_constants_that_nothing_reads_as_integers_become_floats() -> None:
    new = Builder("weights")
    w = new.weight("w", np.arange(-6, 6, dtype=np.int8).reshape(3, 4), Quant((0.5, 1.0, 2.0), (0, 0, 0), 0))
    y = new.one("Add", [new.input("x", DType.F32, (3, 4)), new.one("Dequantize", [w])])
    before = new.finish([y])
    after = fuse_quantize(before)
    assert [n.op.name for n in after.nodes] == ["Add"]
    given = {"x": np.zeros((3, 4), np.float32)}
    np.testing.assert_array_equal(execute(after, given)[after.outputs[0]], execute(before, given)[before.outputs[0]])
