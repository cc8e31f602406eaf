"""Recurrent layers of every form, as cases for LiteRT and for refusals."""

from __future__ import annotations

from dataclasses import replace

from tflite_cases import Case, Operand, bytes_of, f32, floats, i8, state, stored
from tflite_write import Scales, TableFields, Value

from mace_core.ir import DType

TIME, BATCH, WIDTH, UNITS = 4, 2, 3, 5
GATES = range(4)
NONE4: list[Operand] = [None] * 4
NONE3: list[Operand] = [None] * 3
X = f32(TIME, BATCH, WIDTH)
H, C = state(BATCH, UNITS), state(BATCH, UNITS)
LSTM = "UnidirectionalSequenceLSTMOptions"
BOTH = "BidirectionalSequenceLSTMOptions"
TANH: TableFields = {"FusedActivationFunction": 4, "TimeMajor": True}


def weights(seed: int, columns: int = WIDTH) -> list[Operand]:
    return [floats(UNITS, columns, seed=seed + g) for g in GATES]


def gates(seed: int) -> list[Operand]:
    return [floats(UNITS, seed=seed + g) for g in GATES]


PEEPHOLES: list[Operand] = [floats(UNITS, seed=40 + i) for i in range(3)]
PLAIN: list[Operand] = [X, *weights(1), *weights(9, UNITS), *NONE3, *gates(20), None, None, H, C]
ONE = [floats(UNITS, WIDTH, seed=3), floats(UNITS, UNITS, seed=4), floats(UNITS, seed=5)]
WAY = [floats(UNITS, WIDTH, seed=6), floats(UNITS, UNITS, seed=7), floats(UNITS, seed=8)]

