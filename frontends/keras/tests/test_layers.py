"""Every layer beside Keras itself, in both formats."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import Case, check

IMAGE, ROW, STEPS = (9, 7, 6), (6,), (7, 6)
SMALL, VOLUME = (4, 5, 3), (5, 4, 6, 2)


def layer(name: str, *args: object, on: object = IMAGE, label: str = "", **settings: object) -> Case:
    """A layer with these settings; on: the shape of its input, or of several."""
    shapes = on if isinstance(on, list) else [on]
    text = ",".join([*map(str, args), *(f"{k}={v}" for k, v in settings.items())])
    title = label or f"{name}({text})"
    if len(shapes) > 1:
        return Case(title, lambda k: lambda *x: getattr(k.layers, name)(*args, **settings)(list(x)), shapes)
    return Case(title, lambda k: getattr(k.layers, name)(*args, **settings), shapes)


def cubic(case: Case) -> Case:
    """TensorFlow rounds the places of the taps to a 1024th of a pixel, which its result shows."""
    return replace(case, tolerance=4e-3)


def both_ways(mode: str | None, steps: bool) -> Case:
    name = f"Bidirectional-{mode}-{steps}"
    return Case(
        name,
        lambda k: k.layers.Bidirectional(k.layers.LSTM(4, return_sequences=steps), merge_mode=mode),
        [STEPS],
    )


def cell(name: str) -> Case:
    return Case(
        f"RNN-{name}", lambda k: k.layers.RNN(getattr(k.layers, name)(4), return_sequences=True), [STEPS]
    )


def heads(
    label: str, *shapes: tuple[int, ...], call: dict[str, object] | None = None, **settings: Any
) -> Case:
    """Attention of two heads of three features, on itself where there is one input."""

    def make(k: Any) -> Callable[..., Any]:
        return lambda *x: k.layers.MultiHeadAttention(2, 3, **settings)(
            *(x * 2 if len(x) == 1 else x), **(call or {})
        )

    return Case(f"MultiHeadAttention-{label}", make, shapes)


FUNCTIONS = (
    *(
        "linear",
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "gelu",
        "tanh",
        "sigmoid",
        "hard_sigmoid",
        "silu",
        "hard_silu",
        "softplus",
    ),
    *(
        "softsign",
        "exponential",
        "mish",
        "leaky_relu",
        "softmax",
        "log_softmax",
        "log_sigmoid",
        "soft_shrink",
        "hard_shrink",
    ),
    *("hard_tanh", "tanh_shrink", "squareplus", "sparse_plus", "sparse_sigmoid", "glu"),
)
FIRST = {"data_format": "channels_first"}

PRODUCTS = (
    layer("Dense", 4, on=ROW),
    layer("Dense", 4, on=STEPS, activation="relu"),
    layer("Dense", 4, on=ROW, use_bias=False, activation="hard_silu"),
    layer("Dense", 4, on=IMAGE, activation="squareplus"),
    *(
        layer("EinsumDense", e, s, on=STEPS, bias_axes=b)
        for e, s, b in (("abc,cd->abd", (None, 4), "d"), ("abc,bd->acd", (6, 5), None))
    ),
    layer("EinsumDense", "abc,cde->abde", (None, 2, 3), on=STEPS, bias_axes="de", activation="relu"),
    layer("EinsumDense", "...x,xy->...y", 5, on=STEPS, bias_axes="y"),
    Case("Embedding", lambda k: k.layers.Embedding(9, 4), [(5,)], "int32", 0, 9),
    Case("ReversibleEmbedding", lambda k: k.layers.ReversibleEmbedding(9, 4), [(5,)], "int32", 0, 9),
    Case("Embedding-floats", lambda k: k.layers.Embedding(9, 4), [(5,)], "float32", 0, 9),
)
CONVOLUTIONS = (
    *(
        layer("Conv1D", 4, 3, on=STEPS, padding=p, strides=s)
        for p, s in (("valid", 1), ("same", 2), ("causal", 1))
    ),
    layer("Conv1D", 4, 3, on=STEPS, padding="causal", dilation_rate=2, activation="relu"),
    *(layer("Conv2D", 4, (3, 2), padding=p, strides=s) for p in ("valid", "same") for s in (1, (2, 3))),
    layer("Conv2D", 4, 3, dilation_rate=2, activation="relu", use_bias=False),
    layer("Conv2D", 6, 3, groups=3),
    layer("Conv3D", 4, (2, 3, 2), on=VOLUME, padding="same", strides=2),
    layer("DepthwiseConv1D", 3, on=STEPS, depth_multiplier=2),
    layer("DepthwiseConv2D", 3, depth_multiplier=2, strides=2, padding="same", activation="relu6"),
    layer("DepthwiseConv2D", (3, 2)),
    layer("SeparableConv1D", 5, 3, on=STEPS, padding="same", depth_multiplier=2),
    layer("SeparableConv2D", 5, 3, strides=2, activation="relu"),
    *(
        layer("Conv1DTranspose", 4, k, on=STEPS, padding=p, strides=s)
        for p in ("valid", "same")
        for k, s in ((3, 1), (2, 3), (4, 2))
    ),
    *(
        layer("Conv2DTranspose", 4, k, padding=p, strides=s)
        for p in ("valid", "same")
        for k, s in ((3, 2), (2, 3), ((5, 4), 2))
    ),
    layer("Conv2DTranspose", 4, 3, strides=2, padding="same", output_padding=1, activation="relu"),
    layer("Conv2DTranspose", 4, 3, strides=2, padding="valid", output_padding=1),
    layer("Conv3DTranspose", 3, 2, on=VOLUME, strides=2, padding="same"),
)
POOLS = (
    *(
        layer(f"{kind}Pooling{n}D", 2, on=on)
        for kind in ("Max", "Average")
        for n, on in ((1, STEPS), (2, IMAGE), (3, VOLUME))
    ),
    *(layer(f"{kind}Pooling2D", (3, 2), strides=(1, 2), padding="same") for kind in ("Max", "Average")),
    *(layer(f"{kind}Pooling2D", 2, padding="same") for kind in ("Max", "Average")),
    *(
        layer(f"Global{kind}Pooling{n}D", on=on)
        for kind in ("Max", "Average")
        for n, on in ((1, STEPS), (2, IMAGE), (3, VOLUME))
    ),
    *(layer(f"Global{kind}Pooling2D", keepdims=True) for kind in ("Max", "Average")),
    *(layer(f"Adaptive{kind}Pooling2D", (3, 7)) for kind in ("Max", "Average")),
)
NORMS = (
    *(layer("BatchNormalization", axis=a, epsilon=1e-2) for a in (-1, 1, 2)),
    layer("BatchNormalization", scale=False, on=ROW),
    layer("BatchNormalization", center=False, on=STEPS),
    layer("LayerNormalization"),
    *(layer("LayerNormalization", axis=a) for a in (1, [1, 2], [2, 3], [1, 2, 3])),
    layer("LayerNormalization", scale=False, center=False, on=STEPS),
    layer("RMSNormalization", on=STEPS),
    *(layer("GroupNormalization", groups=g, axis=a) for g, a in ((3, -1), (-1, -1), (2, 3), (3, 1))),
    layer("GroupNormalization", groups=2, scale=False, on=ROW),
    *(layer("UnitNormalization", axis=a) for a in (-1, 1, [1, 2])),
    layer("Normalization"),
    layer("Normalization", axis=1, on=SMALL),
    layer("Normalization", axis=None, mean=1.5, variance=2.0),
    layer("Normalization", mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 0.0], on=SMALL),
    layer("Normalization", mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 2.0], invert=True, on=SMALL),
    layer("Rescaling", 1 / 127.5, offset=-1),
    layer("Rescaling", [1.0, 2.0, 3.0], offset=[0.5, 0.0, 1.0], on=SMALL),
)
ACTIVATIONS = (
    *(layer("Activation", name) for name in FUNCTIONS),
    layer("ReLU"),
    layer("ReLU", max_value=1.0),
    layer("ReLU", negative_slope=0.3),
    layer("ReLU", threshold=0.5),
    layer("ReLU", max_value=1.2, negative_slope=0.25, threshold=0.5),
    layer("ReLU", max_value=1.2, negative_slope=0.25),
    layer("LeakyReLU", negative_slope=0.2),
    layer("PReLU"),
    layer("PReLU", shared_axes=[1, 2]),
    layer("ELU", alpha=0.5),
    layer("Softmax"),
    layer("Softmax", axis=1),
    layer("Softmax", axis=[1, 2]),
)
PAIR = [SMALL, SMALL]
MERGES = (
    *(
        layer(name, on=PAIR)
        for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
    ),
    *(layer(name, on=[SMALL, SMALL, SMALL]) for name in ("Add", "Average", "Maximum")),
    layer("Add", on=[SMALL, (3,)], label="Add-broadcast"),
    *(
        Case(
            f"{name}-constant",
            lambda k, name=name: lambda x, y: getattr(k.layers, name)()([x, np.full((1, 6), 2.5, "f"), y]),
            [ROW, ROW],
        )
        for name in ("Add", "Concatenate")
    ),
    layer("Concatenate", axis=1, on=[SMALL, (2, 5, 3)]),
    layer("Dot", axes=1, on=[ROW, ROW]),
    layer("Dot", axes=(2, 1), on=[(4, 3), (3, 5)]),
    layer("Dot", axes=-1, on=[(4, 3), (5, 3)], normalize=True),
)
MOVES = (
    layer("Flatten"),
    layer("Flatten", **FIRST),
    layer("Reshape", (-1, 6)),
    layer("Reshape", (7, 54)),
    layer("Permute", (3, 1, 2)),
    layer("RepeatVector", 3, on=ROW),
    layer("Cropping1D", (1, 2), on=STEPS),
    layer("Cropping2D", ((1, 2), (0, 1))),
    layer("Cropping2D", 2),
    layer("Cropping3D", (1, 1, 2), on=VOLUME),
    layer("ZeroPadding1D", 2, on=STEPS),
    layer("ZeroPadding2D", (1, 2)),
    layer("ZeroPadding2D", ((1, 2), (0, 1)), **FIRST),
    layer("ZeroPadding3D", ((1, 0), (2, 1), (0, 1)), on=VOLUME),
    layer("UpSampling1D", 2, on=STEPS),
    *(layer("UpSampling2D", (2, 3), interpolation=how) for how in ("nearest", "bilinear")),
    cubic(layer("UpSampling2D", (2, 3), interpolation="bicubic")),
    layer("UpSampling2D", 2, **FIRST),
    layer("UpSampling3D", (1, 2, 3), on=VOLUME),
    *(layer("Resizing", 5, 11, interpolation=how) for how in ("nearest", "bilinear")),
    cubic(layer("Resizing", 5, 11, interpolation="bicubic")),
    layer("CenterCrop", 4, 5),
)
TRAINING = (
    "Dropout",
    "SpatialDropout2D",
    "AlphaDropout",
    "GaussianDropout",
    "GaussianNoise",
    "ActivityRegularization",
)
NOTHING = (
    *(layer(name, 0.3) for name in TRAINING),
    layer("SpatialDropout1D", 0.3, on=STEPS),
    layer("SpatialDropout3D", 0.3, on=VOLUME),
    layer("Identity"),
    layer("RandomFlip"),
    layer("RandomRotation", 0.1),
    layer("Masking", 0.5, on=STEPS),
)
RECURRENT = (
    *(
        layer(name, 5, on=STEPS, return_sequences=s)
        for name in ("LSTM", "GRU", "SimpleRNN")
        for s in (False, True)
    ),
    *(
        layer(name, 5, on=STEPS, go_backwards=True, return_sequences=s)
        for name in ("LSTM", "GRU", "SimpleRNN")
        for s in (False, True)
    ),
    *(layer(name, 5, on=STEPS, return_state=True, use_bias=False) for name in ("LSTM", "GRU", "SimpleRNN")),
    *(layer("GRU", 5, on=STEPS, reset_after=False, return_sequences=s) for s in (False, True)),
    layer(
        "LSTM", 5, on=STEPS, activation="relu", recurrent_activation="hard_sigmoid", unroll=True, dropout=0.1
    ),
    layer("SimpleRNN", 5, on=STEPS, activation="leaky_relu"),
    cell("LSTMCell"),
    cell("GRUCell"),
    Case(
        "RNN-stacked",
        lambda k: k.layers.RNN(
            [k.layers.LSTMCell(4), k.layers.LSTMCell(3), k.layers.GRUCell(2)], return_state=True
        ),
        [STEPS],
    ),
    *(both_ways(mode, steps) for mode in ("concat", "sum", "ave", "mul", None) for steps in (False, True)),
    Case(
        "Bidirectional-GRU-states",
        lambda k: k.layers.Bidirectional(k.layers.GRU(4, return_state=True)),
        [STEPS],
    ),
    Case(
        "TimeDistributed-Dense",
        lambda k: k.layers.TimeDistributed(k.layers.Dense(3, activation="relu")),
        [STEPS],
    ),
    Case("TimeDistributed-Conv2D", lambda k: k.layers.TimeDistributed(k.layers.Conv2D(3, 2)), [(3, *SMALL)]),
    Case(
        "LSTM-initial-state",
        lambda k: lambda x, h, c: k.layers.LSTM(4, return_state=True)(x, initial_state=[h, c]),
        [STEPS, (4,), (4,)],
    ),
    Case(
        "GRU-constant-initial-state",
        lambda k: lambda x: k.layers.GRU(4)(x, initial_state=np.full((1, 4), 0.75, np.float32)),
        [STEPS],
    ),
    Case("GRU-initial-state", lambda k: lambda x, h: k.layers.GRU(4)(x, initial_state=h), [STEPS, (4,)]),
)
ATTENTION = (
    heads("self", STEPS),
    heads("three", STEPS, (5, 4), (5, 8), value_dim=4),
    heads("causal", STEPS, call={"use_causal_mask": True}),
    heads("no-bias", STEPS, use_bias=False, output_shape=5),
    heads("image", SMALL),
    Case(
        "MultiHeadAttention-mask",
        lambda k: (
            lambda x, m: k.layers.MultiHeadAttention(2, 3)(
                x, x, attention_mask=m > 0, return_attention_scores=True
            )
        ),
        [STEPS, (7, 7)],
        low=-1.0,
    ),
    *(
        Case(
            f"MultiHeadAttention-constant-mask-{name}",
            lambda k, mask=mask: lambda x: k.layers.MultiHeadAttention(2, 3)(x, x, attention_mask=mask),
            [STEPS],
        )
        for name, mask in (
            ("array", np.tri(7, dtype=bool)[None]),
            ("matrix", np.tri(7, dtype=bool)),
            ("list", np.tri(7, dtype=bool)[None].tolist()),
        )
    ),
    Case("GroupQueryAttention", lambda k: lambda x: k.layers.GroupQueryAttention(3, 4, 2)(x, x), [STEPS]),
    *(
        layer("Attention", on=[STEPS, (5, 6)], **how)
        for how in ({}, {"use_scale": True}, {"score_mode": "concat"})
    ),
    layer("Attention", on=[STEPS, (5, 6), (5, 6)], score_mode="concat", use_scale=True),
    Case("Attention-causal", lambda k: lambda x: k.layers.Attention()([x, x], use_causal_mask=True), [STEPS]),
    layer("AdditiveAttention", on=[STEPS, (5, 6)]),
    layer("AdditiveAttention", on=[STEPS, (5, 6), (5, 6)], use_scale=False),
)
WEIGHED = (*PRODUCTS, *CONVOLUTIONS, *NORMS, *RECURRENT, *ATTENTION)
CASES = (
    *(
        *PRODUCTS,
        *CONVOLUTIONS,
        *POOLS,
        *NORMS,
        *ACTIVATIONS,
        *MERGES,
        *MOVES,
        *NOTHING,
        *RECURRENT,
        *ATTENTION,
    ),
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("case", WEIGHED, ids=lambda c: c.name)
def test_layer_in_the_older_format(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path, ".h5")


@pytest.mark.parametrize(
    "case", [*CONVOLUTIONS[3:7], *RECURRENT[:4], *ATTENTION[:2], *MERGES[:3]], ids=lambda c: c.name
)
def test_batch_of_the_deployment_file(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path, batch=3)
