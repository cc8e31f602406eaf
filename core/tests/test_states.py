"""States: what a graph says of them, who keeps them, and that every stage before code hands them on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.deployment.objects import Preparation
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.io_spec import apply_io_spec
from mace_core.ir import Array, DType, Graph, Quant, State, Storage
from mace_core.registry import Registry
from mace_core.rewrite import rewrite
from mace_core.run.reference import ReferenceSession, execute
from mace_core.states import add_pairs, assign_states, is_reset, paired_states, read_starts, start_files
from mace_core.transforms import run_phases
from mace_core.verify import verify


def accumulator(start: float = 0.0) -> Graph:
    """y = total + x, and total becomes y."""
    new = Builder("accumulator")
    x = new.input("x", DType.F32, (2,))
    total = new.state("total", np.full(2, start, np.float32))
    (y,) = new.add("Add", [total, x], outputs=["y"])
    new.set_next(total, y)
    return verify(new.finish([y]))


def picture_filter() -> Graph:
    """A moving average over pictures in a framework of channels first: y = 0.5 * mean + x, mean becomes y."""
    new = Builder("filter")
    x = new.input("x", DType.F32, (1, 2, 3, 4))
    mean = new.state("mean", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    half = new.weight("half", np.float32(0.5).reshape(()))
    (y,) = new.add("Add", [new.one("Mul", [mean, half]), x], outputs=["y"])
    new.set_next(mean, y)
    return verify(new.finish([y]))


def model(inputs: tuple[Port, ...] = (), outputs: tuple[Port, ...] = (), **keys: object) -> Model:
    return Model("m", (Path("m.bin"),), inputs=inputs, outputs=outputs, keys=keys)


def ones(count: int = 2) -> dict[str, Array]:
    return {"x": np.ones(count, np.float32)}


def test_a_session_keeps_states_until_it_is_reset() -> None:
    session = ReferenceSession(accumulator(5.0))
    assert [session.run(ones())["y"][0] for _ in range(3)] == [6, 7, 8]
    session.reset()
    assert session.run(ones())["y"][0] == 6
    assert execute(session.graph, ones())["y"][0] == 6


def test_the_next_value_of_a_state_is_an_output_behind_the_others() -> None:
    graph = accumulator()
    assert (graph.inputs, graph.outputs) == (("x", "total"), ("y", "total.next"))
    assert (graph.port_inputs, graph.port_outputs) == (("x",), ("y",))
    assert str(graph.states[0]) == "total:f32[2], at first 0.0"


def test_a_state_that_nothing_changes_is_a_constant() -> None:
    new = Builder("gain")
    x, gain = new.input("x", DType.F32, (2,)), new.state("gain", np.full(2, 3, np.float32))
    graph = verify(new.finish(new.add("Mul", [x, gain], outputs=["y"])))
    assert not graph.states
    assert graph.inputs == ("x",)
    assert execute(graph, ones())["y"].tolist() == [3, 3]


def test_a_state_that_no_output_depends_on_disappears_and_one_that_others_need_stays() -> None:
    new = Builder("chain")
    x = new.input("x", DType.F32, (2,))
    unread, first, second = (
        new.state(name, np.zeros(2, np.float32)) for name in ("unread", "first", "second")
    )
    new.set_next(unread, new.one("Add", [unread, x]))
    new.set_next(first, new.one("Add", [first, x]))
    new.set_next(second, first)
    graph = verify(new.finish(new.add("Relu", [second], outputs=["y"])))
    assert {state.input for state in graph.states} == {"first", "second"}
    session = ReferenceSession(graph)
    assert [session.run(ones())["y"][0] for _ in range(4)] == [0, 0, 1, 2]


def test_a_model_with_an_output_of_the_same_name_keeps_it() -> None:
    new = Builder("clash")
    x, h = new.input("x", DType.F32, (2,)), new.state("h", np.zeros(2, np.float32))
    doubled = new.add("Add", [h, h], outputs=["h.next"])[0]
    new.set_next(h, x)
    graph = verify(new.finish([doubled]))
    assert graph.port_outputs == ("h.next",)
    session = ReferenceSession(graph)
    assert [session.run(ones())["h.next"][0] for _ in range(2)] == [0, 2]


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (State("y", "y", np.zeros(2, np.float32)), "state 'y' is no input of the graph"),
        (State("x", "x", np.zeros(2, np.float32)), "state 'x' is no output of the graph"),
        (State("total", "y", np.zeros(2, np.float32)), "input 'total' is a state and something else"),
        (State("x", "z", np.zeros(2, np.float32)), r"state x:f32\[2\] is z:i32\[2\] after the run"),
        (State("x", "y", np.zeros(3, np.float32)), r"state x:f32\[2\] begins with float32\[3\]"),
        (State("x", "y", np.zeros(2, np.int32)), r"state x:f32\[2\] begins with int32\[2\]"),
    ],
)
def test_states_that_cannot_be_handed_on_are_faults(state: State, problem: str) -> None:
    graph = accumulator()
    new = Builder("g")
    new.inputs, new.tensors = list(graph.inputs), {name: graph.tensors[name] for name in graph.inputs}
    new.states = list(graph.states)
    outputs = [*new.add("Add", ["total", "x"], outputs=["y"]), new.one("Cast", ["x"], {"to": "i32"})]
    built = new.finish([*outputs, new.one("Relu", ["x"])], ["y", "z", "total.next"])
    with pytest.raises(MaceError, match=problem):
        verify(replace(built, states=(*built.states, state)))


def test_a_state_of_other_quantization_after_the_run_is_a_fault() -> None:
    new = Builder("g")
    h = new.input("h", DType.I8, (2,), Quant.of(0.5, 3))
    new.states = [State(h, "n", np.full(2, 3, np.int8))]
    other = Quant.of(0.25, 3)
    wide = new.one("Dequantize", [h])
    from mace_core.ir import Storage

    graph = new.finish(
        new.add("Quantize", [wide], outputs=[new.reserve_output("n", Storage(DType.I8, other))])
    )
    with pytest.raises(MaceError, match="must stay the same"):
        verify(graph)


def test_rewriting_and_the_shared_transforms_keep_states() -> None:
    for graph in (accumulator(2.0), picture_filter()):
        for after in (rewrite(graph, lambda _: None), run_phases(graph, Registry.load())):
            assert after.states == graph.states
            inputs = {
                "x": np.random.default_rng(0).standard_normal(graph.tensors["x"].shape).astype(np.float32)
            }
            one, two = ReferenceSession(graph), ReferenceSession(after)
            for _ in range(3):
                np.testing.assert_allclose(one.run(inputs)["y"], two.run(inputs)["y"], rtol=1e-6)


def test_axes_and_start_values_of_states_are_turned_as_the_input_says() -> None:
    graph = picture_filter()
    ports = (Port("x", order="NHWC"), Port("mean", order="NHWC", alias="average"))
    stated = verify(apply_io_spec(graph, model(ports, (Port("y", order="NHWC"),)), "NCHW"))
    (state,) = stated.states
    assert (state.input, state.output, state.start.shape) == ("average", "mean.next", (1, 3, 4, 2))
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    own, turned = ReferenceSession(graph), ReferenceSession(stated)
    for _ in range(3):
        expected = own.run({"x": x})["y"]
        actual = turned.run({"x": x.transpose(0, 2, 3, 1)})["y"]
        np.testing.assert_array_equal(actual.transpose(0, 3, 1, 2), expected)


def test_a_state_keeps_the_type_of_the_framework_whatever_the_application_gives() -> None:
    stated = apply_io_spec(
        accumulator(), model((Port("x", dtype=DType.F64), Port("total", dtype=DType.F64))), "NHWC"
    )
    assert stated.tensors["x"].dtype is DType.F64
    assert stated.tensors["total"].dtype is DType.F32
    assert verify(stated).states


def paired() -> Graph:
    """y = x + h as an application would carry it: input h, output hn."""
    new = Builder("paired")
    h, x = new.input("h", DType.F32, (2,)), new.input("x", DType.F32, (2,))
    y, other = new.add("Add", [h, x], outputs=["hn"])[0], new.add("Relu", [x], outputs=["other"])[0]
    return verify(new.finish([y, other, new.one("Concat", [h, x], {"axis": 0}, outputs=["long"])]))


def test_pairs_of_the_deployment_file_become_states() -> None:
    graph = add_pairs(paired(), model(states={"h": "hn"}), {})
    assert graph.port_inputs == ("x",)
    assert graph.port_outputs == ("other", "long")
    assert graph.states[0].start.tolist() == [0, 0]
    started = add_pairs(paired(), model(states={"h": "hn"}), {"h": np.array(4.0)})
    assert started.states[0].start.tolist() == [4, 4]
    assert assign_states(graph, model((Port("x"), Port("h")), (Port("hn"),), states={"h": "hn"})).states


@pytest.mark.parametrize(
    ("pairs", "port", "problem"),
    [
        ({"g": "hn"}, Port("x"), "'g' is no input of the model; name one of h, x"),
        ({"h": "gn"}, Port("x"), "'gn' is no output of the model; name one of hn, other, long"),
        ({"h": "long"}, Port("x"), r"h:f32\[2\] cannot become long:f32\[4\]"),
        ({"h": "hn"}, Port("h", data=("h.npy",)), "validation_inputs_data has files for it"),
    ],
)
def test_pairs_that_are_no_states_are_refused(pairs: dict[str, str], port: Port, problem: str) -> None:
    with pytest.raises(MaceError, match=problem):
        add_pairs(paired(), model((port,), states=pairs), {})


def test_the_application_carries_states_if_the_deployment_file_says_so() -> None:
    graph = assign_states(accumulator(), model(states="application"))
    assert not graph.states
    assert (graph.port_inputs, graph.port_outputs) == (("x", "total"), ("y", "total.next"))


def test_the_application_carries_those_states_that_the_deployment_file_names() -> None:
    named = assign_states(accumulator(), model((Port("x"), Port("total")), (Port("y"), Port("total.next"))))
    assert not named.states
    assert named.outputs == ("y", "total.next")
    unread = assign_states(accumulator(), model((Port("x"), Port("total"))))
    assert unread.inputs == ("x", "total")
    assert unread.outputs == ("y",)


def test_a_next_value_that_the_session_keeps_is_no_output() -> None:
    with pytest.raises(
        MaceError,
        match=r"output 'total.next' is the next value of state 'total', which the session keeps; add 'total' to input_tensors",
    ):
        assign_states(accumulator(), model((), (Port("y"), Port("total.next"))))


def test_states_that_are_reset_are_constants() -> None:
    graph = verify(assign_states(accumulator(3.0), model(states="reset")))
    assert (graph.inputs, graph.outputs, graph.states) == (("x",), ("y",), ())
    assert [execute(graph, ones())["y"][0] for _ in range(2)] == [4, 4]
    shown = verify(
        assign_states(accumulator(3.0), model((), (Port("y"), Port("total.next")), states="reset"))
    )
    assert execute(shown, ones())["total.next"][0] == 4


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([1, 2], np.float32), None),
        (
            np.array([1, 2], np.float64),
            r"holds float64 \[2\], and the state is h:f32\[2\]; save the value before the first run",
        ),
        (np.array([1, 2, 3], np.float32), r"holds float32 \[3\], and the state is h:f32\[2\]"),
        (b"damaged", r"cannot be read as an array: .*; write it with numpy.save"),
        (None, r"cannot be read as an array: .*; write it with numpy.save"),
        ("several", r"holds several arrays, and the state is h:f32\[2\]"),
    ],
)
def test_start_values_of_files(tmp_path: Path, array: object, said: str | None) -> None:
    file = tmp_path / "h.npy"
    if isinstance(array, np.ndarray):
        np.save(file, array)
    elif isinstance(array, bytes):
        file.write_bytes(array)
    elif array:
        np.savez(tmp_path / "h.npz", a=np.zeros(1), b=np.zeros(1))
        (tmp_path / "h.npz").rename(file)
    described = model(states={"h": "hn"}, state_starts={"h": str(file), "unknown": str(file)})
    assert start_files(described) == {"h": file, "unknown": file}
    if said:
        with pytest.raises(MaceError, match=said):
            read_starts(paired(), described)
    else:
        starts = read_starts(paired(), described)
        assert {name: value.tolist() for name, value in starts.items()} == {"h": [1, 2]}
    assert (start_files(model()), paired_states(model(states="reset")), paired_states(described)) == (
        {},
        {},
        {"h": "hn"},
    )
    assert (is_reset(model(states="reset")), is_reset(described), is_reset(model())) == (True, False, False)


def test_a_state_that_is_stored_begins_with_its_zero_point_and_is_prepared_by_nothing() -> None:
    new = Builder("m")
    h = new.input("h", DType.I8, (2,), Quant.of(0.5, 7))
    new.storages["hn"] = Storage(DType.I8, Quant.of(0.5, 7))
    graph = new.finish([new.one("Relu", [h], outputs=["hn"])])
    assert add_pairs(graph, model(states={"h": "hn"}), {}).states[0].start.tolist() == [7, 7]
    port = Port("h", preparation=Preparation(mean=(1.0,)))
    with pytest.raises(
        MaceError,
        match="'h' is kept by the session, which prepares nothing; remove its input_mean, input_scale, input_std",
    ):
        add_pairs(graph, model((port,), states={"h": "hn"}), {})
    other = Builder("m")
    other.input("h", DType.I8, (2,), Quant.of(0.25, 7))
    other.storages["hn"] = Storage(DType.I8, Quant.of(0.5, 7))
    with pytest.raises(MaceError, match=r"h:.* cannot become hn:"):
        add_pairs(other.finish([other.one("Relu", ["h"], outputs=["hn"])]), model(states={"h": "hn"}), {})


def test_a_reset_state_may_show_its_next_value() -> None:
    shown = assign_states(accumulator(5.0), model((), (Port("y"), Port("total.next")), states="reset"))
    assert (shown.inputs, shown.outputs, shown.states) == (("x",), ("y", "total.next"), ())
    assert [execute(shown, ones())[name].tolist() for name in shown.outputs] == [[6, 6], [6, 6]]
