"""Checks that concern the attributes of one operator or of one family; see `checks`."""

from __future__ import annotations

from math import prod

from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.resize import ResizeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_target_mdla.operation import TfliteOperation, storage_class
from mace_target_mdla.rules.table import Limits

HEIGHT_AND_WIDTH = (1, 2)


def check_batch_among(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the rows of a matrix product with `values`."""
    result = operation.outputs[0]
    rows = prod(result.shape[:-1])
    return "" if rows in limits["values"] else f"{result.name} has a batch of {rows}"


def check_broadcast(operation: TfliteOperation, limits: Limits) -> str:
    """Report two computed operands of different shapes; a constant may always be the smaller one."""
    shapes = {tensor.shape for tensor in operation.activations}
    if len(shapes) < 2:
        return ""
    return "operands of shapes " + " and ".join(str(list(shape)) for shape in sorted(shapes))


def check_dilation(operation: TfliteOperation, limits: Limits) -> str:
    """Report filters whose elements lie apart."""
    dilations = operation.node.attributes(ConvAttributes).dilations
    return f"the filter is dilated by {list(dilations)}" if max(dilations) > 1 else ""


def check_group(operation: TfliteOperation, limits: Limits) -> str:
    """Report convolutions in several groups; depthwise ones are another operator."""
    group = operation.node.attributes(ConvAttributes).group
    return f"it has {group} groups" if group > 1 else ""


def check_downscale(operation: TfliteOperation, limits: Limits) -> str:
    """Report a result that is smaller than the operand along some axis."""
    shape, sizes = operation.inputs[0].shape, operation.node.attributes(ResizeAttributes).sizes
    is_smaller = any(size < length for size, length in zip(sizes, shape, strict=True))
    return f"{list(shape)} is scaled down to {list(sizes)}" if is_smaller else ""


def check_max_pad(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the padding on each side of height and width with `max`."""
    attributes = operation.node.attributes(PadAttributes)
    for axis in HEIGHT_AND_WIDTH[: len(attributes.before) - 1]:
        size = max(attributes.before[axis], attributes.after[axis])
        if size > limits["max"]:
            return f"axis {axis} is padded by {size}"
    return ""


def check_pad_axes(operation: TfliteOperation, limits: Limits) -> str:
    """Report padding of other axes than `axes`, and of tensors of another number of axes than `rank`."""
    attributes = operation.node.attributes(PadAttributes)
    if len(attributes.before) != limits.get("rank", len(attributes.before)):
        return f"{operation.inputs[0].name} has {len(attributes.before)} axes"
    for axis, sizes in enumerate(zip(attributes.before, attributes.after, strict=True)):
        if any(sizes) and axis not in limits["axes"]:
            return f"axis {axis} is padded"
    return ""


def check_padded_filter(operation: TfliteOperation, limits: Limits) -> str:
    """Report padding beside windows of `filter` elements along each axis."""
    attributes = operation.node.attributes(PoolAttributes)
    has_padding = any((*attributes.pads_before, *attributes.pads_after))
    is_limited = set(attributes.kernel) == {limits["filter"]}
    return f"windows of {list(attributes.kernel)} have padding" if has_padding and is_limited else ""


def check_scale_product(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the product of the scales of input and filter with the scale of a result of `types`.

    The delegate reads one scale of the filter, so filters with several are not compared.
    """
    x, w = operation.inputs[:2]
    result = operation.outputs[0]
    if not (x.quant and w.quant and result.quant) or storage_class(x) not in limits["types"]:
        return ""
    if len(w.quant.scale) > 1:
        return ""
    product, scale = x.quant.scale[0] * w.quant.scale[0], result.quant.scale[0]
    # Equal ones count as well: the guide warns from `>=` on (line 219), and the delegate demands less.
    if product < scale:
        return ""
    return f"the scales of input and filter multiply to {product:g}, and the result's is {scale:g}"


def check_shared_operand(operation: TfliteOperation, limits: Limits) -> str:
    """Report an operand that something else reads as well; only where the readers are counted."""
    for tensor in operation.activations:
        if operation.uses.get(tensor.name, 1) > 1:
            return f"{tensor.name} has {operation.uses[tensor.name]} users"
    return ""


def check_strided_axes(operation: TfliteOperation, limits: Limits) -> str:
    """Report steps along other axes than `axes`, of tensors with at most `max_channels` channels."""
    steps = operation.node.attributes(SliceAttributes).steps
    shape = operation.inputs[0].shape
    if len(shape) < 4 or shape[-1] > limits["max_channels"]:
        return ""
    strided = [axis for axis, step in enumerate(steps) if step != 1 and axis not in limits["axes"]]
    return f"axis {strided[0]} of {shape[-1]} channels is sliced in steps" if strided else ""
