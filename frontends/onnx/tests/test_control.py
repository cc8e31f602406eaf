"""Branches, loops and scans of known length, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase

from mace_core.errors import MaceError
from mace_frontend_onnx.ops import control

X = "float[2] x"
BODY = "body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u, float[2] s)"
COUNTED = (
    f"y, z = Loop(n, go, x)<{BODY} {{ on = Identity(go) f = Cast<to=1>(i) u = Add(v, f) s = Mul(u, f) }}>"
)
UNTIL = (
    f"y, z = Loop(n, go, x)<{BODY} {{ f = Cast<to=1>(i) u = Add(v, f) s = Mul(u, f) "
    "two = Constant<value_int=2>() on = Less(i, two) }>"
)
CARRIED = "y = Loop(n, , x)<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) { on = Identity(go) u = Sin(v) }>"
YES, NO = np.asarray(True), np.asarray(False)


def loop(body: str, count: int | None = 3, go: np.ndarray | None = YES) -> RuntimeCase:
    constants = {"n": np.array(count or 0), "go": YES if go is None else go}
    text = body if count is not None else body.replace("Loop(n,", "Loop(,")
    text = text if go is not None else text.replace(", go,", ", ,")
    return RuntimeCase(text, X, constants, outputs="y z" if "y, z" in body else "y")


def scan(attributes: str, ports: str) -> RuntimeCase:
    body = "body = n (float[2] p, float[2] q) => (float[2] t, float[2] m) { t = Add(p, q) m = Mul(t, q) }"
    text = f"y, z = Scan<num_scan_inputs=1{attributes}, {body}>(o, x)"
    return RuntimeCase(text, f"float[2] o, {ports}", outputs="y z")


TWO = (
    "y, z, k = Scan<num_scan_inputs=2, scan_input_axes=[0,1], scan_input_directions=[0,1], "
    "scan_output_axes=[1,0], scan_output_directions=[1,0], "
    "body = n (float[2] p, float[2] q, float[3] r) => (float[2] t, float[2] m, float[3] l) "
    "{ t = Add(p, q) m = Mul(t, q) l = Sin(r) }>(o, x, v)"
)
CASES = {
    "loop": loop(COUNTED),
    "loop of one turn": loop(COUNTED, 1),
    "loop without condition": loop(COUNTED, go=None),
    "loop until": loop(UNTIL, 9),
    "loop until without count": loop(UNTIL, None),
    "loop of no turn": loop(CARRIED, 0),
    "loop that never runs": RuntimeCase(
        CARRIED.replace("Loop(n, , x)", "Loop(n, go, x)"), X, {"n": np.array(3), "go": NO}
    ),
    "scan": scan("", "float[3,2] x"),
    "scan of columns": scan(", scan_input_axes=[1]", "float[2,3] x"),
    "scan of last columns": scan(", scan_input_axes=[-1], scan_output_axes=[-1]", "float[2,3] x"),
    "scan back": scan(", scan_input_directions=[1]", "float[3,2] x"),
    "scan to the front": scan(", scan_output_directions=[1]", "float[3,2] x"),
    "scan of one": scan("", "float[1,2] x"),
    "scan of two": RuntimeCase(TWO, "float[2] o, float[4,2] x, float[3,4] v", outputs="y z k"),
    "if": RuntimeCase(
        "c = Greater(o, z) y = If(c)<then_branch = t () => (float[2] a) { a = Sin(x) }, "
        "else_branch = e () => (float[2] b) { b = Cos(x) }>",
        f"{X}, float o",
        {"z": np.float32(0.1)},
    ),
    "if not": RuntimeCase(
        "c = Less(o, z) y, k = If(c)<then_branch = t () => (float[2] a, float[1] h) { a = Sin(x) h = Constant<value_floats=[1.0]>() }, "
        "else_branch = e () => (float[2] b, float[1] g) { b = Cos(x) g = Constant<value_floats=[2.0]>() }>",
        f"{X}, float o",
        {"z": np.float32(0.1)},
        outputs="y k",
    ),
    **{
        f"if {known}": RuntimeCase(
            "y = If(c)<then_branch = t () => (float[2] a) { a = Sin(x) }, else_branch = e () => (float[1] b) { b = ReduceSum(x) }>",
            X,
            {"c": np.asarray(known)},
        )
        for known in (True, False)
    },
    "dropout": RuntimeCase("y, m = Dropout(x)", X, outputs="y m"),
    "dropout of nothing": RuntimeCase("y = Dropout(x, r)", X, {"r": np.float32(0.5)}),
    "identity": RuntimeCase("a = Identity(x) y = Sin(a)", X),
}


@pytest.mark.parametrize("name", CASES)
def test_flow_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx")


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
def test_as_many_turns_as_are_unrolled(
    count: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mace_frontend_onnx.ops.control.MAX_ITERATIONS", 4)
    rows = scan("", f"float[{count},2] x")
    if fits:
        assert [node.op.name for node in loop(CARRIED, count).load(tmp_path / "m.onnx").nodes] == [
            "Sin"
        ] * count
        assert rows.load(tmp_path / "s.onnx").tensors["z"].shape == (count, 2)
        return
    with pytest.raises(MaceError, match="it has 5 iterations; more than 4 are not unrolled"):
        loop(CARRIED, count).load(tmp_path / "m.onnx")
    with pytest.raises(MaceError, match="it has 5 iterations; 1 to 4 are unrolled"):
        rows.load(tmp_path / "s.onnx")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (loop(CARRIED.replace("Loop(n,", "Loop(,"), 3), "it never ends"),
        (loop(COUNTED, 0), "it has no iteration, so that the shape of its results is unknown"),
        (scan("", "float[0,2] x"), "it has 0 iterations; 1 to 4096 are unrolled"),
        (
            RuntimeCase(TWO, "float[2] o, float[4,2] x, float[3,5] v", outputs="y z k"),
            "it scans axes of lengths [4, 5]",
        ),
    ],
)
def test_flow_that_cannot_be_written_out_is_refused(made: RuntimeCase, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        made.load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]


def test_loop_that_goes_on_after_the_last_iteration_that_is_unrolled_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a number of iterations only its condition ends it, which may be later than what is unrolled."""
    monkeypatch.setattr(control, "MAX_ITERATIONS", 3)
    assert loop(UNTIL, None).load(tmp_path / "m.onnx").outputs == ("y", "z")
    monkeypatch.setattr(control, "MAX_ITERATIONS", 2)
    with pytest.raises(MaceError, match="it goes on after 2 iterations; more are not unrolled"):
        loop(UNTIL, None).load(tmp_path / "m.onnx")


def test_scan_before_9_is_refused(tmp_path: Path) -> None:
    result = scan("", "float[3,2] x")
    with pytest.raises(
        MaceError, match=r"Scan before operator set 9; convert the model with onnx\.version_converter"
    ):
        RuntimeCase(result.body, "float[1,2] o, float[1,3,2] x", opset=8, outputs="y z").load(
            tmp_path / "m.onnx"
        )
    assert RuntimeCase(result.body, result.ports, opset=9, outputs="y z").load(
        tmp_path / "m.onnx"
    ).outputs == (
        "y",
        "z",
    )


def test_scan_of_one_row_stacks_nothing(tmp_path: Path) -> None:
    assert "Concat" not in {node.op.name for node in CASES["scan of one"].load(tmp_path / "m.onnx").nodes}
