"""Convolutions, pools, products of matrices, norms and cells, against TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, RawAttribute, Value, check, f32, floats, freeze, raw, same

from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu


def const(*values: Any) -> Any:
    """A constant of whole numbers."""
    return np.array(values, np.int32)


def conv(name: str, x: Value, filters: tuple[int, ...], **attrs: RawAttribute) -> Case:
    attrs = {"strides": [1] * 4, "padding": "SAME", **attrs}
    return raw("Conv2D", x, floats(*filters), name=f"Conv2D {name}", **attrs)


CONVOLUTIONS = (
    conv("same", f32(1, 7, 6, 3), (3, 3, 3, 4)),
    conv("valid", f32(2, 7, 6, 3), (3, 2, 3, 4), padding="VALID", strides=[1, 2, 1, 1]),
    conv("strided", f32(1, 7, 6, 3), (3, 3, 3, 4), strides=[1, 2, 3, 1]),
    conv("dilated", f32(1, 9, 9, 3), (3, 3, 3, 4), dilations=[1, 2, 3, 1]),
    conv(
        "explicit",
        f32(1, 7, 6, 3),
        (3, 3, 3, 4),
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 0, 2, 1, 0, 0],
    ),
    conv("grouped", f32(1, 7, 6, 4), (3, 3, 2, 6)),
    raw(
        "Conv2D",
        f32(1, 5, 5, 2),
        f32(3, 3, 2, 4),
        name="Conv2D weights at run time",
        strides=[1] * 4,
        padding="SAME",
    ),
    raw("Conv3D", f32(1, 5, 4, 6, 2), floats(3, 2, 3, 2, 4), strides=[1, 2, 1, 1, 1], padding="SAME"),
    raw("DepthwiseConv2dNative", f32(1, 7, 6, 3), floats(3, 3, 3, 2), strides=[1, 2, 2, 1], padding="SAME"),
    raw(
        "DepthwiseConv2dNative",
        f32(1, 7, 6, 3),
        floats(3, 3, 3, 1),
        strides=[1] * 4,
        padding="VALID",
        name="depthwise",
    ),
    raw(
        "DepthwiseConv2dNative",
        f32(1, 7, 6, 3),
        f32(3, 3, 3, 2),
        strides=[1] * 4,
        padding="SAME",
        name="depthwise at run time",
    ),
    raw(
        "Conv2DBackpropInput",
        const(1, 8, 7, 3),
        floats(3, 3, 3, 4),
        f32(1, 4, 4, 4),
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    raw(
        "Conv2DBackpropInput",
        const(1, 10, 9, 3),
        floats(4, 3, 3, 4),
        f32(1, 4, 4, 4),
        strides=[1, 2, 2, 1],
        padding="VALID",
        name="valid",
    ),
    raw(
        "DepthwiseConv2dNativeBackpropInput",
        const(1, 8, 7, 3),
        floats(3, 3, 3, 2),
        f32(1, 4, 4, 6),
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    raw(
        "Conv3DBackpropInputV2",
        const(1, 4, 4, 6, 2),
        floats(3, 2, 3, 2, 4),
        f32(1, 2, 4, 6, 4),
        strides=[1, 2, 1, 1, 1],
        padding="SAME",
    ),
    Case("conv1d", lambda tf, x: tf.nn.conv1d(x, floats(3, 4, 5), 2, "SAME", dilations=1), [f32(2, 9, 4)]),
    Case("atrous", lambda tf, x: tf.nn.atrous_conv2d(x, floats(3, 3, 4, 5), 2, "SAME"), [f32(1, 9, 7, 4)]),
    Case(
        "separable",
        lambda tf, x: tf.nn.separable_conv2d(x, floats(3, 3, 4, 1), floats(1, 1, 4, 5), [1] * 4, "SAME"),
        [f32(1, 9, 7, 4)],
    ),
)
POOLS = (
    *(
        raw(
            op,
            f32(1, 7, 6, 3),
            name=f"{op} {padding}",
            ksize=[1, 3, 2, 1],
            strides=[1, 2, 2, 1],
            padding=padding,
        )
        for op in ("MaxPool", "AvgPool")
        for padding in ("SAME", "VALID")
    ),
    raw("MaxPoolV2", f32(1, 7, 6, 3), const(1, 3, 2, 1), const(1, 2, 2, 1), padding="SAME"),
    raw("MaxPool3D", f32(1, 5, 4, 6, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 1, 2, 1], padding="SAME"),
    raw("AvgPool3D", f32(1, 5, 4, 6, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 1, 2, 1], padding="VALID"),
    raw("MaxPoolWithArgmax", f32(2, 6, 6, 3), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"),
    raw(
        *("MaxPoolWithArgmax", f32(2, 5, 5, 3)),
        ksize=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        padding="SAME",
        include_batch_in_index=True,
        name="batch",
    ),
)
PRODUCTS = (
    raw("MatMul", f32(3, 4), floats(4, 5)),
    raw("MatMul", f32(4, 3), floats(5, 4), transpose_a=True, transpose_b=True, name="MatMul turned"),
    raw("MatMul", f32(3, 4), f32(4, 5), name="MatMul at run time"),
    raw("BatchMatMul", f32(2, 3, 4), f32(2, 5, 4), adj_y=True),
    raw("BatchMatMulV2", f32(2, 1, 3, 4), floats(3, 4, 5)),
    *(
        Case(
            f"einsum {equation}",
            lambda tf, *x, e=equation: tf.raw_ops.Einsum(inputs=x, equation=e),
            [f32(*s) for s in shapes],
            tolerance=4e-6,
        )
        for equation, shapes in (
            ("ij,jk->ik", ((3, 4), (4, 5))),
            ("abc,cde->abde", ((2, 3, 4), (4, 5, 2))),
            ("BTNH,BSNH->BNTS", ((2, 3, 2, 4), (2, 5, 2, 4))),
            ("bnts,bsnh->btnh", ((2, 2, 3, 5), (2, 5, 2, 4))),
            ("...ij,jk->...ik", ((2, 3, 4), (4, 5))),
            ("i,j->ij", ((3,), (4,))),
            ("ijk->ki", ((2, 3, 4),)),
            ("ii->i", ((4, 4),)),
            ("ij,ij->", ((3, 4), (3, 4))),
        )
    ),
)
SCALE = (floats(3), floats(3, seed=1), floats(3, seed=2), np.abs(floats(3, seed=3)) + np.float32(0.5))
NORMS = (
    *(
        Case(op, lambda tf, x, op=op: getattr(tf.raw_ops, op)(**batch_norm(x))[0], [f32(2, 4, 5, 3)])
        for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
    ),
    Case(
        "BatchNormWithGlobalNormalization",
        lambda tf, x: tf.nn.batch_norm_with_global_normalization(
            x, SCALE[2], SCALE[3], SCALE[1], SCALE[0], 1e-3, True
        ),
        [f32(2, 4, 5, 3)],
    ),
    raw("LRN", f32(1, 3, 4, 8), depth_radius=2, bias=1.5, alpha=0.3, beta=0.7),
    raw("LRN", f32(1, 3, 4, 8), name="LRN as it is"),
    raw("Softmax", f32(3, 5)),
    raw("LogSoftmax", f32(3, 5)),
    raw("L2Loss", f32(3, 5), tolerance=1e-5),
    Case("moments", lambda tf, x: tf.nn.moments(x, [1, 2], keepdims=True), [f32(2, 4, 5, 3)]),
    Case("l2 normalize", lambda tf, x: tf.nn.l2_normalize(x, -1), [f32(3, 5)]),
    Case("gelu", lambda tf, x: tf.nn.gelu(x), [f32(3, 5)]),
    Case("gelu tanh", lambda tf, x: tf.nn.gelu(x, approximate=True), [f32(3, 5)]),
    Case("swish", lambda tf, x: x * tf.sigmoid(x), [f32(3, 5)]),
)


def batch_norm(x: Any) -> dict[str, Any]:
    scale, offset, mean, variance = SCALE
    return {
        "x": x,
        "scale": scale,
        "offset": offset,
        "mean": mean,
        "variance": variance,
        "is_training": False,
        "epsilon": 0.01,
    }


def lstm_weights(width: int, hidden: int) -> dict[str, Any]:
    peepholes = {name: floats(hidden, seed=i) for i, name in enumerate(("wci", "wcf", "wco"))}
    return {"w": floats(width + hidden, 4 * hidden), "b": floats(4 * hidden, seed=7), **peepholes}


def block_cell(tf: Any, x: Any, state: Any, hidden: Any, **attrs: RawAttribute) -> Any:
    made = tf.raw_ops.LSTMBlockCell(x=x, cs_prev=state, h_prev=hidden, **lstm_weights(4, 3), **attrs)
    return [made.cs, made.h, made.o]


def block_layer(tf: Any, form: str, x: Any, length: int, **attrs: RawAttribute) -> Any:
    zeros = {"cs_prev": floats(2, 3), "h_prev": floats(2, 3, seed=1)}
    result = getattr(tf.raw_ops, form)(
        seq_len_max=np.int64(length), x=x, **zeros, **lstm_weights(4, 3), **attrs
    )
    return [result.cs[:length], result.h]


def gru_cell(tf: Any, x: Any, hidden: Any) -> Any:
    return list(
        tf.raw_ops.GRUBlockCell(
            x=x,
            h_prev=hidden,
            w_ru=floats(7, 6),
            w_c=floats(7, 3, seed=1),
            b_ru=floats(6),
            b_c=floats(3, seed=2),
        )
    )


CELLS = (
    Case("LSTMBlockCell", block_cell, [f32(2, 4), f32(2, 3), f32(2, 3)]),
    Case(
        "LSTMBlockCell peepholes",
        lambda tf, *x: block_cell(tf, *x, use_peephole=True, cell_clip=0.4, forget_bias=0.5),
        [f32(2, 4), f32(2, 3), f32(2, 3)],
    ),
    Case("BlockLSTM", lambda tf, x: block_layer(tf, "BlockLSTM", x, 5), [f32(5, 2, 4)]),
    Case(
        "BlockLSTM short", lambda tf, x: block_layer(tf, "BlockLSTM", x, 3, use_peephole=True), [f32(5, 2, 4)]
    ),
    Case("BlockLSTMV2", lambda tf, x: block_layer(tf, "BlockLSTMV2", x, 5), [f32(5, 2, 4)]),
    Case("GRUBlockCell", gru_cell, [f32(2, 4), f32(2, 3)]),
)
REDUCTIONS = (
    *(
        raw(op, f32(2, 3, 4), const(-1, 0), name=op, tolerance=4e-6)
        for op in ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm")
    ),
    raw("Mean", f32(2, 3, 4), const(1), keep_dims=True, name="Mean kept"),
    raw("Sum", f32(2, 3, 4), np.zeros(0, np.int32), name="Sum of nothing"),
    raw("ArgMax", f32(2, 3, 4), np.int32(1)),
    raw("ArgMin", f32(2, 3, 4), np.int32(-1), output_type=np.int32),
    raw("Cumsum", f32(2, 5), np.int32(1), exclusive=True, reverse=True),
    raw("Cumprod", f32(2, 5), np.int32(1), exclusive=True),
    Case("logsumexp", lambda tf, x: tf.reduce_logsumexp(x, 1), [f32(3, 5)]),
)
CASES = (*CONVOLUTIONS, *POOLS, *PRODUCTS, *NORMS, *CELLS, *REDUCTIONS)
COMPILED = (
    "Conv2D grouped",
    "depthwise",
    "Conv2DBackpropInput",
    "MaxPool SAME",
    "AvgPool SAME",
    "atrous",
    "BlockLSTM",
    "GRUBlockCell",
    "LRN",
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path, tf: Any) -> None:
    check(case, tmp_path, tf)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_through_c(tmp_path: Path, tf: Any) -> None:
    check_graphs(Cpu(), [check(case, tmp_path, tf) for case in CASES if case.name in COMPILED], tmp_path)


FORMS = {
    "conv": lambda tf, x, **how: tf.raw_ops.Conv2D(
        input=x, filter=floats(3, 3, 4, 5), padding="SAME", **both(how, strides=(2, 1))
    ),
    "dilated": lambda tf, x, **how: tf.raw_ops.Conv2D(
        input=x, filter=floats(3, 3, 4, 5), padding="SAME", **both(how, strides=(1, 1), dilations=(1, 2))
    ),
    "explicit": lambda tf, x, **how: tf.raw_ops.Conv2D(
        input=x,
        filter=floats(3, 3, 4, 5),
        padding="EXPLICIT",
        explicit_paddings=[0] * 4 + [1, 0, 2, 1] if how else [0, 0, 1, 0, 2, 1, 0, 0],
        **both(how, strides=(1, 1)),
    ),
    "depthwise": lambda tf, x, **how: tf.raw_ops.DepthwiseConv2dNative(
        input=x, filter=floats(3, 3, 4, 2), padding="SAME", **both(how, strides=(2, 2))
    ),
    "transposed": lambda tf, x, **how: tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[1, 3, 14, 6] if how else [1, 14, 6, 3],
        filter=floats(3, 3, 3, 4),
        out_backprop=x,
        padding="SAME",
        **both(how, strides=(2, 1)),
    ),
    "max pool": lambda tf, x, **how: tf.raw_ops.MaxPool(
        input=x, padding="SAME", **both(how, ksize=(3, 2), strides=(2, 1))
    ),
    "average pool": lambda tf, x, **how: tf.raw_ops.AvgPool(
        value=x, padding="VALID", **both(how, ksize=(3, 2), strides=(2, 1))
    ),
    "bias": lambda tf, x, **how: tf.raw_ops.BiasAdd(value=x, bias=floats(4), **how),
    "batch norm": lambda tf, x, **how: (
        tf.raw_ops.FusedBatchNormV3(
            **{
                **batch_norm(x),
                **{
                    k: np.resize(v, 4)
                    for k, v in zip(("scale", "offset", "mean", "variance"), SCALE, strict=True)
                },
            },
            **how,
        ).y
    ),
    "depth to space": lambda tf, x, **how: tf.raw_ops.DepthToSpace(input=x, block_size=2, **how),
    "space to depth": lambda tf, x, **how: tf.raw_ops.SpaceToDepth(
        input=x[:, :, :6] if how else x[:, :6], block_size=2, **how
    ),
}


def both(how: dict[str, Any], **spatial: tuple[int, int]) -> dict[str, Any]:
    """Attributes with a value for each axis, in the order of axes that is asked for."""
    return {**how, **{key: [1, 1, *values] if how else [1, *values, 1] for key, values in spatial.items()}}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_channels_first(form: str, tmp_path: Path, tf: Any) -> None:
    """TensorFlow computes channels first on GPUs only: it computes the same with channels last, between two transposes."""
    first, last = (0, 3, 1, 2), (0, 2, 3, 1)
    x = f32(1, 4, 7, 6)
    plain = Case("last", lambda tf, x: tf.transpose(FORMS[form](tf, tf.transpose(x, last)), first), [x])
    expected = freeze(plain, tmp_path, tf).expected(plain.arrays())["out0"]
    graph = freeze(
        Case("first", lambda tf, x: FORMS[form](tf, x, data_format="NCHW"), [x]), tmp_path, tf
    ).graph()
    same(execute(graph, plain.arrays())["out0"], expected, 4e-6, form)
