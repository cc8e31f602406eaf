"""Operators on both sides of the operator set that changed them, and with their optional inputs absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

IMAGE = "float[1,4,6,6] x"


def load(path: Path, body: str, opset: int, ports: str = IMAGE, **constants: object) -> Graph:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({ports}) => (float[N] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].ClearField("type")
    for name, value in constants.items():
        array = np.asarray(value, np.int64) if isinstance(value, list | int) else np.asarray(value)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path.write_bytes(model.SerializeToString())
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def compute(graph: Graph, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.uniform(-1, 1, graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}
    return execute(graph, arrays)["y"]


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def attribute(graph: Graph, op: str, name: str) -> object:
    (node,) = (node for node in graph.nodes if node.op.name == op)
    return getattr(node.attrs, name)


@pytest.mark.parametrize("opset", [14, 21])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_batch_first(op: str, gates: int, opset: int, tmp_path: Path) -> None:
    weights = {"w": random(1, gates * 5, 3), "r": random(1, gates * 5, 5, seed=2)}
    path = tmp_path / "m.onnx"
    first = load(path, f"y, h = {op}<layout=1>(x, w, r)", opset, "float[2,6,3] x", **weights)
    time_first = f"t = Transpose<perm=[1,0,2]>(x) v, h = {op}(t, w, r) y = Transpose<perm=[2,0,1,3]>(v)"
    expected = compute(load(path, time_first, opset, "float[2,6,3] x", **weights))
    result = compute(first)
    assert result.shape == (2, 6, 1, 5)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("opset", "attributes"), [(13, ""), (14, ""), (14, "<allowzero=0>")])
def test_reshape_copies_an_axis_for_0(opset: int, attributes: str, tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", f"y = Reshape{attributes}(x, s)", opset, s=[0, 2, -1])
    assert graph.tensors["y"].shape == (1, 2, 72)


def test_reshape_has_empty_axes_with_allowzero(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"\[1, 4, 6, 6\] does not fill shape \[0, 144\]"):
        load(tmp_path / "m.onnx", "y = Reshape<allowzero=1>(x, s)", 14, s=[0, 144])


@pytest.mark.parametrize(
    ("body", "opset", "constants", "shape"),
    [
        ("y = Squeeze<axes=[0]>(x)", 12, {}, (4, 6, 6)),
        ("y = Squeeze(x, a)", 13, {"a": [0]}, (4, 6, 6)),
        ("y = Squeeze(x)", 12, {}, (4, 6, 6)),
        ("y = Squeeze(x)", 13, {}, (4, 6, 6)),
        ("y = Unsqueeze<axes=[1]>(x)", 12, {}, (1, 1, 4, 6, 6)),
        ("y = Unsqueeze(x, a)", 13, {"a": [1]}, (1, 1, 4, 6, 6)),
        ("y = ReduceSum<axes=[1]>(x)", 12, {}, (1, 1, 6, 6)),
        ("y = ReduceSum(x, a)", 13, {"a": [1]}, (1, 1, 6, 6)),
        ("y = ReduceSum(x)", 13, {}, (1, 1, 1, 1)),
        ("y = ReduceMax<axes=[1]>(x)", 17, {}, (1, 1, 6, 6)),
        ("y = ReduceMax(x, a)", 18, {"a": [1]}, (1, 1, 6, 6)),
        ("y = ReduceMax<noop_with_empty_axes=1>(x)", 18, {}, (1, 4, 6, 6)),
        ("y, z = Split<axis=1, split=[1,3]>(x)", 12, {}, (1, 1, 6, 6)),
        ("y, z = Split<axis=1>(x, p)", 13, {"p": [1, 3]}, (1, 1, 6, 6)),
        ("y, z = Split<axis=1>(x)", 13, {}, (1, 2, 6, 6)),
        ("y, z, v = Split<axis=1, num_outputs=3>(x)", 18, {}, (1, 2, 6, 6)),
        ("y = Slice<starts=[1], ends=[3], axes=[1]>(x)", 9, {}, (1, 2, 6, 6)),
        ("y = Slice(x, s, e, a)", 10, {"s": [1], "e": [3], "a": [1]}, (1, 2, 6, 6)),
        ("y = Slice(x, s, e)", 10, {"s": [0, 1], "e": [1, 4]}, (1, 3, 6, 6)),
        ("y = Pad<pads=[0,0,1,1,0,0,1,1]>(x)", 10, {}, (1, 4, 8, 8)),
        ("y = Pad(x, p)", 11, {"p": [0, 0, 1, 1, 0, 0, 1, 1]}, (1, 4, 8, 8)),
        ("y = Pad(x, p, , a)", 18, {"p": [1, 2], "a": [3]}, (1, 4, 6, 9)),
        ("y, i = TopK<k=2, axis=1>(x)", 9, {}, (1, 2, 6, 6)),
        ("y, i = TopK<axis=1>(x, k)", 10, {"k": [2]}, (1, 2, 6, 6)),
        ("s = Shape(x) y = Cast<to=1>(s)", 14, {}, (4,)),
        ("s = Shape<start=1, end=-1>(x) y = Cast<to=1>(s)", 15, {}, (2,)),
    ],
)
def test_shape_on_both_sides_of_a_border(
    body: str, opset: int, constants: dict[str, list[int]], shape: tuple[int, ...], tmp_path: Path
) -> None:
    graph = load(tmp_path / "m.onnx", body, opset, **constants)
    assert compute(graph).shape == graph.tensors["y"].shape == shape


@pytest.mark.parametrize(
    ("body", "opset", "constants", "largest"),
    [
        ("y, i = TopK<k=2, axis=1>(x)", 9, {}, True),
        ("y, i = TopK<axis=1>(x, k)", 10, {"k": [2]}, True),
        ("y, i = TopK<axis=1>(x, k)", 11, {"k": [2]}, True),
        ("y, i = TopK<axis=1, largest=0>(x, k)", 11, {"k": [2]}, False),
    ],
)
def test_top_k_may_take_the_lowest_since_11(
    body: str, opset: int, constants: dict[str, list[int]], largest: bool, tmp_path: Path
) -> None:
    assert attribute(load(tmp_path / "m.onnx", body, opset, **constants), "TopK", "largest") == largest


def test_a_slice_of_nothing_begins_inside(tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", "y = Slice(x, s, e, a)", 13, "float[2,1] x", s=[5], e=[9], a=[1])
    assert attribute(graph, "Slice", "starts") == (0, 0)
    assert graph.tensors["y"].shape == (2, 0)


def test_shape_is_cut_by_start_and_end(tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", "s = Shape<start=1, end=3>(x) y = Cast<to=1>(s)", 15)
    np.testing.assert_array_equal(compute(graph), [4, 6])


@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (19, 1), (20, -2)])
def test_dft_without_axis(opset: int, axis: int, tmp_path: Path) -> None:
    """Before operator set 20 the axis is an attribute that is 1 by default; since then -2 is."""
    graph = load(tmp_path / "m.onnx", "y = DFT(x)", opset, "float[2,3,4,2] x")
    assert attribute(graph, "DFT", "axis") == axis % 4


def test_dft_axis_is_an_input_since_20(tmp_path: Path) -> None:
    graph = load(tmp_path / "m.onnx", "y = DFT(x, , a)", 20, "float[2,3,4,2] x", a=1)
    assert attribute(graph, "DFT", "axis") == 1


@pytest.mark.parametrize(("opset", "half_pixel"), [(15, False), (16, True)])
def test_roi_align_shifts_by_half_a_pixel_since_16(opset: int, half_pixel: bool, tmp_path: Path) -> None:
    body = "y = RoiAlign<output_height=2, output_width=2>(x, r, b)"
    graph = load(tmp_path / "m.onnx", body, opset, f"{IMAGE}, float[3,4] r", b=[0, 0, 0])
    assert attribute(graph, "RoiAlign", "half_pixel") is half_pixel


@pytest.mark.parametrize(("opset", "last"), [(11, False), (12, True)])
def test_arg_max_selects_the_last_index_since_12(opset: int, last: bool, tmp_path: Path) -> None:
    select = "<axis=1>" if opset == 11 else "<axis=1, select_last_index=1>"
    graph = load(tmp_path / "m.onnx", f"i = ArgMax{select}(x) y = Cast<to=1>(i)", opset)
    assert attribute(graph, "ArgMax", "last") is last


@pytest.mark.parametrize(("opset", "mode"), [(10, "DCR"), (11, "CRD")])
def test_depth_to_space_has_a_mode_since_11(opset: int, mode: str, tmp_path: Path) -> None:
    attributes = "<blocksize=2>" if opset == 10 else '<blocksize=2, mode="CRD">'
    graph = load(tmp_path / "m.onnx", f"y = DepthToSpace{attributes}(x)", opset)
    assert attribute(graph, "DepthToSpace", "mode") == mode


@pytest.mark.parametrize("opset", [18, 20, 21])
def test_group_norm_has_factors_by_group_before_21(opset: int, tmp_path: Path) -> None:
    """ONNX's checker calls the operator before 21 deprecated; test_norm.py has it outside of branches."""
    by_group = random(2), random(2, seed=2)
    factors = [np.repeat(array, 2) if opset >= 21 else array for array in by_group]
    body = (
        "y = If(c)<then_branch = t () => (float[1,4,6,6] o) { o = GroupNormalization<num_groups=2>(x, s, b) }, "
        "else_branch = e () => (float[1,4,6,6] p) { p = Relu(x) }>"
    )
    constants = {"s": factors[0], "b": factors[1], "c": np.asarray(True)}
    y = compute(load(tmp_path / "m.onnx", body, opset, **constants))
    x = np.random.default_rng(0).uniform(-1, 1, (1, 4, 6, 6)).astype(np.float32)
    groups = x.reshape(1, 2, -1)
    mean, deviation = groups.mean(2, keepdims=True), np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    normal = ((groups - mean) / deviation).reshape(x.shape)
    scale, bias = (np.repeat(array, 2).reshape(1, 4, 1, 1) for array in by_group)
    np.testing.assert_allclose(y, normal * scale + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [11, 12])
