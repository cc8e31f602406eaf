"""Convolutions: products over the channels and taps of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_target_opencl.kernel_operand import QUAD, ImageForm
from mace_target_opencl.lower.finish import finish_steps
from mace_target_opencl.lower.packing import WeightOrder, pack
from mace_target_opencl.lower.product import MatrixProduct, enqueue_finished
from mace_target_opencl.lower.sizes import read_request
from mace_target_opencl.lower.windows import (
    WindowKernel,
    drop_padded,
    enqueue_windows,
    list_axes,
    reaches_over,
)
from mace_target_opencl.lower.winograd import enqueue_winograd, read_tile
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.types import need_floats
from mace_target_opencl.views import View


def conv(node: Node, lowering: Lowering) -> None:
    """Any convolution of f32."""
    w = lowering.tensors[node.inputs[1]]
    attrs = node.attributes(ConvAttributes)
    if _is_depthwise(node, lowering):
        _depthwise(node, lowering, Windows.of(w.shape[1:-1], attrs))
        return
    need_floats(lowering.tensors[node.inputs[0]], w)
    tile = read_tile(node, lowering)
    # Winograd's kernels compute in buffers.
    if tile and not _requests_images(lowering):
        enqueue_winograd(lowering, node, tile)
    else:
        _enqueue_conv(node, lowering, transposed=False)


def conv_transpose(node: Node, lowering: Lowering) -> None:
    """Any transposed convolution of f32: each result gathers the elements that would add to it."""
    _enqueue_conv(node, lowering, transposed=True)


def _enqueue_conv(node: Node, lowering: Lowering, *, transposed: bool) -> None:
    need_floats(*(lowering.tensors[name] for name in node.inputs[:2]))
    order, form = order_filters(node, lowering), None
    if _uses_images(lowering):
        form = _shape_filters(node, lowering, order)
    if form is not None:
        _, outputs, taps, depth = order.shape
        order = WeightOrder((outputs // QUAD, QUAD, taps, depth), (0, 2, 3, 1), form)
    filters = pack(lowering, node, node.inputs[1], order)
    product = plan_conv(node, lowering, filters, transposed=transposed)
    joins = choose_join(node, lowering, product)
    enqueue_finished(lowering, node, replace(product, filters=form, depthwise=joins))


def choose_join(node: Node, lowering: Lowering, product: MatrixProduct) -> bool | None:
    """Tell whether a candidate joins a product with the depthwise convolution before it; None: no choice.

    Raises Refused where a candidate asks for one kernel, and there is no such convolution.
    """
    request = read_request(lowering).depthwise
    has_choice = request is not None and not product.axes and _follows_depthwise(node, lowering)
    if request and not has_choice:
        reason = "only a pointwise convolution behind a depthwise one is computed in its kernel"
        raise Refused(reason, code="shape", remedy="leave the choice to the target")
    return request if has_choice else None


def _follows_depthwise(node: Node, lowering: Lowering) -> bool:
    """Tell whether a node reads a depthwise convolution, or ops on each element of one."""
    # Whether the kernels can be one is for `join_depthwise`, which sees them.
    writers = {other.outputs[0]: other for other in lowering.graph.nodes if other.outputs}
    writer = writers.get(node.inputs[0])
    while writer is not None and writer.op.name != "Conv":
        is_map = writer.inputs and lowering.shape(writer.inputs[0]) == lowering.shape(writer.outputs[0])
        writer = writers.get(writer.inputs[0]) if is_map else None
    return writer is not None and _is_depthwise(writer, lowering)


def _is_depthwise(node: Node, lowering: Lowering) -> bool:
    w, attrs = lowering.tensors[node.inputs[1]], node.attributes(ConvAttributes)
    return attrs.group > 1 and w.shape[-1] == 1 and w.shape[0] == attrs.group


def _uses_images(lowering: Lowering) -> bool:
    options = lowering.parameters
    return isinstance(options, OpenclOptions) and options.uses_images


def _requests_images(lowering: Lowering) -> bool:
    """Tell whether a candidate asks for images, which refuses what has none."""
    return bool(read_request(lowering).images)


def _shape_filters(node: Node, lowering: Lowering, order: WeightOrder) -> ImageForm | None:
    """Return the image of a convolution's filters; None where they do not fit one.

    Raises Refused in place of None where a candidate asks for images.
    """
    # product.cl.in reads such filters by fours of inputs and outputs, without an offset for each group.
    group, outputs, taps, depth = order.shape
    form = ImageForm(outputs // QUAD * taps, depth)
    is_constant = lowering.constant(node.inputs[1]) is not None
    if group == 1 and outputs % QUAD == 0 and depth % QUAD == 0 and is_constant and form.fits:
        return form
    if _requests_images(lowering):
        _refuse_images("constant filters of one group, with multiples of 4 inputs and outputs")
    return None


def _refuse_images(requirement: str) -> None:
    raise Refused(f"images take {requirement} alone", code="shape", remedy="leave the choice to the target")


def plan_conv(node: Node, lowering: Lowering, filters: str, *, transposed: bool) -> MatrixProduct:
    """Return the product that a convolution is.  filters: in the order of `order_filters`."""
    x, w, y = (lowering.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
    attrs = node.attributes(ConvAttributes)
    windows = Windows.of(w.shape[1:-1], attrs)
    group, depth, columns, taps = attrs.group, w.shape[-1], w.shape[0] // attrs.group, prod(w.shape[1:-1])
    channels = x.shape[-1]
    # A window of one element that moves by one sees pixel m where the result has it: rows of a matrix.
    is_pointwise = taps == 1 and x.shape[1:-1] == y.shape[1:-1] and {*windows.strides} == {1}
    is_pointwise = is_pointwise and not any(windows.before)
    axes = () if is_pointwise else drop_padded(list_axes(x, y, windows))
    return MatrixProduct(
        x.name,
        filters,
        y.name,
        prod(y.shape[:-1]),
        columns,
        depth,
        (channels, columns, y.shape[-1]),
        group,
        (View.of([(group, depth)]), View.of([(group, taps * depth * columns)]), View.of([(group, columns)])),
        axes,
        prod(x.shape[1:]),
        # Each tap of a transposed convolution is tested: it may lie between two elements of x.
        bool(axes) and (transposed or any(reaches_over(axis) for axis in axes)),
        transposed,
    )


def order_filters(node: Node, lowering: Lowering) -> WeightOrder:
    """Return the order of filters as [group, taps, depth, columns]."""
    w, group = lowering.tensors[node.inputs[1]], node.attributes(ConvAttributes).group
    shape = (group, w.shape[0] // group, prod(w.shape[1:-1]), w.shape[-1])
    # Columns last: neighboring work-items read neighboring weights.
    return WeightOrder(shape, (0, 2, 3, 1))


def _depthwise(node: Node, lowering: Lowering, windows: Windows) -> None:
    """One filter for each channel."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    need_floats(x)
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    channels = x.shape[-1]
    # Across the channels: neighbors read neighboring weights.
    taps = prod(windows.kernel)
    order, form = WeightOrder((channels, taps), (1, 0)), None
    if _uses_images(lowering):
        form = _shape_depthwise_filters(node, lowering, taps)
    if form is not None:
        order = WeightOrder((channels // QUAD, QUAD, taps), (0, 2, 1), form)
    weights = pack(lowering, node, node.inputs[1], order)
    width = 4 if channels % 4 == 0 else 1
    load = "LOAD4_w" if width > 1 else "LOAD_w"
    kernel = WindowKernel(
        "0",
        f"a + v * {load}(w_at)",
        weights=weights,
        steps=finish_steps(node, y, lowering.tensors[bias] if bias else None),
        others={"bias": bias} if bias else {},
        filters=form,
    )
    enqueue_windows(lowering, node, windows, kernel)


def _shape_depthwise_filters(node: Node, lowering: Lowering, taps: int) -> ImageForm | None:
    """Return the image of a depthwise convolution's filters; None where they do not fit one, or Refused."""
    channels = lowering.shape(node.inputs[0])[-1]
    form = ImageForm(channels // QUAD, taps)
    if channels % QUAD == 0 and lowering.constant(node.inputs[1]) is not None and form.fits:
        return form
    if _requests_images(lowering):
        _refuse_images("constant filters of multiples of 4 channels")
    return None


LOWERINGS: Mapping[str, Lower] = {"Conv": conv, "ConvTranspose": conv_transpose}
