"""Recurrent layers that the IR does not represent, on both sides of each limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tflite_cases import Case, Operand, f32, load, state
from tflite_layers import (
    BATCH,
    BOTH,
    FLOAT,
    INTEGER,
    LSTM,
    ONE,
    PLAIN,
    TANH,
    UNITS,
    WAY,
    WIDTH,
    C,
    H,
    X,
    gates,
)
from tflite_write import TableFields, Value

from mace_core.errors import MaceError

LONG = 1000
"""Steps of a layer that are too many to be written out."""


@pytest.mark.parametrize(
    ("code", "operands", "options", "message"),
    [
        (
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            [*PLAIN[:18], *PLAIN[1:18], H, C, H, C, X],
            (BOTH, TANH),
            "it has an auxiliary input",
        ),
        (
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            [*PLAIN[:18], *PLAIN[1:18], H, C, H, C, *[None] * 8, ONE[0]],
            (BOTH, TANH),
            "it has an auxiliary input",
        ),
        (
            "BIDIRECTIONAL_SEQUENCE_RNN",
            [X, *ONE, state(BATCH, UNITS), *WAY, state(BATCH, UNITS), X],
            ("BidirectionalSequenceRNNOptions", {"FusedActivationFunction": 4}),
            "it has an auxiliary input",
        ),
        (
            "BIDIRECTIONAL_SEQUENCE_RNN",
            [X, *ONE, state(BATCH, UNITS), *WAY, state(BATCH, UNITS), None, None, ONE[0]],
            ("BidirectionalSequenceRNNOptions", {"FusedActivationFunction": 4}),
            "it has an auxiliary input",
        ),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", PLAIN, (LSTM, {"FusedActivationFunction": 1}), "other than tanh"),
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            PLAIN,
            (LSTM, {**TANH, "DiagonalRecurrentTensors": True}),
            "it has diagonal recurrent weights",
        ),
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            [f32(LONG, BATCH, WIDTH), *PLAIN[1:], *gates(50)],
            (LSTM, TANH),
            f"its {LONG} steps are too many to be written out",
        ),
        (
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            [f32(4 * LONG, BATCH, WIDTH), *ONE, state(BATCH, UNITS)],
            ("SequenceRNNOptions", {"TimeMajor": True, "FusedActivationFunction": 3}),
            f"its {4 * LONG} steps are too many to be written out",
        ),
        *(
            (
                "UNIDIRECTIONAL_SEQUENCE_LSTM",
                [*PLAIN[:first], None, *PLAIN[first + 1 :]],
                (LSTM, TANH),
                "its gates are missing",
            )
            for first in (2, 3, 4, 6, 7, 8)
        ),
    ],
)
def test_layer_that_is_not_represented_is_refused(
    code: str, operands: list[Operand], options: tuple[str, TableFields], message: str, tmp_path: Path
) -> None:
    with pytest.raises(MaceError, match=message):
        load(tmp_path, Case("layer", code, operands, options).written())


def test_inputs_behind_the_auxiliary_ones_are_none_of_them(tmp_path: Path) -> None:
    operands = [*PLAIN[:18], *PLAIN[1:18], H, C, H, C, *[None] * 9, ONE[0]]
    case = Case("layer", "BIDIRECTIONAL_SEQUENCE_LSTM", operands, (BOTH, {**TANH, "MergeOutputs": True}))
    assert load(tmp_path, case.written()).outputs == ("out0",)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (INTEGER[0].intermediates[:4], "it does not say how its state is stored"),
        (INTEGER[0].intermediates, ""),
    ],
)
def test_a_quantized_layer_says_how_it_stores_its_states(
    inner: tuple[Value, ...], message: str, tmp_path: Path
) -> None:
    """The first tensor of the file may be the fifth intermediate one."""
    written = replace(INTEGER[0], intermediates=inner).written()
    written = replace(written, values=[*written.values[-1:], *written.values[:-1]])
    if not message:
        assert load(tmp_path, written).outputs == ("out0",)
        absent = replace(written.steps[0], intermediates=[*written.steps[0].intermediates[:4], ""])
        written = replace(written, steps=[absent])
        message = "it does not say how its hidden state is stored"
    with pytest.raises(MaceError, match=message):
        load(tmp_path, written)


@pytest.mark.parametrize("gate", range(4))
def test_a_layer_normalizes_all_gates_or_none(gate: int, tmp_path: Path) -> None:
    layer = next(case for case in FLOAT if case.name == "lstm with norms")
    operands = list(layer.operands)
    operands[-4 + gate] = None
    with pytest.raises(MaceError, match="only some of its gates are normalized; convert the model again"):
        load(tmp_path, replace(layer, operands=operands).written())


def test_norms_of_a_quantized_layer_are_refused(tmp_path: Path) -> None:
    operands = [*INTEGER[0].operands, *gates(50)]
    with pytest.raises(MaceError, match="it has layer normalization of quantized gates"):
        load(tmp_path, replace(INTEGER[0], operands=operands).written())
