"""Recurrent layers, each by itself, against LiteRT's plain kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_cases import (
    Case,
    check,
    expected,
    f32,
    floats,
    load,
    random,
    same,
    state,
)
from tflite_layers import (
    BATCH,
    FLOAT,
    H_SCALE,
    INTEGER,
    LSTM,
    NONE3,
    NONE4,
    ONE,
    PLAIN,
    TANH,
    TIME,
    UNITS,
    WIDTH,
    C,
    H,
    X,
    gates,
    weights,
)
from tflite_write import Scales, Step, Value, Written

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.run.reference import ReferenceSession, execute
from mace_frontend_tflite import TfLite

CASES = (*FLOAT, *INTEGER)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_a_state_can_be_carried_from_run_to_run(tmp_path: Path) -> None:
    """Cut at its states, the layer goes on where the run before has ended: two halves are the whole."""
    case = Case(
        "lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", [f32(2 * TIME, BATCH, WIDTH), *PLAIN[1:]], (LSTM, TANH)
    )
    x = case.arrays()["in0"]
    load(tmp_path, case.written())
    (wanted,) = expected(tmp_path, {"in0": x}).values()
    ports = tuple(Port(n) for n in ("in0", "in18", "in19"))
    outputs = tuple(Port(n) for n in ("out0", "in18.next", "in19.next"))
    half = Case("lstm", case.code, PLAIN, case.options).written()
    graph = load(
        tmp_path, half, model=Model("half", (tmp_path / "case.tflite",), inputs=ports, outputs=outputs)
    )
    hidden = cell = np.zeros((BATCH, UNITS), np.float32)
    actual = []
    for part in (x[:TIME], x[TIME:]):
        y, hidden, cell = (
            execute(graph, {"in0": part, "in18": hidden, "in19": cell})[n] for n in graph.outputs
        )
        actual.append(y)
    np.testing.assert_allclose(np.concatenate(actual), wanted, rtol=1e-5, atol=1e-6)


STREAMS = (
    Case("lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", PLAIN, (LSTM, TANH)),
    next(case for case in FLOAT if case.name == "lstm with norms"),
    next(case for case in FLOAT if case.name == "lstm both ways"),
    next(case for case in FLOAT if case.name == "rnn step"),
    next(case for case in FLOAT if case.name == "rnn both ways"),
    next(case for case in FLOAT if case.name == "svdf"),
    INTEGER[0],
)


@pytest.mark.slow
@pytest.mark.parametrize("case", STREAMS, ids=lambda c: c.name)
def test_states_equal_the_framework_over_60_runs_and_again_after_a_reset(case: Case, tmp_path: Path) -> None:
    model = Model("case", (tmp_path / "case.tflite",))
    graph = load(tmp_path, case.written(), model=model)
    assert graph.port_outputs == tuple(
        output.name for output in case.written().values if output.name in case.written().outputs
    )
    session = ReferenceSession(graph)
    inputs = [value for value in case.written().values if value.name in graph.port_inputs]
    for _ in range(2):
        rng = np.random.default_rng(1)
        run = TfLite().recurrent(model.files, model)
        assert run is not None
        for _ in range(60):
            x = {value.name: random(rng, value, -1, 1) for value in inputs}
            values, wanted = session.run(x), run(x)
            for made, name in zip(case.outputs, graph.port_outputs, strict=True):
                same(values[name], wanted[name], replace(case, tolerance=1e-4), made.scales is not None)
        assert all(np.ptp(values[state.output].astype(np.float64)) > 0 for state in graph.states)
        session.reset()


@pytest.mark.parametrize("case", STREAMS[:1], ids=lambda c: c.name)
def test_a_reference_begins_each_run_anew(case: Case, tmp_path: Path) -> None:
    """A recurrent one goes on from its states instead."""
    model = Model("case", (tmp_path / "case.tflite",))
    load(tmp_path, case.written())
    arrays = case.arrays()
    for make, same_again in ((TfLite().reference, True), (TfLite().recurrent, False)):
        run = make(model.files, model)
        assert run is not None
        (first, *_), (second, *_) = (list(run(arrays).values()) for _ in range(2))
        assert np.array_equal(first, second) is same_again


def test_states_that_the_application_carries_are_inputs_and_outputs(tmp_path: Path) -> None:
    case = STREAMS[0]
    graph = load(
        tmp_path,
        case.written(),
        model=Model("case", (tmp_path / "case.tflite",), keys={"states": "application"}),
    )
    assert graph.port_inputs == ("in0", "in18", "in19")
    assert graph.port_outputs == ("out0", "in18.next", "in19.next")


def test_a_state_of_integers_begins_with_its_zero_point(tmp_path: Path) -> None:
    operands = [*INTEGER[0].operands]
    scales = Scales((H_SCALE,), (-7,))
    operands[18] = state(BATCH, UNITS, scales=scales, dtype=DType.I8)
    case = replace(INTEGER[0], operands=operands, outputs=(replace(INTEGER[0].outputs[0], scales=scales),))
    graph = load(tmp_path, case.written(), model=Model("case", (tmp_path / "case.tflite",)))
    assert {state.input: np.unique(state.start).tolist() for state in graph.states} == {
        "in18": [-7],
        "in19": [0],
    }


def test_a_state_that_is_quantized_otherwise_after_a_run_is_refused(tmp_path: Path) -> None:
    operands = [*INTEGER[0].operands]
    operands[18] = state(BATCH, UNITS, scales=Scales((H_SCALE,), (-7,)), dtype=DType.I8)
    with pytest.raises(
        MaceError, match=r"state 'in18': is i8.* before a run and i8.* after it; convert the model again"
    ):
        load(
            tmp_path,
            replace(INTEGER[0], operands=operands).written(),
            model=Model("case", (tmp_path / "case.tflite",)),
        )


def test_a_state_in_the_body_of_a_loop_goes_on_from_turn_to_turn(tmp_path: Path) -> None:
    """Two turns of one step are a sequence of two steps."""
    step = ("RNNOptions", {"FusedActivationFunction": 4})
    weights = [Value.constant(name, array) for name, array in zip("wrb", ONE, strict=True)]
    body = [
        f32(BATCH, WIDTH),
        *weights,
        replace(state(BATCH, UNITS), name="h"),
        Value("y", shape=(BATCH, UNITS)),
    ]
    body[0] = replace(body[0], name="x")
    called = Written(body, [Step("RNN", ["x", "w", "r", "b", "h"], ["y"], step)], ["x"], ["y"])
    call = ("CallOptions", {"Subgraph": 1})
    names = ("first", "second", "y1", "y2")
    shapes = ((BATCH, WIDTH), (BATCH, WIDTH), (BATCH, UNITS), (BATCH, UNITS))
    values = [Value(name, shape=shape) for name, shape in zip(names, shapes, strict=True)]
    main = Written(
        values,
        [Step("CALL", ["first"], ["y1"], call), Step("CALL", ["second"], ["y2"], call)],
        names[:2],
        names[2:],
    )
    graph = load(tmp_path, main, called)
    x = {name: floats(BATCH, WIDTH, seed=i) for i, name in enumerate(names[:2])}
    hidden = np.zeros((BATCH, UNITS), np.float32)
    for name, given in zip(names[2:], x.values(), strict=True):
        hidden = np.tanh(given @ ONE[0].T + hidden @ ONE[1].T + ONE[2])
        np.testing.assert_allclose(execute(graph, x)[name], hidden, rtol=1e-5, atol=1e-6)
    session = ReferenceSession(load(tmp_path, main, called, model=Model("case", (tmp_path / "case.tflite",))))
    hidden = np.zeros((BATCH, UNITS), np.float32)
    for _ in range(5):
        values = session.run(x)
        for name, given in zip(names[2:], x.values(), strict=True):
            hidden = np.tanh(given @ ONE[0].T + hidden @ ONE[1].T + ONE[2])
            np.testing.assert_allclose(values[name], hidden, rtol=1e-5, atol=1e-6)


def test_one_step_in_its_basic_form(tmp_path: Path) -> None:
    """Of floats, it is the other kernel's cell with zeros before it."""
    values = [
        f32(BATCH, WIDTH),
        f32(BATCH, UNITS),
        floats(4 * UNITS, WIDTH + UNITS),
        floats(4 * UNITS, seed=1),
        f32(BATCH, UNITS),
    ]
    outputs = (Value(""), Value(""), Value(""), Value(""))
    check(
        Case(
            "basic", "LSTM", values, ("LSTMOptions", {"FusedActivationFunction": 4, "KernelType": 1}), outputs
        ),
        tmp_path,
    )


