"""Pools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import tflite

from mace_core.ops.pool import AveragePoolAttributes, PoolAttributes
from mace_core.ops.windows import Windows
from mace_tflite_writer.operator import BuiltinOperator, NodeView, OperatorOptions, need, need_same_storage
from mace_tflite_writer.padding import is_inside, padding_mode

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement


def _pool(view: NodeView, code: str) -> BuiltinOperator:
    attrs = view.attributes(PoolAttributes)
    need(
        len(view.x.shape) == 4,
        f"it has {len(view.x.shape) - 2} spatial axes; the format's pools have 2",
        "shape",
        "reshape to images of one row" if len(view.x.shape) == 3 else "",
    )
    need(
        set(attrs.dilations) == {1},
        f"its window has gaps {list(attrs.dilations)}, which the format's pools have not",
    )
    # Kernels of pools assume one scale for operand and result (kernels/pooling.cc) and convert nothing.
    need_same_storage(view)
    windows = Windows.of(attrs.kernel, attrs)
    size, count = view.x.shape[1:-1], view.y.shape[1:-1]
    if isinstance(attrs, AveragePoolAttributes) and attrs.count_pad:
        need(
            is_inside(windows, size, count),
            "its padding counts as elements, which the format's mean leaves out",
            "attribute",
            "pad by a node of its own (rewrite `separate_pads`)",
        )
    fields = {
        "Padding": padding_mode(windows, size, count),
        "StrideH": attrs.strides[0],
        "StrideW": attrs.strides[1],
        "FilterHeight": attrs.kernel[0],
        "FilterWidth": attrs.kernel[1],
        "FusedActivationFunction": tflite.ActivationFunctionType.NONE,
    }
    return view.operator(code, options=OperatorOptions("Pool2DOptions", fields))


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "AveragePool": lambda view: _pool(view, "AVERAGE_POOL_2D"),
        "MaxPool": lambda view: _pool(view, "MAX_POOL_2D"),
    }
)
