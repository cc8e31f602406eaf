"""Shapes that no library can hold: refused with the tensor's name, before any C is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Shape
from mace_core.pipeline import load
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import compile_graphs
from mace_core.verify import verify
from mace_target_cpu import Cpu


def onnx_model(folder: Path, shape: Shape) -> Model:
    node = helper.make_node("Relu", ["x"], ["y"])
    given, made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", shape), ("y", None))
    )
    model = helper.make_model(
        helper.make_graph([node], "g", [given], [made]), opset_imports=[helper.make_opsetid("", 17)]
    )
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return Model("m", (folder / "m.onnx",))


@pytest.mark.parametrize("shape", [(2,) * 9, (1,) * 20])
def test_inputs_of_too_many_axes_are_refused(shape: Shape, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=rf"m: 'x' has {len(shape)} axes; at most 8 are supported"):
        load(onnx_model(tmp_path, shape), Registry.load())


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1])
def test_dimensions_beyond_32_bits_are_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(
        MaceError, match=r"m.*(dimensions must be below 2147483648|makes a tensor of more than)"
    ):
        load(onnx_model(tmp_path, (size,)), Registry.load())


def test_a_dimension_of_2_to_the_31_is_a_fault_of_the_graph() -> None:
    new = Builder("g")
    graph = new.finish([new.one("Relu", [new.input("x", DType.F32, (0, 1 << 31))])])
    with pytest.raises(MaceError, match=r"tensor 'x' has shape .* dimensions must be below 2147483648"):
        verify(graph)


def test_a_number_that_an_argument_cannot_hold_is_refused() -> None:
    new = Builder("g")
    program = Cpu().lower(
        new.finish([new.one("ReduceSum", [new.input("x", DType.F32, (4, 5))], {"axes": (1,)})])
    )
    (call,) = program.calls
    field, ctype = call.kernel.fields[0]
    assert ctype in ("i64", "int64_t")
    damaged = replace(program, calls=(replace(call, args={**call.args, field: 1 << 63}),))
    with pytest.raises(
        MaceError, match=rf"g: node .*takes '{field}' as a number of 64 bits, and it is 9223372036854775808"
    ):
        code.library("big", [plan_calls(damaged)], Cpu().levels("host"))


@pytest.mark.slow
def test_an_inner_tensor_may_have_nine_axes(tmp_path: Path) -> None:
    new = Builder("nine")
    x = new.input("x", DType.F32, (4, 8, 16))
    wide = new.one(
        "Transpose", [new.one("Reshape", [x], {"shape": (2,) * 9})], {"perm": (8, 1, 6, 3, 4, 5, 2, 7, 0)}
    )
    graph = new.finish([new.one("Reshape", [new.one("Exp", [wide])], {"shape": (512,)})])
    inputs = {"x": np.linspace(-1, 1, 512, dtype=np.float32).reshape(4, 8, 16)}
    actual = compile_graphs(Cpu(), [graph], tmp_path)["nine"].run(inputs)
    for name, expected in execute(graph, inputs).items():
        if name in graph.outputs:
            np.testing.assert_allclose(actual[name], expected, rtol=1e-5)
