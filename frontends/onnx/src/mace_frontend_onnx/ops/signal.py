"""Spectra; and operators that draw random numbers, which a library does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.model_file import element_type
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)

DEFAULT_DFT_AXIS = -2
"""The axis of a DFT without input 2: the last one has real and imaginary parts."""


def _dft(node: OnnxNode) -> Sequence[Result]:
    # DFT: the axis is an attribute before operator set 20 and input 2 from then on.
    axis = node.attr("axis") if node.opset < 20 else DEFAULT_DFT_AXIS
    if node.opset >= 20 and node.has(2):
        (axis,) = node.ints(2, "axis")
    axis = node.axis(axis, len(node.shape(0)))
    inverse, onesided = bool(node.attr("inverse")), bool(node.attr("onesided"))
    length = node.shape(0)[axis]
    if node.has(1):
        length = node.ints(1, "length")[0]
    elif inverse and onesided:
        # Half a spectrum of n + 1 bins belongs to a signal of 2 n samples.
        length = 2 * (length - 1)
    attrs = {"axis": axis, "length": length, "inverse": inverse, "onesided": onesided}
    return node.done("DFT", [node.input(0)], attrs)


def _stft(node: OnnxNode) -> Sequence[Result]:
    """Express STFT by frames of a signal [N, time, 1 or 2], each times the window, and their DFT."""
    (step,) = node.ints(1, "frame step")
    node.refuse_unless(node.has(2) or node.has(3), "it has neither a window nor a frame length")
    # STFT: frame_length is optional, then the window tells.
    length = node.ints(3, "frame length")[0] if node.has(3) else node.shape(2)[0]
    attrs = {
        "kernel": (length,),
        "strides": (step,),
        "pads_before": (0,),
        "pads_after": (0,),
        "dilations": (1,),
    }
    columns = node.emit("Im2Col", [node.input(0)], attrs, tag="columns")
    batch, count, _ = node.builder.shape(columns)
    shape = (batch, count, length, node.shape(0)[2])
    frames = node.emit("Reshape", [columns], {"shape": shape}, tag="frames")
    if node.has(2):
        problem = f"a window of {node.shape(2)[0]} for frames of {length}"
        node.refuse_unless(node.shape(2) == (length,), problem)
        window = node.emit("Reshape", [node.input(2)], {"shape": (length, 1)}, tag="window")
        frames = node.emit("Mul", [frames, window], tag="weighted")
    onesided = bool(node.attr("onesided"))
    return node.done("DFT", [frames], {"axis": 2, "length": length, "onesided": onesided})


def _mel_weights(node: OnnxNode) -> Sequence[Result]:
    """Return triangles over the bins of a spectrum, evenly apart in mel, [length // 2 + 1, bins]."""
    names = ("number of bins", "length", "sample rate", "lower edge", "upper edge")
    count, length, rate, *edges = (
        node.constant(i, name).reshape(-1)[0].item() for i, name in enumerate(names)
    )
    # MelWeightMatrix: mel = 2595 log10(1 + f / 700); the edges of the triangles are rounded down to bins.
    low, high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    mels = low + np.arange(count + 2) * (high - low) / (count + 2)
    bins = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate).astype(np.int64)
    is_inside = bins[-1] <= length // 2 and bins[0] >= 0
    node.refuse_unless(is_inside, f"edges {edges} lie outside the spectrum of {rate} Hz")
    weights = np.zeros((length // 2 + 1, count))
    for i, (left, middle, right) in enumerate(zip(bins, bins[1:], bins[2:], strict=False)):
        rising, falling = np.arange(left, middle), np.arange(middle, right)
        # Two edges may fall into one bin, which makes one side of the triangle empty.
        weights[rising, i] = (rising - left) / max(middle - left, 1)
        weights[middle, i] = 1
        weights[falling, i] = (right - falling) / max(right - middle, 1)
    dtype = element_type(node.attr("output_datatype")) or DType.F32
    return [node.builder.weight(node.output_name(), weights.astype(dtype.numpy))]


def _random(node: OnnxNode) -> Sequence[Result]:
    problem = "it draws random numbers, and a library computes the same result from the same inputs"
    raise RefusedError(f"{problem}; cut the graph behind it, and pass the numbers as an input")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"DFT": _dft, "MelWeightMatrix": _mel_weights, "STFT": _stft, **dict.fromkeys(RANDOM, _random)}
)
