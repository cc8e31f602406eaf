"""Inputs and outputs as a deployment file states them: order of axes, type, name, preparation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.deployment.objects import Preparation
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.io_spec import apply_io_spec, entry_graph, exit_graph, in_framework_layout, turn_axes
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.verify import verify

IMAGE = np.arange(24, dtype=np.float32).reshape(1, 2, 4, 3)
"""One picture of 2 x 4 pixels, channels last."""


def identity(dtype: DType = DType.F32, quant: Quant | None = None) -> Graph:
    """A framework's graph whose output y is its input x."""
    new = Builder("g")
    return new.finish(
        [
            new.one(
                "Reshape", [new.input("x", dtype, IMAGE.shape, quant)], {"shape": IMAGE.shape}, outputs=["y"]
            )
        ]
    )


def model(*inputs: Port, outputs: tuple[Port, ...] = ()) -> Model:
    return Model("m", (Path("m.onnx"),), inputs=inputs, outputs=outputs)


def run(graph: Graph, array: Array) -> Array:
    (name,) = graph.inputs
    return execute(verify(graph), {name: array})[graph.outputs[0]]


def test_nothing_is_added_where_nothing_is_stated() -> None:
    graph = identity()
    assert apply_io_spec(graph, model(), "NHWC") is graph
    assert (
        apply_io_spec(graph, model(Port("x", order="NHWC", dtype=DType.F32), outputs=(Port("y"),)), "NHWC")
        is graph
    )


@pytest.mark.parametrize(
    ("framework", "stated", "perm"), [("NHWC", "NCHW", (0, 3, 1, 2)), ("NCHW", "NHWC", (0, 2, 3, 1))]
)
def test_axes_are_turned_at_both_ends(framework: str, stated: str, perm: tuple[int, ...]) -> None:
    expected = model(Port("x", order=stated), outputs=(Port("y", order=stated),))
    graph = apply_io_spec(identity(), expected, framework)
    inputs = np.transpose(IMAGE, perm)
    assert graph.tensors[graph.inputs[0]].shape == inputs.shape
    np.testing.assert_array_equal(run(graph, inputs), inputs)


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
@pytest.mark.parametrize("framework", ["NHWC", "NCHW"])
def test_shapes_go_to_the_framework_and_back(order: str, framework: str) -> None:
    stated = Port("x", (1, 2, 3, 4), order=order)
    (port,) = in_framework_layout(model(stated), framework).inputs
    assert port.shape is not None
    assert turn_axes(np.zeros(port.shape), stated, framework).shape == stated.shape
    assert (port.shape == stated.shape) is (order == framework)


def test_other_ranks_and_orders_are_not_turned() -> None:
    assert in_framework_layout(model(Port("x", (2, 3), order="NCHW")), "NHWC").inputs[0].shape == (2, 3)
    assert in_framework_layout(model(Port("x", (1, 2, 3, 4), order="NONE")), "NCHW").inputs[0].shape == (
        1,
        2,
        3,
        4,
    )
    np.testing.assert_array_equal(turn_axes(IMAGE, None, "NHWC"), IMAGE)


def test_types_are_converted_and_names_given() -> None:
    expected = model(
        Port("x", dtype=DType.U8, alias="pixels"), outputs=(Port("y", dtype=DType.I32, alias="numbers"),)
    )
    graph = apply_io_spec(identity(), expected, "NHWC")
    assert (graph.inputs, graph.outputs) == (("pixels",), ("numbers",))
    actual = run(graph, IMAGE.astype(np.uint8))
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, IMAGE)


def test_a_quantized_model_takes_and_gives_numbers_where_floats_are_stated() -> None:
    quant = Quant.of(0.5, 3)
    expected = model(Port("x", dtype=DType.F32), outputs=(Port("y", dtype=DType.F32),))
    graph = apply_io_spec(identity(DType.I8, quant), expected, "NHWC")
    np.testing.assert_array_equal(run(graph, IMAGE * 0.5), IMAGE * 0.5)
    assert not any(graph.tensors[name].quant for name in (*graph.inputs, *graph.outputs))
    kept = apply_io_spec(identity(DType.I8, quant), model(Port("x", alias="z")), "NHWC")
    assert kept.tensors["z"].storage == Storage(DType.I8, quant)


@pytest.mark.parametrize(
    ("prepared", "expected"),
    [
        (Preparation(mean=(1.0,)), IMAGE - 1),
        (Preparation(mean=(1.0, 2.0, 3.0), scale=(2.0,)), (IMAGE - [1, 2, 3]) * 2),
        (Preparation(std=(2.0, 4.0, 8.0)), IMAGE / [2, 4, 8]),
        (Preparation(reverse=True), IMAGE[..., ::-1]),
        (Preparation(mean=(1.0, 2.0, 3.0), reverse=True), IMAGE[..., ::-1] - [1, 2, 3]),
    ],
)
def test_preparation(prepared: Preparation, expected: Array) -> None:
    """Means are those of the model's channels: with `reverse` the application gives them in the other order."""
    graph = apply_io_spec(identity(), model(Port("x", preparation=prepared)), "NHWC")
    np.testing.assert_allclose(run(graph, IMAGE), expected, rtol=1e-6)


