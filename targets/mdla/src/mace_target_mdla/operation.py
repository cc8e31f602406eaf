"""Names nodes by the TFLite operator that states them, in whose words the vendor's rules speak."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mace_core.ir import DType, Graph, Node, Tensor
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.pool import LpPoolAttributes
from mace_core.ops.resize import ResizeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.ops.unary_attrs import ClipAttributes

DIRECT: Mapping[str, str] = {
    "Abs": "ABS",
    "Add": "ADD",
    "ArgMax": "ARG_MAX",
    "ArgMin": "ARG_MIN",
    "Cast": "CAST",
    "Ceil": "CEIL",
    "Concat": "CONCATENATION",
    "Cos": "COS",
    "CumSum": "CUMSUM",
    "DepthToSpace": "DEPTH_TO_SPACE",
    "Dequantize": "DEQUANTIZE",
    "Div": "DIV",
    "Elu": "ELU",
    "Equal": "EQUAL",
    "Exp": "EXP",
    "Expand": "BROADCAST_TO",
    "Floor": "FLOOR",
    "Gather": "GATHER",
    "GatherND": "GATHER_ND",
    "Gelu": "GELU",
    "Greater": "GREATER",
    "GreaterEqual": "GREATER_EQUAL",
    "HardSwish": "HARD_SWISH",
    "LeakyRelu": "LEAKY_RELU",
    "Less": "LESS",
    "LessEqual": "LESS_EQUAL",
    "Log": "LOG",
    "LogSoftmax": "LOG_SOFTMAX",
    "Maximum": "MAXIMUM",
    "Minimum": "MINIMUM",
    "Mul": "MUL",
    "Neg": "NEG",
    "PRelu": "PRELU",
    "Pow": "POW",
    "Quantize": "QUANTIZE",
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
    "Relu": "RELU",
    "Reshape": "RESHAPE",
    "Round": "ROUND",
    "Rsqrt": "RSQRT",
    "Sigmoid": "LOGISTIC",
    "Sign": "SIGN",
    "Sin": "SIN",
    "Softmax": "SOFTMAX",
    "SpaceToDepth": "SPACE_TO_DEPTH",
    "Sqrt": "SQRT",
    "Sub": "SUB",
    "Tanh": "TANH",
    "Tile": "TILE",
    "TopK": "TOPK_V2",
    "Transpose": "TRANSPOSE",
    "Where": "SELECT_V2",
}
"""Ops that one operator states whatever their attributes are."""

CLAMPS: Mapping[tuple[float, float], str] = {
    (0, math.inf): "RELU",
    (0, 6): "RELU6",
    (-1, 1): "RELU_N1_TO_1",
    (0, 1): "RELU_0_TO_1",
}
"""Limits of a clamp -> the operator that has just these."""


@dataclass(frozen=True)
class TfliteOperation:
    """A node as the rules see it.

    operator: the TFLite operator that computes the node; "" if none does.
    uses: how often each tensor is read; empty where nobody counted, which takes time by the graph's size.
    """

    operator: str
    node: Node
    graph: Graph
    uses: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Node, graph: Graph, uses: Mapping[str, int] | None = None) -> TfliteOperation:
        """Return a node of a graph with its operator."""
        choose = OPERATOR_CHOICES.get(node.op.name)
        operator = choose(node, graph) if choose else DIRECT.get(node.op.name, "")
        return cls(operator, node, graph, uses or {})

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """All operands that are present, constants too."""
        return tuple(tensor for tensor in self.graph.inputs_of(self.node) if tensor)

    @property
    def activations(self) -> tuple[Tensor, ...]:
        """The operands that are computed or given at run time."""
        return tuple(tensor for tensor in self.inputs if not self.is_constant(tensor))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The results."""
        return self.graph.outputs_of(self.node)

    def is_constant(self, tensor: Tensor) -> bool:
        """Tell whether an operand is stored in the model."""
        return tensor.name in self.graph.weights


