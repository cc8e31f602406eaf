"""Checks sizes, windows, kernels, and combinations of operations.

Source of the limits: the vendor's document, "Limitations of MAX78000 Networks" and "Limitations of MAX78002
Networks".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mace_frontend_ai8x.network import Activation, Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size

MAX_POOL = 16
MAX_FLATTENED = 16384
MAX_FLAT_POSITIONS = 256
"""Rows times columns that a flattened layer joins."""
MAX_KERNEL_1D = 9
KERNELS: Mapping[Operation, tuple[tuple[int, int], ...]] = {
    Operation.CONV2D: ((1, 1), (3, 3)),
    Operation.CONV_TRANSPOSE2D: ((3, 3),),
}
MAX_PADS: Mapping[Operation, int] = {Operation.CONV1D: 3, Operation.CONV2D: 2, Operation.CONV_TRANSPOSE2D: 2}
SPLIT_LAYER = "split the layer, or let several layers do it"


def find_window_faults(site: LayerContext) -> list[Fault]:
    """Faults of one layer's windows, kernels and groups, whatever the size of its input."""
    return [
        fault for rule in (_check_pool, _check_kernel, _check_dilation, _check_groups) for fault in rule(site)
    ]


def find_size_faults(site: LayerContext) -> list[Fault]:
    """Faults that follow from the size of a layer's input."""
    return [fault for rule in (_check_sizes, _check_wide_pool, _check_flatten) for fault in rule(site)]


