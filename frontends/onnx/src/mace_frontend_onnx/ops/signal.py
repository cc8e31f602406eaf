"""Spectra; and what draws random numbers, which a library does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.source import element_type

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


def _dft(node: OnnxNode) -> Sequence[Held]:
    """The axis is an attribute before operator set 20."""
    axis = (node.ints(2, "axis")[0] if node.has(2) else -2) if node.opset >= 20 else node.attr("axis")
    axis = node.axis(axis, len(node.shape(0)))
    inverse, onesided = bool(node.attr("inverse")), bool(node.attr("onesided"))
    count = node.shape(0)[axis]
    length = node.ints(1, "length")[0] if node.has(1) else 2 * (count - 1) if inverse and onesided else count
    return node.done(
        "DFT", [node.input(0)], {"axis": axis, "length": length, "inverse": inverse, "onesided": onesided}
    )


def _stft(node: OnnxNode) -> Sequence[Held]:
    """Frames of a signal [N, time, 1 or 2], each times the window."""
    (step,) = node.ints(1, "frame step")
    node.refuse_unless(node.has(2) or node.has(3), "it has neither a window nor a frame length")
    length = node.ints(3, "frame length")[0] if node.has(3) else node.shape(2)[0]
    windows = {
        "kernel": (length,),
        "strides": (step,),
        "pads_before": (0,),
        "pads_after": (0,),
        "dilations": (1,),
    }
    columns = node.emit("Im2Col", [node.input(0)], windows, tag="columns")
    batch, frames, _ = node.builder.shape(columns)
    seen = node.emit("Reshape", [columns], {"shape": (batch, frames, length, node.shape(0)[2])}, tag="frames")
    if node.has(2):
        node.refuse_unless(
            node.shape(2) == (length,), f"a window of {node.shape(2)[0]} for frames of {length}"
        )
        window = node.emit("Reshape", [node.input(2)], {"shape": (length, 1)}, tag="window")
        seen = node.emit("Mul", [seen, window], tag="weighted")
    return node.done("DFT", [seen], {"axis": 2, "length": length, "onesided": bool(node.attr("onesided"))})


def _mel_weights(node: OnnxNode) -> Sequence[Held]:
    """Triangles over the bins of a spectrum, evenly apart in mel (the operator's page has the scale and the rounding)."""
    names = ("number of bins", "length", "sample rate", "lower edge", "upper edge")
    count, length, rate, *edges = (
        node.constant(i, what).reshape(-1)[0].item() for i, what in enumerate(names)
    )
    low, high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    mels = low + np.arange(count + 2) * (high - low) / (count + 2)
    bins = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate).astype(np.int64)
    node.refuse_unless(
        bins[-1] <= length // 2 and bins[0] >= 0, f"edges {edges} lie outside the spectrum of {rate} Hz"
    )
    weights = np.zeros((length // 2 + 1, count))
    for i, (left, middle, right) in enumerate(zip(bins, bins[1:], bins[2:], strict=False)):
        rising, falling = np.arange(left, middle), np.arange(middle, right)
        weights[rising, i] = (rising - left) / max(middle - left, 1)
        weights[middle, i] = 1
        weights[falling, i] = (right - falling) / max(right - middle, 1)
    dtype = element_type(node.attr("output_datatype")) or DType.F32
    return [node.builder.weight(node.output_name(), weights.astype(dtype.numpy))]


def _random(node: OnnxNode) -> Sequence[Held]:
    text = "it draws random numbers, and a library computes the same result from the same inputs"
    raise RefusedError(f"{text}; cut the graph behind it, and feed the numbers as an input")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"DFT": _dft, "MelWeightMatrix": _mel_weights, "STFT": _stft, **dict.fromkeys(RANDOM, _random)}
)
