"""Operators that move elements, on both sides of their limits, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError
from mace_core.run.reference import execute

X = "float[2,3,4] x"
Ints = list[int]


def case(body: str, opset: int = 17, ports: str = X, outputs: str = "y", **constants: object) -> RuntimeCase:
    return RuntimeCase(body, ports, constants, opset, outputs=outputs)


CASES = {
    "reshape": case("y = Reshape(x, s)", s=[4, -1, 2]),
    "reshape with a copied axis": case("y = Reshape(x, s)", s=[0, -1]),
    "reshape to the same": case("y = Reshape(x, s)", s=[2, 3, 4]),
    "reshape to more": case("y = Reshape(x, s)", s=[0, 0, 2, 2]),
    "reshape of a constant": case("a = Reshape(w, s) y = Add(x, a)", w=normal(12), s=[3, 4]),
    "flatten at 0": case("y = Flatten<axis=0>(x)"),
    "flatten": case("y = Flatten(x)"),
    "flatten at the end": case("y = Flatten<axis=3>(x)"),
    "flatten from the end": case("y = Flatten<axis=-1>(x)"),
    "flatten from the front backwards": case("y = Flatten<axis=-3>(x)"),
    "squeeze of 12": case("y = Squeeze<axes=[0,-2]>(x)", 12, "float[1,3,1,4] x"),
    "squeeze": case("y = Squeeze(x, a)", ports="float[1,3,1,4] x", a=[-2]),
    "squeeze all": case("y = Squeeze(x)", ports="float[1,3,1,4] x"),
    "unsqueeze": case("y = Unsqueeze(x, a)", a=[4, 0]),
    "unsqueeze from the end": case("y = Unsqueeze(x, a)", a=[-1, 1]),
    "unsqueeze of 12": case("y = Unsqueeze<axes=[1]>(x)", 12),
    "transpose": case("y = Transpose<perm=[1,2,0]>(x)"),
    "transpose by default": case("y = Transpose(x)"),
    "transpose of nothing": case("y = Transpose<perm=[0,1,2]>(x)"),
    "transpose of a constant": case("a = Transpose<perm=[1,0]>(w) y = Add(x, a)", w=normal(4, 3)),
    "concat": case("y = Concat<axis=1>(x, x)"),
    "concat from the end": case("y = Concat<axis=-1>(x, v)", ports=f"{X}, float[2,3,1] v"),
    "concat of one": case("y = Concat<axis=1>(x)"),
    "split of 12": case("y, z = Split<axis=2, split=[1,3]>(x)", 12, outputs="y z"),
    "split": case("y, z = Split<axis=-1>(x, s)", outputs="y z", s=[3, 1]),
    "split by outputs": case("y, z = Split<axis=2>(x)", outputs="y z"),
    "split of 18": case("y, z = Split<axis=1, num_outputs=2>(x)", 18, outputs="y z"),
    "split of 18 in 3": case("y, z, v = Split<axis=1, num_outputs=3>(x)", 18, "float[2,5] x", "y z v"),
    "slice of 9": case("y = Slice<starts=[1,-2], ends=[2,9], axes=[0,2]>(x)", 9),
    "slice of 9 without axes": case("y = Slice<starts=[0,1], ends=[1,3]>(x)", 9),
    "slice": case("y = Slice(x, s, e, a)", s=[1], e=[3], a=[-1]),
    "slice without axes": case("y = Slice(x, s, e)", s=[1, 0], e=[2, 2]),
    "slice of all": case("y = Slice(x, s, e)", s=[0, 0], e=[2, 2**40]),
    "slice in steps": case("y = Slice(x, s, e, a, t)", s=[0, 3], e=[3, -9], a=[1, 2], t=[2, -1]),
    "slice back from the end": case("y = Slice(x, s, e, a, t)", s=[-1], e=[-(2**40)], a=[2], t=[-2]),
    "slice back to the first": case("y = Slice(x, s, e, a, t)", s=[-1], e=[-4], a=[2], t=[-1]),
    "slice back from before the first": case("y = Slice(x, s, e, a, t)", s=[-9], e=[-9], a=[2], t=[-1]),
    "slice back in twos from before the first": case(
        "y = Slice(x, s, e, a, t)", s=[-5], e=[-6], a=[2], t=[-2]
    ),
    "slice back past the first": case("y = Slice(x, s, e, a, t)", s=[-1], e=[-5], a=[2], t=[-1]),
    "slice to the end": case("y = Slice(x, s, e, a)", s=[1], e=[2**31 - 1], a=[2]),
    "slice of a whole axis in steps": case("y = Slice(x, s, e, a, t)", s=[0], e=[4], a=[2], t=[3]),
    "slice of one reversed": case(
        "y = Slice(x, s, e, a, t)", ports="float[2,1] x", s=[0], e=[-9], a=[1], t=[-1]
    ),
    "pad of 10": case("y = Pad<pads=[0,1,2,0,0,1], value=1.5>(x)", 10),
    "pad": case("y = Pad(x, p, v)", p=[0, 1, 2, 0, 0, 1], v=np.float32(1.5)),
    "pad without value": case("y = Pad(x, p)", p=[1, 0, 0, 0, 2, 0]),
    "pad of axes": case("y = Pad(x, p, v, a)", 18, p=[1, 2, 3, 0], v=np.float32(-1), a=[2, -2]),
    "pad of edges": case('y = Pad<mode="edge">(x, p)', p=[1, 0, 2, 0, 2, 0]),
    "pad by reflection": case('y = Pad<mode="reflect">(x, p)', p=[1, 0, 2, 0, 2, 3]),
    "pad around": case('y = Pad<mode="wrap">(x, p)', 19, p=[1, 0, 2, 0, 2, 3]),
    "pad that cuts": case("y = Pad(x, p)", p=[0, -1, 1, -1, 0, -2]),
    "pad that cuts all": case("y = Pad(x, p)", p=[0, -1, 1, 0, -1, 0]),
    "tile": case("y = Tile(x, r)", r=[1, 2, 3]),
    "expand": case("y = Expand(x, s)", ports="float[3,1] x", s=[2, 1, 4]),
    "expand of less": case("y = Expand(x, s)", s=[3, 1]),
    "expand of nothing": case("y = Expand(x, s)", s=[2, 3, 4]),
    "expand of a first axis of 1": case("y = Expand(x, s)", ports="float[1,3,1] x", s=[3, 4]),
    "expand to longer": case("y = Expand(x, s)", ports="float[1,3] x", s=[4, 3]),
    "upper": case("y = Trilu(x)", 14),
    "lower": case("y = Trilu<upper=0>(x, k)", 14, k=np.array(-1)),
    "upper from": case("y = Trilu<upper=1>(x, k)", 14, k=np.array(1)),
    "reverse sequence": case(
        "y = ReverseSequence<batch_axis=1, time_axis=0>(x, l)", ports="float[4,3] x", l=[2, 4, 1]
    ),
    "reverse sequence by batch": case("y = ReverseSequence<batch_axis=0, time_axis=1>(x, l)", l=[2, 3]),
    "depth to space": case("y = DepthToSpace<blocksize=2>(x)", 13, "float[1,8,2,3] x"),
    "depth to space by columns": case('y = DepthToSpace<blocksize=2, mode="CRD">(x)', 13, "float[1,8,2,3] x"),
    "depth to space of 10": case("y = DepthToSpace<blocksize=2>(x)", 10, "float[1,8,2,3] x"),
    "space to depth": case("y = SpaceToDepth<blocksize=2>(x)", 13, "float[2,3,4,6] x"),
}


@pytest.mark.parametrize("name", CASES)
def test_movement_is_that_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx")


def test_space_to_depth_by_columns(tmp_path: Path) -> None:
    x = normal(2, 3, 4, 6)
    made = RuntimeCase(
        'y = SpaceToDepth<blocksize=2, mode="CRD">(x)', "float[2,3,4,6] x", opset=28, values={"x": x}
    )
    y = made.compute(tmp_path / "m.onnx")["y"]
    expected = x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 12, 2, 3)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("reshape to the same", []),
        ("reshape", ["Reshape"]),
        ("reshape of a constant", ["Add"]),
        ("transpose of nothing", []),
        ("transpose of a constant", ["Add"]),
        ("concat of one", []),
        ("slice of all", []),
        ("slice of a whole axis in steps", ["Slice"]),
        ("slice of one reversed", ["Slice"]),
        ("pad", ["Pad"]),
        ("pad that cuts", ["Slice", "Pad"]),
        ("expand of nothing", []),
        ("expand", ["Expand"]),
        ("expand of less", []),
    ],
)
def test_what_moves_nothing_is_left_out(name: str, ops: list[str], tmp_path: Path) -> None:
    graph = CASES[name].load(tmp_path / "m.onnx")
    assert [node.op.name for node in graph.nodes if node.op.name != "Identity"] == ops


@pytest.mark.parametrize(
    ("end", "elements"), [(2**31 - 1, [3, 1]), (2**63 - 1, [3, 1]), (2**40, []), (4, [])]
)
def test_slice_back_to_the_largest_integers_takes_the_first_element(
    end: int, elements: list[int], tmp_path: Path
) -> None:
    """ONNX Runtime gives the same; ONNX's own evaluator takes nothing."""
    sliced = case("y = Slice(x, s, e, a, t)", ports="float[4] x", s=[3], e=[end], a=[0], t=[-2])
    graph = sliced.load(tmp_path / "m.onnx")
    values = execute(graph, {graph.inputs[0]: np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(values[graph.outputs[0]], elements)


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_pad_keeps_an_integer_that_no_float_holds(value: int, tmp_path: Path) -> None:
    graph = case("y = Pad(x, p, v)", ports="int64[2] x", p=[1, 0], v=np.array(value)).load(
        tmp_path / "m.onnx"
    )
    y = execute(graph, {"x": np.array([5, 6])})["y"]
    assert y.tolist() == [value, 5, 6]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (case("y = Reshape(x, s)", s=[2, -1, -1]), "shape [2, -1, -1]"),
        (case("y = Reshape(x, s)", s=[-2, 12]), "shape [-2, 12]"),
        (case("y = Reshape(x, s)", s=[2, 3, 4, 0]), "copies axes that [2, 3, 4] has not"),
        (case("y = Reshape(x, s)", s=[5, -1]), "[2, 3, 4] does not fill shape [5, -1]"),
        (case("y = Reshape(x, s)", s=[5, 5]), "[2, 3, 4] does not fill shape [5, 5]"),
        (case("y = Flatten<axis=4>(x)"), "axis 4 of a tensor of rank 3"),
        (case("y = Flatten<axis=-4>(x)"), "axis -4 of a tensor of rank 3"),
        (case("y = Squeeze(x, a)", a=[0]), "axes [0] of [2, 3, 4] are not all 1 long"),
        (case("y = Transpose<perm=[0,1]>(x)"), "perm [0, 1] of a tensor of rank 3"),
        (case("y = Slice(x, s, e, a, t)", s=[0], e=[1], a=[0], t=[0]), "one of its steps is 0"),
        (
            # The checker of ONNX does not look into branches.
            case(
                "y = If(c)<then_branch = t () => (float[N] o) { o = Slice(x, , e) }, "
                "else_branch = f () => (float[N] p) { p = Relu(x) }>",
                e=[1],
                c=np.asarray(True),
            ),
            "it lacks starts or ends",
        ),
        (case("y = Pad(x, p)", p=[0] * 5), "5 pads for 3 axes"),
        (case("y = Pad(x, p, , a)", 18, p=[0] * 6, a=[1]), "6 pads for 1 axes"),
        (case('y = Pad<mode="odd">(x, p)', p=[0] * 6), "mode 'odd'"),
        (case("y = Pad(x, p)", p=[-1, 0, 0, -2, 0, 0]), "pads cut more than there is of [2, 3, 4]"),
        (
            case('y = SpaceToDepth<blocksize=2, mode="CRD">(x)', 28, "float[1,2,3,4] x"),
            "blocks of 2 do not divide [1, 2, 3, 4]",
        ),
        (
            case('y = SpaceToDepth<blocksize=2, mode="CRD">(x)', 28, "float[1,2,4,3] x"),
            "blocks of 2 do not divide [1, 2, 4, 3]",
        ),
    ],
)
def test_movement_that_fits_nothing_is_refused(made: RuntimeCase, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        made.load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]