def _check_sizes(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.one_dimensional and layer.dim[1] != 1:
        yield site.fault(
            "in_dim",
            "one-dimensional data",
            format_size(layer.dim),
            f"write in_dim: {layer.dim[0] * layer.dim[1]}",
        )
    elif fault := _check_dimensions(site):
        yield fault
    for key, channels in (("in_channels", layer.channels), ("out_channels", layer.out_channels)):
        if not 1 <= channels <= site.device.channels:
            yield site.fault(key, f"1 to {site.device.channels}", str(channels), SPLIT_LAYER)


def _check_dimensions(site: LayerContext) -> Fault | None:
    """The first step from input to output whose rows or columns are too few or too many."""
    layer, largest = site.layer, site.device.largest
    limit = f"at most {largest} rows and columns on the {site.device.name}"
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
        found = f"kernel {format_size(layer.kernel)} with pad {layer.pad[0]} on {format_size(layer.pooled)}"
        return site.fault(
            "pad", "an output of at least one row and column", found, "raise pad, or pool less before"
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
        # its counters run over twice the rows and columns of the input, of which a pool would skip the
        # inserted ones
        key = "pool_stride" if layer.window[0] == (1, 1) else _pool_key(site)
        found = (
            f"stride {stride}"
            if layer.window[0] == (1, 1)
            else f"{format_size(layer.window[0])} with stride {stride}"
        )
        remedy = "pool in a layer of its own before it, operation: passthrough"
        yield site.fault(key, "no pool before a transposed convolution", found, remedy)
    if pool is None:
        return
    if not all(1 <= n <= MAX_POOL for n in pool.size):
        yield site.fault(
            _pool_key(site),
            f"1 to {MAX_POOL} in each direction",
            format_size(pool.size),
            "pool in several layers",
        )
    if pool.dilation != (1, 1) and not site.device.pipelined:
        yield site.fault(
            "pool_dilation",
            f"1 on the {site.device.name}",
            format_size(pool.dilation),
            "use a MAX78002, or another window",
        )
    elif pool.dilation != (1, 1) and any(
        (s - 1) * d >= MAX_POOL for s, d in zip(pool.size, pool.dilation, strict=True)
    ):
        found = f"{format_size(pool.size)} with dilation {format_size(pool.dilation)}"
        yield site.fault("pool_dilation", f"a dilated window of at most {MAX_POOL}", found, "dilate less")


def _check_wide_pool(site: LayerContext) -> Iterator[Fault]:
    """Pooling of several passes, which the first generation does in a convolution only."""
    layer = site.layer
    if layer.pool is None:
        return
    if (
        layer.operation is Operation.PASSTHROUGH
        and layer.channels > 64
        and not site.device.pipelined
        and layer.pooled != (1, 1)
    ):
        found = f"{layer.channels} channels pooled to {format_size(layer.pooled)}"
        expected = f"at most 64 channels, or results of 1x1, where nothing follows the pool on the {site.device.name}"
        yield site.fault(
            _pool_key(site), expected, found, "pool in the layer of the convolution that follows"
        )


def _check_kernel(site: LayerContext) -> Iterator[Fault]:
    layer, operation = site.layer, site.layer.operation
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
    if not all(0 <= p <= MAX_PADS.get(operation, 0) for p in layer.pad):
        most = MAX_PADS.get(operation, 0)
        yield site.fault(
            "pad", f"0 to {most}" if most else "0", str(layer.pad[0]), "pad less, or in an earlier layer"
        )
    elif operation is Operation.CONV1D and layer.pad[0] and layer.channels > 64 and site.device.pipelined:
        expected = f"0 with more than 64 input channels on the {site.device.name}"
        yield site.fault(
            "pad", expected, str(layer.pad[0]), "pad in an earlier layer, or use at most 64 channels"
        )


def _check_dilation(site: LayerContext) -> Iterator[Fault]:
    layer, (length, _) = site.layer, site.layer.kernel
    if layer.dilation == (1, 1):
        return
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
    if (length - 1) * dilation < MAX_KERNEL_1D:
        return
    if length > 3:
        yield site.fault("dilation", "1 for kernels longer than 3", str(dilation), "use a kernel of 1 to 3")
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
        found = f"kernel of {length} dilated by {dilation}"
        yield site.fault(
            "dilation",
            f"a dilated kernel of at most {MAX_KERNEL_1D} after pooling",
            found,
            "pool in a layer before",
        )
    least = 4 * dilation * site.unit.out_passes * (length == 3)
    if site.place.out_offset < least:
        remedy = f"write out_offset: {least:#06x} or more"
        expected = f"at least {least:#06x}: so many bytes before the results are written over"
        yield site.fault("out_offset", expected, f"{site.place.out_offset:#06x}", remedy)


def _check_groups(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.groups == 1:
        return
    if not site.device.pipelined:
        remedy = "use a full convolution whose other weights are zero"
        yield site.fault("groups", f"1 on the {site.device.name}", str(layer.groups), remedy)
    elif layer.operation not in (Operation.CONV1D, Operation.CONV2D):
        yield site.fault("groups", f"1 in {layer.operation.value}", str(layer.groups), "use conv1d or conv2d")
    elif not layer.groups == layer.channels == layer.out_channels:
        found = f"{layer.groups} with {layer.channels} input and {layer.out_channels} output channels"
        yield site.fault(
            "groups",
            "1, or as many as input and output channels",
            found,
            f"write groups: {layer.channels}, or remove it",
        )


def _check_flatten(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if not layer.flatten:
        return
    if layer.operation is not Operation.LINEAR:
        yield site.fault("flatten", "a linear layer", layer.operation.value, "write operation: linear")
    if layer.pool or layer.stride > 1:
        found = f"{_pool_key(site)} {format_size(layer.window[0])} with stride {layer.window[2]}"
        yield site.fault(
            "flatten", "no pooling in the same layer", found, "pool in a layer before, operation: passthrough"
        )
    positions = layer.dim[0] * layer.dim[1]
    if positions > MAX_FLAT_POSITIONS:
        yield site.fault(
            "flatten",
            f"at most {MAX_FLAT_POSITIONS} rows times columns",
            format_size(layer.dim),
            "pool more before",
        )
    elif positions * layer.channels > MAX_FLATTENED:
        found = f"{layer.channels} channels of {format_size(layer.dim)}"
        yield site.fault(
            "flatten", f"at most {MAX_FLATTENED} values", found, "pool more before, or use fewer channels"
        )


def find_output_faults(site: LayerContext) -> Iterator[Fault]:
    """Faults of what a layer makes of its sums."""
    layer = site.layer
    if layer.wide and not site.convolves:
        yield site.fault(
            "output_width",
            "8 in a passthrough layer",
            "32",
            "give the layer a convolution, or remove output_width",
        )
    if layer.activation is not Activation.NONE:
        word = layer.activation.value
        if layer.wide:
            yield site.fault("activate", "none with output_width 32", word, "remove one of them")
        if not site.convolves:
            yield site.fault("activate", "none in a passthrough layer", word, "activate in the layer before")