def test_softmax_before_13_normalizes_all_axes_from_one_on(opset: int, tmp_path: Path) -> None:
    y = compute(load(tmp_path / "m.onnx", "y = Softmax<axis=2>(x)", opset))
    np.testing.assert_allclose(y.reshape(4, 36).sum(1), 1, rtol=1e-5)


def test_softmax_since_13_normalizes_one_axis(tmp_path: Path) -> None:
    y = compute(load(tmp_path / "m.onnx", "y = Softmax<axis=2>(x)", 13))
    np.testing.assert_allclose(y.sum(2), 1, rtol=1e-5)


@pytest.mark.parametrize("opset", [10, 11])
def test_gemm_without_bias_since_11(opset: int, tmp_path: Path) -> None:
    body = "y = Gemm(x, w)" if opset == 11 else "y = Gemm(x, w, c)"
    constants = {"w": random(3, 5), "c": random(5, seed=2)}
    graph = load(tmp_path / "m.onnx", body, opset, "float[2,3] x", **constants)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    expected = x @ constants["w"] + (constants["c"] if opset == 10 else 0)
    np.testing.assert_allclose(compute(graph), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(True, True), (True, False), (False, True), (False, False)])
def test_clip_with_absent_limits(low: bool, high: bool, tmp_path: Path) -> None:
    inputs = f"x, {'l' if low else ''}, {'h' if high else ''}"
    limits = {"l": np.float32(-0.2), "h": np.float32(0.3)}
    y = compute(load(tmp_path / "m.onnx", f"y = Clip({inputs})", 13, **limits))
    x = np.random.default_rng(0).uniform(-1, 1, y.shape).astype(np.float32)
    expected = np.clip(x, -0.2 if low else -np.inf, 0.3 if high else np.inf)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_clip_with_crossed_limits_gives_the_upper_one(tmp_path: Path) -> None:
    limits = {"l": np.float32(0.5), "h": np.float32(-0.5)}
    assert (compute(load(tmp_path / "m.onnx", "y = Clip(x, l, h)", 13, **limits)) == -0.5).all()


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("offset_group", [1, 2])
def test_deform_conv_in_groups_is_one_for_each_group(group: int, offset_group: int, tmp_path: Path) -> None:
    """With offsets of 0 a DeformConv is a Conv of the same groups; with others, each group is computed alone."""
    weights = {"w": random(6, 4 // group, 3, 3), "b": random(6, seed=3)}
    path, attributes = tmp_path / "m.onnx", f"<group={group}, offset_group={offset_group}>"
    zeros = np.zeros((1, 18 * offset_group, 4, 4), np.float32)
    flat = load(path, f"y = DeformConv{attributes}(x, w, o, b)", 19, o=zeros, **weights)
    conv = load(path, f"y = Conv<group={group}>(x, w, b)", 19, **weights)
    np.testing.assert_allclose(compute(flat), compute(conv), rtol=1e-4, atol=1e-5)
    if group == 1 or offset_group == 1:
        return
    offsets = random(1, 36, 4, 4, seed=4)
    both = compute(load(path, f"y = DeformConv{attributes}(x, w, o, b)", 19, o=offsets, **weights))
    halves = "a, c = Split<axis=1>(x) d = DeformConv(a, v, o, s) e = DeformConv(c, w, p, t)"
    split = {"v": weights["w"][:3], "w": weights["w"][3:], "s": weights["b"][:3], "t": weights["b"][3:]}
    split |= {"o": offsets[:, :18], "p": offsets[:, 18:]}
    expected = compute(load(path, f"{halves} y = Concat<axis=1>(d, e)", 19, **split))
    np.testing.assert_allclose(both, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("opset", "training"), [(11, None), (12, False), (12, True)])
def test_dropout_works_in_training_mode_only_where_it_says_so(
    opset: int, training: bool | None, tmp_path: Path
) -> None:
    body = "y, m = Dropout(x)" if training is None else "y, m = Dropout(x, r, t)"
    constants = {"r": np.float32(0.5), "t": np.asarray(bool(training))}
    if training:
        with pytest.raises(MaceError, match="works in training mode; export the model for inference"):
            load(tmp_path / "m.onnx", body, opset, **constants)
        return
    graph = load(tmp_path / "m.onnx", body, opset, **constants)
    assert {node.op.name for node in graph.nodes} <= {"Identity"}


def test_dropout_of_nothing_trains_unnoticed(tmp_path: Path) -> None:
    constants = {"r": np.float32(0), "t": np.asarray(True)}
    assert compute(load(tmp_path / "m.onnx", "y = Dropout(x, r, t)", 12, **constants)).shape == (1, 4, 6, 6)


@pytest.mark.parametrize(
    ("body", "opset", "refused"),
    [
        ("y = BatchNormalization<training_mode=0>(x, s, s, s, v)", 14, False),
        ("y, m, n = BatchNormalization<training_mode=1>(x, s, s, s, v)", 14, True),
        ("a, m, n, p, q = BatchNormalization(x, s, s, s, v) c = Mul(m, n) y = Add(a, c)", 13, True),
        ("y, m, n, p, q = BatchNormalization(x, s, s, s, v)", 13, False),
        ("y = BatchNormalization<spatial=1>(x, s, s, s, v)", 8, False),
        ("y = BatchNormalization<spatial=0>(x, s, s, s, v)", 8, True),
    ],
)
def test_batch_norm_in_training_is_refused(body: str, opset: int, refused: bool, tmp_path: Path) -> None:
    constants = {"s": random(4), "v": np.abs(random(4, seed=2)) + np.float32(0.1)}
    if not refused:
        assert compute(load(tmp_path / "m.onnx", body, opset, **constants)).shape == (1, 4, 6, 6)
        return
    with pytest.raises(MaceError, match="works in training mode; export the model for inference"):
        load(tmp_path / "m.onnx", body, opset, **constants)


@pytest.mark.parametrize(("opset", "coordinates"), [(10, "asymmetric"), (11, "half_pixel")])
def test_resize_has_coordinates_since_11(opset: int, coordinates: str, tmp_path: Path) -> None:
    scales = np.float32([1, 1, 2, 2])
    body = 'y = Resize<mode="linear">(x, s)' if opset == 10 else 'y = Resize<mode="linear">(x, r, s)'
    graph = load(tmp_path / "m.onnx", body, opset, s=scales, r=np.float32([]))
    assert attribute(graph, "Resize", "coordinates") == coordinates
    assert graph.tensors["y"].shape == (1, 4, 12, 12)


@pytest.mark.parametrize(("opset", "batch"), [(12, 0), (12, 1), (13, 1)])
def test_gathered_batches_exist_from_operator_set_12_on(opset: int, batch: int, tmp_path: Path) -> None:
    body = f"y = GatherND<batch_dims={batch}>(x, i)"
    graph = load(tmp_path / "m.onnx", body, opset, "float[2,3] x", i=[[1], [0]])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    actual = execute(graph, {"x": x})["y"]
    np.testing.assert_array_equal(actual, x[[0, 1], [1, 0]] if batch else x[[1, 0]])