FLOAT = (
    Case("lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", PLAIN, (LSTM, TANH)),
    Case(
        "lstm step",
        "LSTM",
        [f32(BATCH, WIDTH), *PLAIN[1:]],
        ("LSTMOptions", {"FusedActivationFunction": 4}),
    ),
    Case(
        "lstm by batch",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [f32(BATCH, TIME, WIDTH), *PLAIN[1:]],
        (LSTM, {**TANH, "TimeMajor": False, "CellClip": 0.3}),
    ),
    Case(
        "lstm with peepholes",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [*PLAIN[:9], *PEEPHOLES, *PLAIN[12:]],
        (LSTM, TANH),
    ),
    Case(
        "lstm with coupled gates",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [
            X,
            None,
            *weights(1)[1:],
            None,
            *weights(9, UNITS)[1:],
            None,
            *PEEPHOLES[1:],
            None,
            *gates(20)[1:],
            None,
            None,
            H,
            C,
        ],
        (LSTM, TANH),
    ),
    Case(
        "lstm with projection",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [
            X,
            *weights(1),
            *weights(9, 2),
            *NONE3,
            *gates(20),
            floats(2, UNITS, seed=30),
            floats(2, seed=31),
            state(BATCH, 2),
            C,
        ],
        (LSTM, {**TANH, "ProjClip": 0.4}),
    ),
    Case(
        "lstm with norms",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [*PLAIN, *gates(50)],
        (LSTM, TANH),
        tolerance=1e-5,
    ),
    Case(
        "lstm both ways",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            *(X, *weights(1), *weights(9, UNITS), *NONE3, *gates(20), None, None),
            *(*weights(61), *weights(69, UNITS), *NONE3, *gates(80), None, None),
            *(H, C, state(BATCH, UNITS), state(BATCH, UNITS)),
            *([None] * 9),
        ],
        (BOTH, {**TANH, "MergeOutputs": True}),
    ),
    Case(
        "lstm both ways with peepholes",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            *(X, *weights(1), *weights(9, UNITS), *PEEPHOLES, *gates(20), None, None),
            *(*weights(61), *weights(69, UNITS), *PEEPHOLES[::-1], *gates(80), None, None),
            *(H, C, state(BATCH, UNITS), state(BATCH, UNITS)),
            *([None] * 9),
        ],
        (BOTH, {**TANH, "MergeOutputs": True}),
    ),
    Case(
        "lstm both ways with projections",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            *(X, *weights(1), *weights(9, 2), *NONE3, *gates(20)),
            *(floats(2, UNITS, seed=30), floats(2, seed=31)),
            *(*weights(61), *weights(69, 2), *NONE3, *gates(80)),
            *(floats(2, UNITS, seed=32), floats(2, seed=33)),
            *(state(BATCH, 2), C, state(BATCH, 2), state(BATCH, UNITS)),
            *([None] * 9),
        ],
        (BOTH, {**TANH, "MergeOutputs": True}),
    ),
    Case(
        "lstm both ways apart",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            *(f32(BATCH, TIME, WIDTH), *weights(1), *weights(9, UNITS), *NONE3, *gates(20), None, None),
            *(*weights(61), *weights(69, UNITS), *NONE3, *gates(80), None, None),
            *(H, C, state(BATCH, UNITS), state(BATCH, UNITS)),
            *([None] * 9),
        ],
        (BOTH, {**TANH, "TimeMajor": False, "MergeOutputs": False}),
        outputs=(Value(""), Value("")),
    ),
    Case(
        "lstm both ways apart by time",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [
            *(X, *weights(1), *weights(9, UNITS), *NONE3, *gates(20), None, None),
            *(*weights(61), *weights(69, UNITS), *NONE3, *gates(80), None, None),
            *(H, C, state(BATCH, UNITS), state(BATCH, UNITS)),
            *([None] * 9),
        ],
        (BOTH, {**TANH, "MergeOutputs": False}),
        outputs=(Value(""), Value("")),
    ),
    *(
        Case(
            f"rnn {function}",
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            [X, *ONE, state(BATCH, UNITS)],
            ("SequenceRNNOptions", {"TimeMajor": True, "FusedActivationFunction": function}),
        )
        for function in (0, 1, 3, 4)
    ),
    Case(
        "rnn step",
        "RNN",
        [f32(BATCH, WIDTH), *ONE, state(BATCH, UNITS)],
        ("RNNOptions", {"FusedActivationFunction": 4}),
    ),
    Case(
        "rnn both ways",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        [X, *ONE, state(BATCH, UNITS), *WAY, state(BATCH, UNITS), None, None, None],
        (
            "BidirectionalSequenceRNNOptions",
            {"TimeMajor": True, "FusedActivationFunction": 4, "MergeOutputs": True},
        ),
    ),
    Case(
        "svdf",
        "SVDF",
        [f32(BATCH, WIDTH), floats(6, WIDTH), floats(6, 4, seed=1), floats(3, seed=2), state(BATCH, 24)],
        ("SVDFOptions", {"Rank": 2, "FusedActivationFunction": 1}),
    ),
    Case(
        "svdf without bias",
        "SVDF",
        [f32(BATCH, WIDTH), floats(4, WIDTH), floats(4, 4, seed=1), None, state(BATCH, 16)],
        ("SVDFOptions", {"Rank": 1, "FusedActivationFunction": 0}),
    ),
)

STATE_SCALE = 2.0**-11
X_SCALE, H_SCALE = 0.02, 1 / 128


def whole(seed: int, columns: int) -> list[Operand]:
    return [stored(bytes_of(UNITS, columns, seed=seed + g), 0.01) for g in GATES]


LSTM_I8 = (
    Case(
        "lstm i8",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [
            i8(TIME, BATCH, WIDTH, scale=X_SCALE, zero=5),
            *(*whole(1, WIDTH), *whole(9, UNITS), *NONE3),
            *(
                stored(bytes_of(UNITS, seed=20 + g, low=-3000, high=3000), 0.01 * X_SCALE, dtype="i4")
                for g in GATES
            ),
            *(None, None),
            state(BATCH, UNITS, scales=Scales((H_SCALE,), (0,)), dtype=DType.I8),
            state(BATCH, UNITS, scales=Scales((STATE_SCALE,), (0,)), dtype=DType.I16),
        ],
        (LSTM, TANH),
        outputs=(i8(scale=H_SCALE, zero=0),),
        intermediates=(
            *(Value("", DType.I16, (1,), scales=Scales((2.0**-12,), (0,))) for _ in GATES),
            i8(1, scale=H_SCALE, zero=0),
        ),
        version=2,
        steps=1,
    ),
)
INTEGER = (
    *LSTM_I8,
    # A cell of 16 bits reaches 16: the one clip is within its range, the other is not.
    *(
        replace(LSTM_I8[0], name=f"lstm i8 clipped at {clip}", options=(LSTM, {**TANH, "CellClip": clip}))
        for clip in (0.1, 20.0)
    ),
)
