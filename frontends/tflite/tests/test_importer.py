"""What is kept while a model is read: names, states and constants without data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tflite_cases import load
from tflite_write import Scales, Step, Value, Written

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.importer import RefusedError
from mace_core.ir import DType, Quant, Shape
from mace_core.ops import core_ops
from mace_frontend_tflite import importer
from mace_frontend_tflite.importer import MAX_STATE_ELEMENTS, TfliteImporter, first_value
from mace_frontend_tflite.source import TensorInfo

STATE = TensorInfo(3, "s", (4,), (), DType.F32, "FLOAT32", 0, None, variable=True, sparsity=None)


def reader(array: np.ndarray | None = None) -> TfliteImporter:
    """An importer of a file whose constants are all this one."""
    source = SimpleNamespace(file=Path("m.tflite"), array=lambda _: array)
    return TfliteImporter(source, Builder("m", core_ops()), lambda _: ())  # type: ignore[arg-type]


def test_names_are_numbered_from_their_second_use_on() -> None:
    names = reader()
    assert [names.stem(name) for name in ("a", "a", "b", "a", "b", "a.1")] == [
        "a",
        "a.1",
        "b",
        "a.2",
        "b.1",
        "a.1",
    ]


@pytest.mark.parametrize(
    ("quant", "dtype", "value"),
    [(None, DType.F32, 0), (Quant.of(0.5, -7), DType.I8, -7), (None, DType.I32, 0)],
)
def test_a_state_begins_with_what_stands_for_0(quant: Quant | None, dtype: DType, value: int) -> None:
    array = first_value(replace(STATE, quant=quant, dtype=dtype), (2, 3))
    assert (array.shape, array.dtype) == ((2, 3), dtype.numpy)
    assert (array == value).all()


@pytest.mark.parametrize(
    ("shape", "variable", "fits"),
    [
        ((8,), True, True),
        ((9,), True, False),
        ((0, 5), False, True),
        ((8,), False, False),
        ((), False, False),
    ],
)
def test_what_the_file_does_not_hold(
    shape: Shape, variable: bool, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state is zeros up to a size; anything else without data must be empty."""
    monkeypatch.setattr(importer, "MAX_STATE_ELEMENTS", 8)
    info = replace(STATE, shape=shape, variable=variable)
    if fits:
        array, quant = reader()._constant(info)
        assert (array.shape, quant) == (shape, None)
        return
    problem = "'s' has a shape of" if variable else "it reads 's', which the file neither holds nor computes"
    with pytest.raises(RefusedError, match=problem):
        reader()._constant(info)


def test_the_limit_of_a_state() -> None:
    with pytest.raises(RefusedError, match=r"'s' has a shape of \[67108865\]"):
        reader()._constant(replace(STATE, shape=(MAX_STATE_ELEMENTS + 1,)))


def test_a_state_with_a_value_in_the_file_is_refused() -> None:
    with pytest.raises(RefusedError, match="it reads state 's', to which the file gives a value; convert"):
        reader(np.zeros(4, np.float32))._constant(STATE)


@pytest.mark.parametrize(("dtype", "kept"), [(np.int8, True), (np.int64, False)])
def test_integers_of_64_bits_have_no_scale(dtype: type, kept: bool) -> None:
    info = replace(STATE, variable=False, quant=Quant.of(0.5, 3))
    assert reader(np.zeros(4, dtype))._constant(info)[1] == (info.quant if kept else None)


def relu(shape: Shape, signature: Shape = ()) -> Written:
    x = Value("x", shape=shape, signature=signature)
    return Written([x, Value("y", shape=shape)], [Step("RELU", ["x"], ["y"])], ["x"], ["y"])


@pytest.mark.parametrize(
    ("shape", "signature", "stated", "found"),
    [
        ((1, 3), (-1, 3), None, (1, 3)),
        ((2, 3), (-1, 3), None, (2, 3)),
        ((4, 7), (-1, -1), None, (4, 7)),
        ((1, 3), (-1, 3), (5, 3), (5, 3)),
        ((1, 0), (-1, 0), (5, 0), (5, 0)),
        ((), (), (5, 2), (5, 2)),
        ((2, 3), (), (2, 3), (2, 3)),
    ],
)
def test_shape_of_an_input(
    shape: Shape, signature: Shape, stated: Shape | None, found: Shape, tmp_path: Path
) -> None:
    file = tmp_path / "case.tflite"
    ports = (Port("x", shape=stated),) if stated else ()
    graph = load(tmp_path, relu(shape, signature), model=Model("case", (file,), inputs=ports))
    assert graph.tensors["x"].shape == found


@pytest.mark.parametrize(
    ("shape", "signature", "stated", "message"),
    [
        ((1, 1), (-1, -1), None, "'x' leaves dimension 1 open"),
        ((2, 3), (), (2, 4), r"has shape \[2,3\] in the model, \[2, 4\] in the deployment file"),
        ((1, 0), (-1, 0), (5, 2), r"has shape \[\?,0\] in the model, \[5, 2\] in the deployment file"),
    ],
)
def test_shape_of_an_input_that_is_refused(
    shape: Shape, signature: Shape, stated: Shape | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "case.tflite"
    ports = (Port("x", shape=stated),) if stated else ()
    with pytest.raises(MaceError, match=message):
        load(tmp_path, relu(shape, signature), model=Model("case", (file,), inputs=ports))


def test_an_input_of_a_type_that_the_ir_has_not(tmp_path: Path) -> None:
    import tflite

    written = relu((2,))
    written = replace(
        written, values=[replace(written.values[0], kind=tflite.TensorType.STRING), written.values[1]]
    )
    with pytest.raises(
        MaceError, match="input 'x' is of type STRING; cut the graph behind it: name inner tensors"
    ):
        load(tmp_path, written)


def test_equal_constants_are_one(tmp_path: Path) -> None:
    """Of one buffer, shape and scale; another scale makes another constant."""
    array = np.int8([[1, 2]])
    values = [
        Value("x", shape=(1, 2)),
        Value.constant("a", array, Scales((0.5,), (0,))),
        Value.constant("b", array, Scales((0.25,), (0,))),
        *(Value(name, shape=(1, 2)) for name in ("af", "bf", "m", "y")),
    ]
    steps = [
        Step("DEQUANTIZE", ["a"], ["af"]),
        Step("DEQUANTIZE", ["b"], ["bf"]),
        Step("ADD", ["x", "af"], ["m"], ("AddOptions", {})),
        Step("ADD", ["m", "bf"], ["y"], ("AddOptions", {})),
    ]
    graph = load(tmp_path, Written(values, steps, ["x"], ["y"]))
    stored = [graph.tensors[name].quant for name in graph.weights if graph.weights[name].dtype == np.int8]
    assert sorted(quant.scale[0] for quant in stored if quant) in ([0.25, 0.5], [])