def storage_class(tensor: Tensor, is_constant: bool = False) -> str:
    """Return the data type of a tensor in the words of the vendor's tables, or the element's type.

    Constants of signed integers are symmetric if every zero point is 0. Activations of type int8 count as
    asymmetric whatever their zero point is, because TFLite has no other type for them.
    """
    if tensor.quant is None:
        return tensor.dtype.value
    is_symmetric = not any(tensor.quant.zero_point)
    if tensor.dtype is DType.I8:
        return "sym-i8" if is_symmetric and is_constant else "asym-i8"
    if tensor.dtype is DType.U8:
        return "asym-u8"
    if tensor.dtype is DType.I16:
        return "sym-i16" if is_symmetric else "asym-i16"
    return str(tensor.dtype.value)


def _choose_conv(node: Node, graph: Graph) -> str:
    w, group = graph.tensors[node.inputs[1]], node.attributes(ConvAttributes).group
    # As the writer states it: one channel by itself is a CONV_2D, and the format's CONV_3D has one group.
    is_depthwise = group > 1 and w.shape[-1] == 1
    flat = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
    return {4: flat, 5: "CONV_3D" if group == 1 else ""}.get(len(w.shape), "")


def _choose_transposed(node: Node, graph: Graph) -> str:
    # The format's transposed convolutions have no groups.
    if node.attributes(ConvAttributes).group > 1:
        return ""
    return {4: "TRANSPOSE_CONV", 5: "CONV_3D_TRANSPOSE"}.get(len(graph.tensors[node.inputs[1]].shape), "")


def _choose_product(node: Node, graph: Graph) -> str:
    # The writer states FULLY_CONNECTED for stored weights of two axes alone.
    is_matrix = node.inputs[1] in graph.weights and len(graph.tensors[node.inputs[1]].shape) == 2
    return "FULLY_CONNECTED" if is_matrix else "BATCH_MATMUL"


def _choose_pool(flat: str, solid: str) -> Callable[[Node, Graph], str]:
    def choose(node: Node, graph: Graph) -> str:
        return {4: flat, 5: solid}.get(len(graph.tensors[node.inputs[0]].shape), "")

    return choose


def _choose_norm_pool(node: Node, graph: Graph) -> str:
    return _choose_pool("L2_POOL_2D", "")(node, graph) if node.attributes(LpPoolAttributes).p == 2 else ""


def _choose_clip(node: Node, graph: Graph) -> str:
    attributes = node.attributes(ClipAttributes)
    return CLAMPS.get((attributes.min, attributes.max), "")


def _choose_pad(node: Node, graph: Graph) -> str:
    attributes = node.attributes(PadAttributes)
    if attributes.mode == "constant":
        return "PADV2" if attributes.value else "PAD"
    return "MIRROR_PAD" if attributes.mode == "reflect" else ""


def _choose_resize(node: Node, graph: Graph) -> str:
    mode = node.attributes(ResizeAttributes).mode
    return {"linear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}.get(mode, "")


def _choose_slice(node: Node, graph: Graph) -> str:
    return "SLICE" if set(node.attributes(SliceAttributes).steps) <= {1} else "STRIDED_SLICE"


def _choose_split(node: Node, graph: Graph) -> str:
    # The format's SPLIT has no sizes, and the vendor's list has no SPLIT_V.
    return "SPLIT" if node.attributes(SplitAttributes).is_even else "SPLIT_V"


OPERATOR_CHOICES: Mapping[str, Callable[[Node, Graph], str]] = {
    "AveragePool": _choose_pool("AVERAGE_POOL_2D", ""),
    "Clip": _choose_clip,
    "Conv": _choose_conv,
    "ConvTranspose": _choose_transposed,
    "LpPool": _choose_norm_pool,
    "MatMul": _choose_product,
    "MaxPool": _choose_pool("MAX_POOL_2D", "MAX_POOL_3D"),
    "Pad": _choose_pad,
    "Resize": _choose_resize,
    "Slice": _choose_slice,
    "Split": _choose_split,
}
"""Ops whose operator depends on shapes or attributes."""
