"""Products fused with what follows them, as TensorFlow's own optimizer (grappler's remapper) leaves them.

Operands behind the first two belong to the steps in their order
(tensorflow/core/kernels/fused_eigen_output_kernels.h).

The optimizer chooses them for the machine on which it runs, so that the same model has them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mace_core.importer import RefusedError
from mace_frontend_tensorflow.node import EXPORT_AGAIN, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.conv import convolution, depthwise
from mace_frontend_tensorflow.ops.matmul import product
from mace_frontend_tensorflow.values import OptionalValue

UNOPTIMIZED = "freeze the model without optimizing it"

ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "Elu": ("Elu", {}),
        "GeluApproximate": ("Gelu", {"approximate": "tanh"}),
        "GeluExact": ("Gelu", {}),
        "Relu": ("Relu", {}),
        "Relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "Sigmoid": ("Sigmoid", {}),
        "Tanh": ("Tanh", {}),
    }
)


def _with_steps(base: Handler) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        node.refuse_unless(
            node.attr("data_format", "NHWC").endswith("C"),
            "it is an operator of TensorFlow's optimizer with channels first",
            UNOPTIMIZED,
        )
        # The product takes another name, because that of the node is the name of what the last step makes.
        operation = replace(node.operation, name=f"{node.operation.name}/product")
        scope = replace(node.scope, source=node.scope.source or node.name)
        (product_value,) = base(replace(node, operation=operation, scope=scope))
        tensor, operands = node.importer.tensor(product_value), iter(range(2, node.operand_count))
        steps: tuple[str, ...] = node.attr("fused_ops", ())
        # Each step takes the operands that those before it have left.
        for step in steps:
            tensor = _add_step(node, step, tensor, operands)
        return [tensor]

    return handle


def _add_step(node: TensorFlowNode, step: str, tensor: str, operands: Iterator[int]) -> str:
    """Add a step behind a tensor; return its result. It takes its operands from those that are left."""
    try:
        if step in ("BiasAdd", "Add"):
            return node.emit("Add", [tensor, node.input(next(operands))], tag="sum")
        if step == "FusedBatchNorm":
            statistics = [node.input(next(operands)) for _ in range(4)]
            return node.emit(
                "BatchNorm", [tensor, *statistics], {"epsilon": node.attr("epsilon", 1e-4)}, tag="norm"
            )
    except StopIteration:
        raise RefusedError(f"it has no operand for its step {step!r}; {EXPORT_AGAIN}") from None
    if step == "LeakyRelu":
        return node.emit("LeakyRelu", [tensor], {"alpha": node.attr("leakyrelu_alpha", 0.2)}, tag="activated")
    if step not in ACTIVATIONS:
        raise RefusedError(f"it has step {step!r} of an operator of TensorFlow's optimizer; {UNOPTIMIZED}")
    op, attrs = ACTIVATIONS[step]
    return node.emit(op, [tensor], attrs, tag="activated")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "_FusedConv2D": _with_steps(convolution),
        "_FusedDepthwiseConv2dNative": _with_steps(depthwise),
        "_FusedMatMul": _with_steps(product("transpose_a", "transpose_b")),
    }
)
