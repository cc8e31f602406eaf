"""Padding along lines of more than 64 channels, which the second generation lacks, as that of images one column wide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match
from mace_target_max78000.automatic.forming.convolutions import UNIT, plain, unit_filters
from mace_target_max78000.device import PROCESSORS

KERNEL = 3
"""The kernel of an image."""


def line(match: Match) -> Sequence[str] | None:
    """A convolution of three neighbours or fewer over an image, any longer one after copies that pad."""
    node = match.node
    if node.op.name != "Conv" or len(match.shape(0)) != 3 or match.shape(0)[-1] <= PROCESSORS:
        return None
    pad, w = integers(node.attrs, "pads_before")[0], match.new.weights[node.inputs[1]]
    if not pad:
        return None
    if w.shape[1] == KERNEL and pad <= 2:
        return _as_image(match, w, pad)
    x = node.inputs[0]
    for _ in range(pad):
        x = _padded(match, x)
    return match.emit("Conv", [x, *node.inputs[1:]], {**node.attrs, **plain((0,))})


def _as_image(match: Match, w: Array, pad: int) -> Sequence[str]:
    """The kernel as the middle column of an image's, which is padded by one column on both sides."""
    node, new = match.node, match.new
    filters = np.zeros((len(w), KERNEL, KERNEL, w.shape[-1]), w.dtype)
    filters[:, :, 1] = w
    weight = new.weight(f"{node.inputs[1]}.image", filters, new.tensors[node.inputs[1]].quant)
    attrs = {**node.attrs, **plain((pad, 1))}
    name = new.stored(f"{node.name}.image", new.storages.get(node.outputs[0]))
    made = new.one(
        "Conv", [_image(match, node.inputs[0]), weight, *node.inputs[2:]], attrs, outputs=[name], like=node
    )
    rows = new.shape(made)[1]
    return match.emit("Reshape", [made], {"shape": (1, rows, len(w))})


def _image(match: Match, x: str) -> str:
    _, length, channels = match.new.shape(x)
    return match.new.one("Reshape", [x], {"shape": (1, length, 1, channels)})


def _padded(match: Match, x: str) -> str:
    """One zero more at both ends."""
    new = match.new
    _, length, channels = new.shape(x)
    weight = new.weight(f"{match.node.name}.unit", unit_filters(channels, [[1], [1]], KERNEL), UNIT)
    name = new.stored(f"{match.node.name}.padded", new.tensors[x].storage)
    made = new.one("Conv", [_image(match, x), weight], plain((2, 1)), outputs=[name])
    return new.one("Reshape", [made], {"shape": (1, length + 2, channels)})
