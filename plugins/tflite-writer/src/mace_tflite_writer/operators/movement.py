"""Ops that move elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import tflite

from mace_core.ir import Array
from mace_core.lowering import Refused
from mace_core.ops.depth_space import BlockAttributes, DepthToSpaceAttributes
from mace_core.ops.gather import GatherAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.shapes import AxisAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.ops.tile import TileAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.quantization import quantize
from mace_tflite_writer.operator import (
    BuiltinOperator,
    ConstantOperand,
    NodeView,
    Operand,
    OperatorOptions,
    is_same_storage,
    need,
    need_same_storage,
)

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

# More axes need version 8 of TRANSPOSE (op_version.cc), which older runtimes refuse.
MAX_TRANSPOSED_RANK = 6
# The limit of LiteRT's kernels (PadKernelMaxDimensionCount of kernels/internal/reference/pad.h).
MAX_PADDED_RANK = 5
# What the helper of kernels/slice.cc takes (kMaxDim).
MAX_SLICED_RANK = 5


def ints(values: object) -> Array:
    """Return values as the format holds axes and sizes: 32-bit integers."""
    return np.asarray(values, np.int32)


def _reshape(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    shape = ints(view.y.shape)
    # The shape is an operand and an option: some readers take the one, some the other.
    options = OperatorOptions("ReshapeOptions", {"NewShape": shape})
    return view.operator("RESHAPE", [view.node.inputs[0], ConstantOperand(shape)], options)


def _transpose(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    perm, rank = view.attributes(TransposeAttributes).perm, len(view.x.shape)
    need(
        0 < rank <= MAX_TRANSPOSED_RANK,
        f"it transposes {rank} axes; the format's operator takes 1 to {MAX_TRANSPOSED_RANK}",
        "shape",
    )
    return view.operator(
        "TRANSPOSE", [view.node.inputs[0], ConstantOperand(ints(perm))], OperatorOptions("TransposeOptions")
    )


def _concat(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    fields = {
        "Axis": view.attributes(AxisAttributes).axis % len(view.y.shape),
        "FusedActivationFunction": tflite.ActivationFunctionType.NONE,
    }
    return view.operator("CONCATENATION", options=OperatorOptions("ConcatenationOptions", fields))


def _pad(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    attrs, rank = view.attributes(PadAttributes), len(view.x.shape)
    need(
        0 < rank <= MAX_PADDED_RANK,
        f"it pads {rank} axes; the format's operator takes 1 to {MAX_PADDED_RANK}",
        "shape",
    )
    sides = ConstantOperand(ints(list(zip(attrs.before, attrs.after, strict=True))))
    inputs: list[Operand] = [view.node.inputs[0], sides]
    if attrs.mode == "reflect":
        mode = {"Mode": tflite.MirrorPadMode.REFLECT}
        is_short = all(max(pair) < n for pair, n in zip(np.asarray(sides.array), view.x.shape, strict=True))
        need(is_short, "it reflects more elements than the axis has, which the format does not repeat")
        return view.operator("MIRROR_PAD", inputs, OperatorOptions("MirrorPadOptions", mode))
    if attrs.mode != "constant":
        raise Refused(f"the format has no padding of mode {attrs.mode!r}", code="attribute")
    if attrs.value == 0:
        return view.operator("PAD", inputs, OperatorOptions("PadOptions"))
    storage = view.y.storage
    value = quantize(np.asarray(attrs.value, np.float64), storage) if storage else np.asarray(attrs.value)
    fill = ConstantOperand(value.astype(view.x.dtype.numpy), view.y.quant)
    return view.operator("PADV2", [*inputs, fill], OperatorOptions("PadV2Options"))


def _slice(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    attrs, rank = view.attributes(SliceAttributes), len(view.x.shape)
    need(
        0 < rank <= MAX_SLICED_RANK,
        f"it slices {rank} axes; the format's operator takes 1 to {MAX_SLICED_RANK}",
        "shape",
    )
    starts = ConstantOperand(ints(attrs.starts))
    if set(attrs.steps) <= {1}:
        inputs: list[Operand] = [view.node.inputs[0], starts, ConstantOperand(ints(attrs.sizes))]
        return view.operator("SLICE", inputs, OperatorOptions("SliceOptions"))
    axes = list(zip(attrs.starts, attrs.sizes, attrs.steps, strict=True))
    stops = [start + size * step for start, size, step in axes]
    # A negative end counts from the end of the axis; one in front of the first element is said by the mask.
    mask = sum(1 << axis for axis, end in enumerate(stops) if end < 0)
    need(0 not in attrs.sizes, "it takes no element of an axis, and the format's steps would", "shape")
    bounds = [max(end, 0) for end in stops]
    fields = {
        "BeginMask": 0,
        "EndMask": mask,
        "EllipsisMask": 0,
        "NewAxisMask": 0,
        "ShrinkAxisMask": 0,
        "Offset": False,
    }
    inputs = [
        view.node.inputs[0],
        starts,
        *(ConstantOperand(ints(values)) for values in (bounds, attrs.steps)),
    ]
    return view.operator("STRIDED_SLICE", inputs, OperatorOptions("StridedSliceOptions", fields))


def _split(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    attrs = view.attributes(SplitAttributes)
    fields = {"NumSplits": len(attrs.sizes)}
    axis = ConstantOperand(ints(attrs.axis % len(view.x.shape)))
    if attrs.is_even:
        return view.operator("SPLIT", [axis, view.node.inputs[0]], OperatorOptions("SplitOptions", fields))
    inputs: list[Operand] = [view.node.inputs[0], ConstantOperand(ints(attrs.sizes)), axis]
    return view.operator("SPLIT_V", inputs, OperatorOptions("SplitVOptions", fields))


def _to_space(view: NodeView) -> BuiltinOperator:
    attrs = view.attributes(DepthToSpaceAttributes)
    need(
        attrs.mode == "DCR",
        "it takes the depth before the position in the block, the format's operator behind it",
        "attribute",
        "reorder the channels in front of it",
    )
    return _blocks(view, "DEPTH_TO_SPACE", "DepthToSpaceOptions")


def _blocks(view: NodeView, code: str, table: str) -> BuiltinOperator:
    need_same_storage(view)
    need(len(view.x.shape) == 4, f"it has {len(view.x.shape)} axes; the format's operator has 4", "shape")
    fields = {"BlockSize": view.attributes(BlockAttributes).block}
    return view.operator(code, options=OperatorOptions(table, fields))


def _tile(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    need(len(view.x.shape) > 0, "it repeats a scalar", "shape")
    repeats = ConstantOperand(ints(view.attributes(TileAttributes).repeats))
    return view.operator("TILE", [view.node.inputs[0], repeats], OperatorOptions("TileOptions"))


def _gather(view: NodeView) -> BuiltinOperator:
    indices = view.constant(1)
    if indices is None:
        raise Refused(
            "its indices are computed and may be negative, which the format's operator does not read",
            code="other",
            remedy="let the model hold them as constants",
        )
    need(
        is_same_storage(view.x.storage, view.y.storage),
        f"it gathers {view.x} as {view.y}; the format's operator copies stored integers as they are",
        "quantization",
        "put a Quantize before it (rewrite `requantize_inputs`)",
    )
    axis = view.attributes(GatherAttributes).axis % len(view.x.shape)
    positive = np.where(indices < 0, indices + view.x.shape[axis], indices)
    inputs: list[Operand] = [view.node.inputs[0], ConstantOperand(ints(positive))]
    return view.operator("GATHER", inputs, OperatorOptions("GatherOptions", {"Axis": axis, "BatchDims": 0}))


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "Reshape": _reshape,
        "Identity": _reshape,
        "Transpose": _transpose,
        "Concat": _concat,
        "Pad": _pad,
        "Slice": _slice,
        "Split": _split,
        "DepthToSpace": _to_space,
        "SpaceToDepth": lambda view: _blocks(view, "SPACE_TO_DEPTH", "SpaceToDepthOptions"),
        "Tile": _tile,
        "Gather": _gather,
    }
)
