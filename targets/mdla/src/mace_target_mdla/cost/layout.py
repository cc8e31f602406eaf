"""Tensors in the device's memory: which layout they have and how many bytes they take there.

The guide names two layouts, 4C for at most 4 channels and 16C for any number, and its description of both is
lost; that channels are filled up to 4, or to a multiple of 16, is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Graph, Tensor
from mace_target_mdla.operation import TfliteOperation

SMALL = 4
"""Channels that the layout 4C holds at most."""
STEP = 16
PROVENANCE = "inferred: channels are stored in groups of 4 or 16"
ONLY_16C = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "MEAN", "MIRROR_PAD")
"""Operators that the guide gives the layout 16C alone (lines 145, 149, 259 and 254)."""
SAME_LAYOUT = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "CONCATENATION")
"""Operators whose operands all have one layout (line 82)."""


def choose_layouts(graph: Graph) -> Mapping[str, str]:
    """Return the layout of each tensor, "4C" or "16C", for as few conversions as the guide's rules allow."""
    layouts = {
        name: "4C" if channels_of(tensor) <= SMALL else "16C" for name, tensor in graph.tensors.items()
    }
    shared: list[tuple[str, ...]] = []
    for node in graph.nodes:
        operator = TfliteOperation.of(node, graph).operator
        names = (*(name for name in node.inputs if name and name not in graph.weights), *node.outputs)
        if operator in ONLY_16C:
            layouts.update(dict.fromkeys(names, "16C"))
        elif operator in SAME_LAYOUT:
            shared.append(names)
    # Again until nothing changes, because a later operator widens the results of earlier ones.
    before: Mapping[str, str] = {}
    while before != layouts:
        before = dict(layouts)
        for names in shared:
            # The compiler then prefers 16C for all of them, which spares a conversion at run time (guide 82).
            if any(layouts[name] == "16C" for name in names):
                layouts.update(dict.fromkeys(names, "16C"))
    return layouts


def channels_of(tensor: Tensor) -> int:
    """Return the last dimension, which is the channels of an image and the columns of a matrix."""
    return tensor.shape[-1] if tensor.shape else 1


def pad_channels(channels: int, layout: str) -> int:
    """Return the channels that memory holds for so many."""
    return SMALL if layout == "4C" else -(-channels // STEP) * STEP


def element_bytes(tensor: Tensor) -> int:
    """Return the bytes of an element on the device, where floats have 16 bits."""
    return 2 if tensor.dtype.is_float else tensor.dtype.size


def padded_bytes(tensor: Tensor, layout: str) -> int:
    """Return the bytes of a tensor in a layout."""
    channels = pad_channels(channels_of(tensor), layout)
    return prod(tensor.shape[:-1]) * channels * element_bytes(tensor)


def conversion_bytes(tensor: Tensor, layout: str) -> int:
    """Return the bytes read and written to bring a dense tensor of the application into a layout."""
    return tensor.bytes + padded_bytes(tensor, layout)