def test_the_basic_form_keeps_its_states(tmp_path: Path) -> None:
    operands = [f32(BATCH, WIDTH), H, floats(4 * UNITS, WIDTH + UNITS), floats(4 * UNITS, seed=1), C]
    options = ("LSTMOptions", {"FusedActivationFunction": 4, "KernelType": 1})
    case = Case("basic", "LSTM", operands, options, (Value(""),) * 4)
    model = Model("case", (tmp_path / "case.tflite",))
    graph = load(tmp_path, case.written(), model=model)
    assert {state.input: state.output for state in graph.states} == {"in1": "in1.next", "in4": "in4.next"}
    shapes = {"in0": (BATCH, WIDTH), "in1": (BATCH, UNITS), "in4": (BATCH, UNITS)}
    arrays = {name: floats(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    values = execute(graph, arrays)
    np.testing.assert_array_equal(values["in1.next"], values["out0"])
    np.testing.assert_array_equal(values["in4.next"], values["out1"])


def test_weights_of_a_gate_that_is_missing_are_told(tmp_path: Path) -> None:
    operands = [X, *NONE4, *weights(9, UNITS), *NONE3, *gates(20), None, None, H, C]
    written = Case("lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, (LSTM, TANH)).written()
    with pytest.raises(MaceError, match=r"out0.*gates are missing"):
        load(tmp_path, written)
