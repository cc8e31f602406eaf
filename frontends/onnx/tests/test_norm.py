"""Normalizations and softmax of every axis, rank and form of their factors, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

IMAGE = "float[2,4,3,5] x"
FACTORS = {"s": normal(4), "t": normal(4, seed=2), "v": np.abs(normal(4, seed=3)) + np.float32(0.1)}
CASES = {
    "batch": RuntimeCase("y = BatchNormalization<epsilon=0.1>(x, s, t, s, v)", IMAGE, FACTORS),
    "batch of vectors": RuntimeCase("y = BatchNormalization(x, s, t, s, v)", "float[3,4] x", FACTORS),
    "batch of lines": RuntimeCase("y = BatchNormalization(x, s, t, s, v)", "float[3,4,5] x", FACTORS),
    "instance": RuntimeCase("y = InstanceNormalization<epsilon=0.1>(x, s, t)", IMAGE, FACTORS),
    "group": RuntimeCase("y = GroupNormalization<num_groups=2, epsilon=0.1>(x, s, t)", IMAGE, FACTORS, 21),
    "group of 18": RuntimeCase(
        "y = GroupNormalization<num_groups=2>(x, s, t)", IMAGE, {"s": normal(2), "t": normal(2, seed=2)}, 18
    ),
    "layer": RuntimeCase(
        "y = LayerNormalization<axis=2, epsilon=0.1>(x, g, h)",
        IMAGE,
        {"g": normal(3, 5), "h": normal(3, 5, seed=4)},
    ),
    "layer of the first axis": RuntimeCase(
        "y = LayerNormalization<axis=0>(x, g)", IMAGE, {"g": normal(2, 4, 3, 5)}
    ),
    "layer by default": RuntimeCase(
        "y = LayerNormalization(x, g, h)", IMAGE, {"g": normal(5), "h": normal(5, seed=2)}
    ),
    "layer with factors of the rank of its input": RuntimeCase(
        "y = LayerNormalization(x, g, h)", IMAGE, {"g": normal(1, 1, 1, 5), "h": normal(1, 1, seed=2)}
    ),
    "layer with computed factors of the rank of its input": RuntimeCase(
        "y = LayerNormalization<axis=2>(x, g)", f"{IMAGE}, float[1,1,1,5] g"
    ),
    "layer with its mean": RuntimeCase(
        "a, m = LayerNormalization<axis=2>(x, g) y = Add(a, m)", IMAGE, {"g": normal(3, 5)}
    ),
    "layer with its deviation": RuntimeCase(
        "a, , d = LayerNormalization<axis=-1>(x, g) y = Add(a, d)", IMAGE, {"g": normal(5)}
    ),
    "rms": RuntimeCase("y = RMSNormalization<axis=2, epsilon=0.1>(x, g)", IMAGE, {"g": normal(3, 5)}, 23),
    "rms by default": RuntimeCase("y = RMSNormalization(x, g)", IMAGE, {"g": normal(5)}, 23),
    "local": RuntimeCase("y = LRN<size=3, alpha=0.2, beta=0.6, bias=1.5>(x)", IMAGE),
    "local by default": RuntimeCase("y = LRN<size=5>(x)", IMAGE),
    "lp 1": RuntimeCase("y = LpNormalization<p=1, axis=1>(x)", IMAGE),
    "lp by default": RuntimeCase("y = LpNormalization(x)", IMAGE),
    "mean and variance": RuntimeCase("y = MeanVarianceNormalization(x)", IMAGE),
    "mean and variance of axes": RuntimeCase("y = MeanVarianceNormalization<axes=[1,3]>(x)", IMAGE),
    **{
        f"{op} of {opset} along {axis}": RuntimeCase(f"y = {op}<axis={axis}>(x)", IMAGE, opset=opset)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for opset, axes in ((11, (0, 1, 2, 3, -1, -3)), (13, (0, 1, 3, -2)))
        for axis in axes
    },
    "softmax of 11 by default": RuntimeCase("y = Softmax(x)", IMAGE, opset=11),
    "softmax of 13 by default": RuntimeCase("y = Softmax(x)", IMAGE),
    "softmax of 11 before axes of 1": RuntimeCase("y = Softmax<axis=1>(x)", "float[3,1,1,5] x", opset=11),
    "softmax of 11 behind the axes": RuntimeCase("y = Softmax<axis=1>(x)", "float[3,5,1,1] x", opset=11),
}


@pytest.mark.parametrize("name", CASES)
def test_norm_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


def moments(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_group_norm_repeats_factors_of_groups(count: int, is_constant: bool, tmp_path: Path) -> None:
    """One factor for each group was ONNX's first form; one for all of them divides the channels as well."""
    s, t = normal(count), normal(count, seed=2)
    ports = IMAGE if is_constant else f"{IMAGE}, float[{count}] s, float[{count}] t"
    x = normal(2, 4, 3, 5, seed=5)
    body = "y = GroupNormalization<num_groups=2>(x, s, t)"
    case = RuntimeCase(
        body, ports, {"s": s, "t": t} if is_constant else {}, 21, values={"x": x, "s": s, "t": t}
    )
    y = case.compute(tmp_path / "m.onnx")["y"]
    normalized = moments(x.reshape(2, 2, -1), (2,)).reshape(x.shape)
    wide = [np.repeat(factor, 4 // count).reshape(1, 4, 1, 1) for factor in (s, t)]
    np.testing.assert_allclose(y, normalized * wide[0] + wide[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_a_factor_that_broadcasts_is_expanded(op: str, tmp_path: Path) -> None:
    x, factor = normal(2, 4, 3, 5, seed=5), normal(3, 1)
    case = RuntimeCase(f"y = {op}<axis=2>(x, g)", IMAGE, {"g": factor}, 23, values={"x": x})
    y = case.compute(tmp_path / "m.onnx")["y"]
    root_mean_square = np.sqrt((x**2).mean((2, 3), keepdims=True) + 1e-5)
    expected = {"LayerNormalization": moments(x, (2, 3)), "RMSNormalization": x / root_mean_square}[op]
    np.testing.assert_allclose(y, expected * factor, rtol=1e-4, atol=1e-5)
    assert "Expand" not in {node.op.name for node in CASES["layer"].load(tmp_path / "w.onnx").nodes}


@pytest.mark.parametrize(("axis", "fits"), [(-4, True), (-5, False), (4, True), (5, False)])
def test_softmax_of_11_has_an_axis_behind_the_last(axis: int, fits: bool, tmp_path: Path) -> None:
    case = RuntimeCase(f"y = Softmax<axis={axis}>(x)", IMAGE, opset=11)
    if fits:
        y = case.compute(tmp_path / "m.onnx")["y"]
        np.testing.assert_allclose(y.sum(), 120 if axis == 4 else 1, rtol=1e-5)
        return
    with pytest.raises(MaceError, match=f"axis {axis if axis > 0 else axis + 4} of a tensor of rank 4"):
        case.load(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("shape", "ops"),
    [
        ("3,1,1,5", ["Softmax"]),
        ("3,5,1,1", ["Reshape", "Softmax", "Reshape"]),
        ("3,2,5", ["Reshape", "Softmax", "Reshape"]),
    ],
)
def test_softmax_of_11_is_flattened_only_where_it_must(shape: str, ops: list[str], tmp_path: Path) -> None:
    graph = RuntimeCase("y = Softmax<axis=1>(x)", f"float[{shape}] x", opset=11).load(tmp_path / "m.onnx")
    assert [node.op.name for node in graph.nodes] == ops


@pytest.mark.parametrize(
    ("count", "channels", "fits"), [(2, 4, True), (3, 4, False), (4, 4, True), (8, 4, False)]
)
def test_factors_divide_the_channels(count: int, channels: int, fits: bool, tmp_path: Path) -> None:
    constants = {"s": normal(count)}
    case = RuntimeCase(
        "y = GroupNormalization<num_groups=2>(x, s, s)", f"float[1,{channels},3] x", constants, 21
    )
    if fits:
        case.load(tmp_path / "m.onnx")
        return
    with pytest.raises(MaceError, match=f"{count} factors for {channels} channels"):
        case.load(tmp_path / "m.onnx")
