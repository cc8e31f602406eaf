"""Streaming: layers that begin before the layer before them has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_target_max78000.device import STREAM_LAYERS
from mace_target_max78000.legal.site import Fault, Site, size
from mace_target_max78000.network import Operation

MOST_PASSES = 16
MOST_POSITIONS = 1 << 21


def streaming_faults(sites: Sequence[Site]) -> Iterator[Fault]:
    """All faults of the streaming layers."""
    streaming = [site for site in sites if site.place.streaming]
    if not streaming:
        return
    options = sites[0].options
    if not (options.fifo or options.fast_fifo):
        yield Fault("", "streaming", "a FIFO", "none", "ask for fifo, or remove streaming")
    for expected, site in enumerate(streaming):
        if site.index != expected:
            remedy = f"stream in {sites[expected].layer.name} as well, or not here"
            yield site.fault(
                "streaming", "streaming in all layers before", f"none in {sites[expected].layer.name}", remedy
            )
            break
    if len(streaming) > STREAM_LAYERS:
        remedy = f"remove it from {streaming[STREAM_LAYERS].layer.name} on"
        yield streaming[STREAM_LAYERS].fault(
            "streaming", f"at most {STREAM_LAYERS} layers", f"{len(streaming)}", remedy
        )
    passes = 0
    for site in streaming:
        yield from _layer(site)
        if passes >= MOST_PASSES:
            yield site.fault(
                "streaming",
                f"at most {MOST_PASSES - 1} passes in the layers before",
                str(passes),
                "stream in fewer layers",
            )
        passes += site.unit.in_passes
    yield from _last(streaming[-1])


def _layer(site: Site) -> Iterator[Fault]:
    layer = site.layer
    if layer.flatten:
        yield site.fault("streaming", "no flattening", "flatten", "end streaming in the layer before")
    if site.device.pipelined and (layer.operation in (Operation.PASSTHROUGH, Operation.LINEAR)):
        yield site.fault(
            "streaming",
            f"a convolution on the {site.device.name}",
            layer.operation.value,
            "use conv2d, or end streaming before",
        )
    if site.index and layer.inputs != (site.index - 1,):
        yield site.fault(
            "in_sequences",
            "the layer before, where it streams",
            "another",
            "stream only where each layer reads the one before",
        )
    positions = layer.dim[0] * layer.dim[1] * site.unit.in_passes
    if positions >= MOST_POSITIONS:
        found = f"{size(layer.dim)} in {site.unit.in_passes} passes"
        yield site.fault(
            "in_dim", f"fewer than {MOST_POSITIONS} positions in all passes", found, "make the input smaller"
        )


def _last(site: Site) -> Iterator[Fault]:
    """On the first generation the last streaming layer must have padding.

    A 1x1 kernel gets it by becoming 3x3.
    """
    layer = site.layer
    padded = layer.pad[0] > 0 or (layer.operation is Operation.CONV2D and layer.kernel == (1, 1))
    if not site.device.pipelined and not padded:
        yield site.fault(
            "pad",
            f"1 or 2 in the last streaming layer on the {site.device.name}",
            "0",
            "pad, or end streaming in another layer",
        )
