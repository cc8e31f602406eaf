"""The builder of graphs: names of outputs, operands that are absent."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.run.reference import execute
from mace_core.verify import verify

X = np.float32([-1, 2])


def test_an_output_has_its_public_name_though_an_inner_tensor_bore_it() -> None:
    new = Builder("names")
    inner = new.one("Neg", [new.input("x", DType.F32, (2,))], outputs=["y"])
    graph = verify(new.finish([new.one("Relu", [inner])], ["y"]))
    assert graph.outputs == ("y",)
    assert execute(graph, {"x": X})["y"].tolist() == [1, 0]


def test_names_may_change_places() -> None:
    new = Builder("names")
    x = new.input("x", DType.F32, (2,))
    a, b = new.one("Neg", [x], outputs=["a"]), new.one("Abs", [x], outputs=["b"])
    values = execute(verify(new.finish([a, b], ["b", "a"])), {"x": X})
    assert (values["b"].tolist(), values["a"].tolist()) == ([1, -2], [1, 2])


def test_a_constant_gives_way_too() -> None:
    new = Builder("names")
    c = new.weight("y", np.float32([3, 4]))
    graph = verify(new.finish([new.one("Add", [new.input("x", DType.F32, (2,)), c])], ["y"]))
    assert execute(graph, {"x": X})["y"].tolist() == [2, 6]


def test_an_input_keeps_its_name() -> None:
    new = Builder("names")
    graph = verify(new.finish([new.one("Neg", [new.input("x", DType.F32, (2,))])], ["x"]))
    assert graph.inputs == ("x",)
    assert graph.outputs != ("x",)


@pytest.mark.parametrize(
    ("op", "operands"), [("Sub", ("x", "")), ("Concat", ("x", "")), ("Where", ("", "x", "x"))]
)
def test_an_absent_operand_is_refused_where_it_is_not_optional(op: str, operands: tuple[str, ...]) -> None:
    new = Builder("g")
    new.input("x", DType.F32, (1, 4, 4, 2))
    with pytest.raises(MaceError, match=r"g: node .*operand '\w+' \(input [01]\) is absent"):
        new.add(op, operands, {"axis": 0} if op == "Concat" else {})


def test_an_operator_that_does_not_exist_is_refused_with_the_closest_name() -> None:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2,))
    with pytest.raises(MaceError, match=r"m: there is no operator 'Softmx'; did you mean 'Softmax'\?"):
        builder.one("Softmx", [x])
    with pytest.raises(MaceError, match=r"m: there is no operator 'zzz'; docs/operators\.md lists"):
        builder.one("zzz", [x])
