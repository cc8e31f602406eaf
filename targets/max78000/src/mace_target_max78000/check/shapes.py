"""Checks sizes, windows, kernels, and combinations of operations.

Source of the limits: the vendor's document, "Limitations of MAX78000 Networks" and "Limitations of MAX78002
Networks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mace_frontend_ai8x.network import LayerActivation, Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.device import (
    KERNELS,
    MAX_DILATED_KERNEL_1D,
    MAX_FLATTENED,
    MAX_FLATTENED_POSITIONS,
    MAX_KERNEL_1D,
    MAX_PADS,
    MAX_POOL,
    PROCESSORS,
    WORD_BYTES,
)

SPLIT_LAYER = "split the layer, or let several layers do it"


def find_window_faults(site: LayerContext) -> list[Fault]:
    """Find faults of one layer's windows, kernels and groups, whatever the size of its input."""
    return _run_checks(site, (_check_pool, _check_kernel, _check_dilation, _check_groups))


def find_size_faults(site: LayerContext) -> list[Fault]:
    """Find faults that follow from the size of a layer's input."""
    return _run_checks(site, (_check_sizes, _check_wide_pool, _check_flatten))


def _run_checks(
    site: LayerContext, checks: Sequence[Callable[[LayerContext], Iterator[Fault]]]
) -> list[Fault]:
    """Return the faults that several checks find."""
    faults: list[Fault] = []
    for check in checks:
        faults += check(site)
    return faults