def test_channels_come_first_where_the_application_has_them_first() -> None:
    port = Port("x", order="NCHW", preparation=Preparation(mean=(1.0, 2.0, 3.0)))
    graph = apply_io_spec(identity(), model(port), "NHWC")
    np.testing.assert_allclose(run(graph, IMAGE.transpose(0, 3, 1, 2)), IMAGE - [1, 2, 3])


@pytest.mark.parametrize(
    ("prepared", "order", "said"),
    [
        (Preparation(mean=(1.0, 2.0)), "NHWC", "input_mean has 2 numbers for 3 channels"),
        (Preparation(reverse=True), "NCHW", "input_color reverses 3 channels, it has 2"),
    ],
)
def test_preparations_that_fit_no_channels_are_refused(prepared: Preparation, order: str, said: str) -> None:
    with pytest.raises(MaceError, match=f"input 'x': {said}"):
        apply_io_spec(identity(), model(Port("x", order=order, preparation=prepared)), order)


def test_the_entry_and_the_exit_alone_do_what_the_whole_does() -> None:
    expected = model(Port("x", order="NCHW", alias="in"), outputs=(Port("y", order="NCHW", alias="out"),))
    graph = identity()
    inputs = IMAGE.transpose(0, 3, 1, 2)
    inner = run(entry_graph(graph, expected, "NHWC"), inputs)
    np.testing.assert_array_equal(inner, IMAGE)
    np.testing.assert_array_equal(run(exit_graph(graph, expected, "NHWC"), inner), inputs)


@pytest.mark.parametrize(
    ("stated", "order", "said"),
    [
        ((1, 2, 4, 3), "NHWC", None), ((1, 3, 2, 4), "NCHW", None), (None, "NCHW", None), ((1, 2, 4, 3), None, None),
        ((1, 2, 4, 4), "NHWC", r"output 'y': output_shapes states \[1, 2, 4, 4\], the model gives \[1, 2, 4, 3\]; correct"),
        ((1, 2, 4, 3), "NCHW", r"output 'y': output_shapes states \[1, 2, 4, 3\], the model gives \[1, 3, 2, 4\]"),
    ],
)  # fmt: skip
def test_stated_shapes_of_outputs_are_the_models(
    stated: tuple[int, ...] | None, order: str | None, said: str | None
) -> None:
    described = model(outputs=(Port("y", stated, order=order),))
    if said is None:
        apply_io_spec(identity(), described, "NHWC")
    else:
        with pytest.raises(MaceError, match=said):
            apply_io_spec(identity(), described, "NHWC")


@pytest.mark.parametrize(
    ("dtype", "ops"),
    [
        (DType.F32, ["Quantize"]), (DType.F64, ["Cast", "Quantize"]), (DType.U8, ["Cast", "Quantize"]), (None, []), (DType.I8, []),
    ],
)  # fmt: skip
def test_inputs_of_a_quantized_model_are_converted_to_its_integers(
    dtype: DType | None, ops: list[str]
) -> None:
    quant = Quant.of(0.5, 3)
    graph = apply_io_spec(identity(DType.I8, quant), model(Port("x", dtype=dtype)), "NHWC")
    assert [node.op.name for node in graph.nodes] == [*ops, "Reshape"]
    (name,) = graph.inputs
    tensor = graph.tensors[name]
    assert (tensor.dtype, tensor.quant) == (dtype or DType.I8, quant if dtype in (None, DType.I8) else None)


@pytest.mark.parametrize(
    ("dtype", "ops"), [(DType.F32, ["Dequantize"]), (DType.F64, ["Dequantize", "Cast"]), (DType.I8, [])]
)
def test_outputs_of_a_quantized_model_become_numbers(dtype: DType, ops: list[str]) -> None:
    graph = apply_io_spec(
        identity(DType.I8, Quant.of(0.5, 3)), model(outputs=(Port("y", dtype=dtype),)), "NHWC"
    )
    assert [node.op.name for node in graph.nodes] == ["Reshape", *ops]
    assert graph.outputs == ("y",)


def test_scalars_have_no_channels() -> None:
    new = Builder("g")
    graph = new.finish([new.one("Relu", [new.input("x", DType.F32, ())], outputs=["y"])])
    one = apply_io_spec(graph, model(Port("x", preparation=Preparation(mean=(2.0,), scale=(3.0,)))), "NHWC")
    assert run(one, np.float32(5).reshape(())) == 9
    with pytest.raises(
        MaceError, match=r"input 'x': input_mean is for channels, and its shape is \[\]; remove input_mean"
    ):
        apply_io_spec(graph, model(Port("x", preparation=Preparation(mean=(2.0, 3.0)))), "NHWC")
    with pytest.raises(
        MaceError, match=r"input 'x': input_color is for channels, and its shape is \[\]; remove input_color"
    ):
        apply_io_spec(graph, model(Port("x", preparation=Preparation(reverse=True))), "NHWC")


def test_a_named_input_of_integers_stays_what_it_is() -> None:
    graph = apply_io_spec(identity(DType.U8), model(Port("x", alias="image")), "NHWC")
    assert (graph.inputs, [node.op.name for node in graph.nodes]) == (("image",), ["Reshape"])
    assert graph.tensors["image"].dtype is DType.U8
