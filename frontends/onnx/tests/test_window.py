"""Convolutions and pools: paddings, strides, dilations and groups on every axis, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

X = "float[2,4,7,6] x"
W = {"w": normal(6, 4, 3, 2), "b": normal(6, seed=2)}
GROUPED = {"w": normal(6, 2, 3, 2), "b": normal(6, seed=2)}
TRANSPOSED = {"w": normal(4, 3, 3, 2), "b": normal(6, seed=2), "c": normal(3, seed=2)}


def case(
    body: str, ports: str = X, constants: object = None, opset: int = 17, **other: object
) -> RuntimeCase:
    return RuntimeCase(f"y = {body}", ports, constants or {}, opset, **other)  # type: ignore[arg-type]


AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")
CONVOLUTIONS = {
    "conv": case("Conv(x, w, b)", X, W),
    "conv with kernel": case("Conv<kernel_shape=[3,2]>(x, w)", X, W),
    "conv with pads": case("Conv<pads=[1,2,0,1], strides=[2,3], dilations=[2,1]>(x, w, b)", X, W),
    "conv in groups": case("Conv<group=2, dilations=[1,2]>(x, w, b)", X, GROUPED),
    **{
        f"conv {auto} by {s} and {d}": case(
            f'Conv<auto_pad="{auto}", strides=[{s}], dilations=[{d}]>(x, w)', X, W
        )
        for auto in AUTO
        for s, d in (("2,1", "1,1"), ("3,2", "1,1"))
    },
    "conv with computed bias": case("Conv(x, w, b)", f"{X}, float[6] b", {"w": W["w"]}),
    "transposed": case("ConvTranspose(x, w, c)", X, TRANSPOSED),
    "transposed with pads": case(
        "ConvTranspose<pads=[1,0,0,1], strides=[2,3], dilations=[1,2]>(x, w)", X, TRANSPOSED
    ),
    "transposed in groups": case("ConvTranspose<group=2, strides=[2,1]>(x, w, b)", X, TRANSPOSED),
    "transposed in computed groups": case(
        "ConvTranspose<group=2, strides=[2,1]>(x, w)", f"{X}, float[4,3,3,2] w"
    ),
    "transposed by computed weights": case("ConvTranspose<strides=[2,1]>(x, w)", f"{X}, float[4,3,3,2] w"),
    "transposed with more": case("ConvTranspose<strides=[3,2], output_padding=[1,0]>(x, w)", X, TRANSPOSED),
    **{
        f"transposed {auto}": case(f'ConvTranspose<auto_pad="{auto}", strides=[2,2]>(x, w)', X, TRANSPOSED)
        for auto in AUTO
    },
    **{
        f"transposed to {shape} {auto}": case(
            f'ConvTranspose<auto_pad="{auto}", strides=[2,2], output_shape=[{shape}]>(x, w)', X, TRANSPOSED
        )
        for auto in ("NOTSET", "SAME_UPPER", "SAME_LOWER")
        for shape in ("14,11", "15,12", "12,9", "13,10")
    },
    "transposed line": case(
        "ConvTranspose<strides=[2], output_shape=[10]>(x, w)", "float[1,4,5] x", {"w": normal(4, 3, 3)}
    ),
}
POOL_X = "float[2,3,7,6] x"
POOLS = {
    "max": case("MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]>(x)", POOL_X),
    "max dilated": case("MaxPool<kernel_shape=[3,2], dilations=[2,3]>(x)", POOL_X),
    "max rounded up": case("MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", POOL_X),
    "max SAME rounded up": case(
        'MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1, auto_pad="SAME_LOWER">(x)', POOL_X
    ),
    "average": case("AveragePool<kernel_shape=[3,2], pads=[1,1,0,1]>(x)", POOL_X),
    "average with pads": case(
        "AveragePool<kernel_shape=[3,2], pads=[1,1,0,1], count_include_pad=1>(x)", POOL_X
    ),
    "average rounded up": case("AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", POOL_X),
    **{
        f"{kind} larger than its input {number}": case(f"{op}ceil_mode=1, {attrs}>(x)", POOL_X)
        for kind, op in (
            ("max", "MaxPool<"),
            ("average", "AveragePool<"),
            ("average with pads", "AveragePool<count_include_pad=1, "),
        )
        for number, attrs in enumerate(
            (
                "kernel_shape=[64,3], strides=[64,1]",
                "kernel_shape=[10,8], strides=[3,2], pads=[1,1,0,0]",
            )
        )
    },
    "dilated larger than its input": case(
        "MaxPool<kernel_shape=[5,2], dilations=[2,1], strides=[3,1], ceil_mode=1>(x)", POOL_X
    ),
    "average VALID": case('AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="VALID">(x)', POOL_X),
    **{f"lp {p}": case(f"LpPool<kernel_shape=[3,2], p={p}>(x)", POOL_X) for p in (1, 2, 3)},
    **{f"global lp {p}": case(f"GlobalLpPool<p={p}>(x)", POOL_X) for p in (1, 2, 3)},
    "global lp by default": case("GlobalLpPool(x)", POOL_X),
    "global average": case("GlobalAveragePool(x)", POOL_X),
    "global max": case("GlobalMaxPool(x)", "float[2,3,7] x"),
    **{
        f"indices {order} of {ports}": RuntimeCase(
            f"y, i = MaxPool<kernel_shape=[{kernel}], strides=[{kernel}], storage_order={order}>(x)",
            ports,
            outputs="y i",
        )
        for order, ports, kernel in (
            (0, "float[2,3,7,6] x", "2,3"),
            (1, "float[2,3,7,6] x", "2,3"),
            (1, "float[2,3,7] x", "2"),
            (0, "float[2,2,4,3,4] x", "2,1,2"),
        )
    },
    "back with strides": case(
        "MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i)",
        "float[1,2,2,2] x, int64[1,2,2,2] i",
        values={"i": np.array([0, 3, 9, 14, 16, 18, 24, 31]).reshape(1, 2, 2, 2)},
    ),
    "back with pads": case(
        "MaxUnpool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,0,0]>(x, i)",
        "float[1,1,2,2] x, int64[1,1,2,2] i",
        values={"i": np.array([0, 3, 9, 14]).reshape(1, 1, 2, 2)},
    ),
}


@pytest.mark.parametrize("name", [*CONVOLUTIONS, *POOLS])
def test_window_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    (CONVOLUTIONS | POOLS)[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (case("Conv(x, w)", "float[2,4] x", {"w": normal(3, 4)}), "its input has rank 2"),
        (case("Conv<strides=[0,1]>(x, w)", X, W), "a window of"),
        (case("Conv<strides=[1]>(x, w)", X, W), "a window of"),
        (case("Conv<dilations=[1,1,1]>(x, w)", X, W), "a window of"),
        (case("Conv<pads=[0,0,1]>(x, w)", X, W), "pads [0, 0, 1]"),
        (case("Conv<pads=[0,0,0,-1]>(x, w)", X, W), "pads [0, 0, 0, -1]"),
        (case("ConvTranspose<group=3>(x, w)", X, TRANSPOSED), "4 input channels in 3 groups"),
    ],
)
def test_window_that_fits_nothing_is_refused(made: RuntimeCase, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        made.load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]


@pytest.mark.parametrize(("shape", "grown"), [([1, 1, 4, 4], 0), ([1, 1, 5, 6], 2), ([1, 1, 4, 3], None)])
def test_unpool_appends_zeros_to_a_larger_shape(shape: list[int], grown: int | None, tmp_path: Path) -> None:
    values = {"i": np.array([0, 3, 9, 14]).reshape(1, 1, 2, 2)}
    result = case(
        "MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i, s)",
        "float[1,1,2,2] x, int64[1,1,2,2] i",
        {"s": shape},
        values=values,
    )
    if grown is None:
        with pytest.raises(MaceError, match=r"output shape \[1, 1, 4, 3\] is smaller than \[1, 1, 4, 4\]"):
            result.load(tmp_path / "m.onnx")
        return
    y = result.compute(tmp_path / "m.onnx")["y"]
    assert y.shape == tuple(shape)
    assert np.flatnonzero(y[0, 0, :4, :4].reshape(-1)).tolist() == [0, 3, 9, 14]
    assert np.count_nonzero(y) == 4