def _check_sizes(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.one_dimensional and layer.dim[1] != 1:
        yield site.fault(
            "in_dim",
            "one-dimensional data",
            format_size(layer.dim),
            f"write in_dim: {layer.dim[0] * layer.dim[1]}",
        )
    # One fault is enough: each size follows from the one before.
    elif fault := _check_dimensions(site):
        yield fault
    for key, channels in (("in_channels", layer.channels), ("out_channels", layer.out_channels)):
        if not 1 <= channels <= site.device.channels:
            yield site.fault(key, f"1 to {site.device.channels}", str(channels), SPLIT_LAYER)


def _check_dimensions(site: LayerContext) -> Fault | None:
    """Return the first step from input to output whose rows or columns are too few or too many."""
    layer, largest = site.layer, site.device.largest
    limit = f"at most {largest} rows and columns on the {site.device.name}"
    # A flattened layer counts positions, not rows.
    if max(layer.dim) > largest and not layer.flatten:
        return site.fault(
            "in_dim", limit, format_size(layer.dim), "fold the data into more channels, or crop them"
        )
    if min(layer.dim) < 1:
        return site.fault(
            "in_dim",
            "at least one row and column",
            format_size(layer.dim),
            "correct in_crop, or the layers before",
        )
    if min(layer.pooled) < 1:
        expected = f"a window inside the input of {format_size(layer.dim)}"
        return site.fault(_pool_key(site), expected, format_size(layer.window[0]), "make the window smaller")
    if min(layer.out_dim) < 1:
        actual = f"kernel {format_size(layer.kernel)} with pad {layer.pad[0]} on {format_size(layer.pooled)}"
        return site.fault(
            "pad", "an output of at least one row and column", actual, "raise pad, or pool less before"
        )
    if max(layer.out_dim) > largest:
        return site.fault(
            "pad", limit, f"an output of {format_size(layer.out_dim)}", "make the input smaller"
        )
    return None


def _pool_key(site: LayerContext) -> str:
    return "avg_pool" if site.layer.pool and site.layer.pool.average else "max_pool"


def _check_pool(site: LayerContext) -> Iterator[Fault]:
    layer, pool = site.layer, site.layer.pool
    stride = pool.stride if pool else layer.stride
    if not 1 <= stride <= MAX_POOL:
        yield site.fault("pool_stride", f"1 to {MAX_POOL}", str(stride), "pool in several layers")
    if layer.operation is Operation.CONV_TRANSPOSE2D and layer.window[0::2] != ((1, 1), 1):
        # Its counters run over twice the rows and columns of the input, of which a pool would skip those that
        # were inserted.
        key = "pool_stride" if layer.window[0] == (1, 1) else _pool_key(site)
        actual = (
            f"stride {stride}"
            if layer.window[0] == (1, 1)
            else f"{format_size(layer.window[0])} with stride {stride}"
        )
        remedy = "pool in a layer of its own before it, operation: passthrough"
        yield site.fault(key, "no pool before a transposed convolution", actual, remedy)
    if pool is None:
        return
    # The fields of PRCNT and PCCNT have four bits, which hold the window less one.
    if not all(1 <= n <= MAX_POOL for n in pool.size):
        yield site.fault(
            _pool_key(site),
            f"1 to {MAX_POOL} in each direction",
            format_size(pool.size),
            "pool in several layers",
        )
    if pool.dilation != (1, 1) and not site.device.features.dilated_pools:
        yield site.fault(
            "pool_dilation",
            f"1 on the {site.device.name}",
            format_size(pool.dilation),
            "use a MAX78002, or another window",
        )
    elif pool.dilation != (1, 1) and any(
        (s - 1) * d >= MAX_POOL for s, d in zip(pool.size, pool.dilation, strict=True)
    ):
        actual = f"{format_size(pool.size)} with dilation {format_size(pool.dilation)}"
        yield site.fault("pool_dilation", f"a dilated window of at most {MAX_POOL}", actual, "dilate less")


def _check_wide_pool(site: LayerContext) -> Iterator[Fault]:
    """Check pools of several passes, which the first generation computes before a convolution only."""
    layer = site.layer
    if layer.pool is None:
        return
    if (
        layer.operation is Operation.PASSTHROUGH
        and layer.channels > PROCESSORS
        and not site.device.features.wide_pools
        and layer.pooled != (1, 1)
    ):
        actual = f"{layer.channels} channels pooled to {format_size(layer.pooled)}"
        where = f"where nothing follows the pool on the {site.device.name}"
        expected = f"at most {PROCESSORS} channels, or results of 1x1, {where}"
        yield site.fault(
            _pool_key(site), expected, actual, "pool in the layer of the convolution that follows"
        )


def _check_kernel(site: LayerContext) -> Iterator[Fault]:
    layer, operation = site.layer, site.layer.operation
    # A word of weight memory holds nine weights of eight bits: one 3x3 kernel, or nine taps of a line.
    if operation is Operation.CONV1D:
        if not 1 <= layer.kernel[0] <= MAX_KERNEL_1D:
            yield site.fault(
                "kernel_size",
                f"1 to {MAX_KERNEL_1D}",
                str(layer.kernel[0]),
                "use several shorter convolutions",
            )
    elif operation in KERNELS and layer.kernel not in KERNELS[operation]:
        allowed = " or ".join(format_size(k) for k in KERNELS[operation])
        remedy = "fill a 2x2 kernel with zeros; use several 3x3 layers for a larger one"
        yield site.fault("kernel_size", allowed, format_size(layer.kernel), remedy)
    max_pad = MAX_PADS.get(operation, 0)
    if not all(0 <= pad <= max_pad for pad in layer.pad):
        yield site.fault(
            "pad",
            f"0 to {max_pad}" if max_pad else "0",
            str(layer.pad[0]),
            "pad less, or in an earlier layer",
        )
    elif (
        operation is Operation.CONV1D
        and layer.pad[0]
        and layer.channels > PROCESSORS
        and not site.device.features.wide_padded_conv1d
    ):
        expected = f"0 with more than 64 input channels on the {site.device.name}"
        yield site.fault(
            "pad", expected, str(layer.pad[0]), "pad in an earlier layer, or use at most 64 channels"
        )


def _check_dilation(site: LayerContext) -> Iterator[Fault]:
    layer, (length, _) = site.layer, site.layer.kernel
    if layer.dilation == (1, 1):
        return
    # Only Conv1d can be rewritten to what the convolver has: a longer kernel, or rows of an image.
    if layer.operation is not Operation.CONV1D:
        yield site.fault(
            "dilation",
            "1; only Conv1d is dilated",
            format_size(layer.dilation),
            "use Conv1d, or undilated layers",
        )
        return
    dilation = layer.dilation[0]
    if length == 1:
        yield site.fault("dilation", "1 for a kernel of one value", str(dilation), "remove dilation")
        return
    # Up to this length the kernel is filled with zeros between its weights, and nothing else changes.
    if (length - 1) * dilation < MAX_KERNEL_1D:
        return
    if length > MAX_DILATED_KERNEL_1D:
        yield site.fault("dilation", "1 for kernels longer than 3", str(dilation), "use a kernel of 1 to 3")
    # A longer one runs as a 3x3 convolution over rows of as many columns as it is dilated.
    if dilation > site.device.largest:
        yield site.fault("dilation", f"at most {site.device.largest}", str(dilation), "dilate less")
    if layer.pad[0]:
        yield site.fault(
            "pad",
            f"0 where a kernel of {length} is dilated by {dilation}",
            str(layer.pad[0]),
            "pad in an earlier layer",
        )
    if layer.pool or layer.stride > 1:
        actual = f"kernel of {length} dilated by {dilation}"
        yield site.fault(
            "dilation",
            f"a dilated kernel of at most {MAX_KERNEL_1D} after pooling",
            actual,
            "pool in a layer before",
        )
    # With three taps the first row of that image holds nothing: the write pointer starts so much lower.
    ignored = WORD_BYTES * dilation * site.unit.out_passes if length == MAX_DILATED_KERNEL_1D else 0
    if site.place.out_offset < ignored:
        remedy = f"write out_offset: {ignored:#06x} or more"
        expected = f"at least {ignored:#06x}: so many bytes before the results are written over"
        yield site.fault("out_offset", expected, f"{site.place.out_offset:#06x}", remedy)


def _check_groups(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.groups == 1:
        return
    # The first generation sums over all channels; it has no kernels for single ones.
    if not site.device.features.depthwise:
        remedy = "use a full convolution whose other weights are zero"
        yield site.fault("groups", f"1 on the {site.device.name}", str(layer.groups), remedy)
    elif layer.operation not in (Operation.CONV1D, Operation.CONV2D):
        yield site.fault("groups", f"1 in {layer.operation.value}", str(layer.groups), "use conv1d or conv2d")
    elif not layer.groups == layer.channels == layer.out_channels:
        actual = f"{layer.groups} with {layer.channels} input and {layer.out_channels} output channels"
        yield site.fault(
            "groups",
            "1, or as many as input and output channels",
            actual,
            f"write groups: {layer.channels}, or remove it",
        )


def _check_flatten(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if not layer.flatten:
        return
    # Flattening reads all positions of a channel as further channels, which only a 1x1 kernel can sum.
    if layer.operation is not Operation.LINEAR:
        yield site.fault("flatten", "a linear layer", layer.operation.value, "write operation: linear")
    if layer.pool or layer.stride > 1:
        actual = f"{_pool_key(site)} {format_size(layer.window[0])} with stride {layer.window[2]}"
        yield site.fault(
            "flatten",
            "no pooling in the same layer",
            actual,
            "pool in a layer before, operation: passthrough",
        )
    # Source: the vendor's limits of flattened layers.
    positions = layer.dim[0] * layer.dim[1]
    if positions > MAX_FLATTENED_POSITIONS:
        yield site.fault(
            "flatten",
            f"at most {MAX_FLATTENED_POSITIONS} rows times columns",
            format_size(layer.dim),
            "pool more before",
        )
    elif positions * layer.channels > MAX_FLATTENED:
        actual = f"{layer.channels} channels of {format_size(layer.dim)}"
        yield site.fault(
            "flatten", f"at most {MAX_FLATTENED} values", actual, "pool more before, or use fewer channels"
        )


def find_output_faults(site: LayerContext) -> Iterator[Fault]:
    """Find faults of what a layer makes of its sums."""
    layer = site.layer
    # A wide output is the accumulator itself, which a layer without weights does not use.
    if layer.wide and not site.convolves:
        yield site.fault(
            "output_width",
            "8 in a passthrough layer",
            "32",
            "give the layer a convolution, or remove output_width",
        )
    if layer.activation is not LayerActivation.NONE:
        word = layer.activation.value
        if layer.wide:
            yield site.fault("activate", "none with output_width 32", word, "remove one of them")
        if not site.convolves:
            yield site.fault("activate", "none in a passthrough layer", word, "activate in the layer before")
