"""Functions of TensorFlow that Keras 2 wrote into functional models (TFOpLambda).

They are the operations of keras.ops under other names; those with other arguments or defaults have handlers
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from types import MappingProxyType

from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.norm import done_unit_length
from mace_frontend_keras.ops.operations import OPERATIONS as COMPUTING
from mace_frontend_keras.ops.operations import TYPES, first_operand, gelu, with_settings
from mace_frontend_keras.ops.operations_reduce import REDUCING
from mace_frontend_keras.ops.operations_shape import OPERATIONS as MOVING
from mace_frontend_keras.ops.operations_shape import done_take

MATH = (
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "abs",
        "negative",
        "ceil",
        "floor",
        "round",
        "sqrt",
        "rsqrt",
    ),
    *(
        "reciprocal",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "tanh",
        "erf",
        "sigmoid",
        "softplus",
        "square",
        "sign",
    ),
    *("expm1", "log1p", "less", "greater", "equal", "mod"),
)
FUNCTIONS = ("relu", "relu6", "elu", "selu", "softmax", "softplus", "softsign", "sigmoid", "tanh")

NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{f"math.{name}": name.capitalize() for name in MATH},
        **{
            f"math.reduce_{name}": name.capitalize()
            for name in ("sum", "mean", "max", "min", "prod", "logsumexp")
        },
        **{f"__operators__.{name}": name.capitalize() for name in ("add", "mod")},
        **{f"nn.{name}": name.capitalize() for name in FUNCTIONS},
        "nn.log_softmax": "LogSoftmax",
        "math.truediv": "Divide",
        "math.floordiv": "FloorDivide",
        "math.pow": "Power",
        "math.squared_difference": "SquaredDifference",
        "math.reduce_variance": "Var",
        "math.reduce_std": "Std",
        "math.add_n": "AddN",
        "math.logical_and": "LogicalAnd",
        "math.logical_or": "LogicalOr",
        "math.logical_not": "LogicalNot",
        "math.not_equal": "NotEqual",
        "math.greater_equal": "GreaterEqual",
        "math.less_equal": "LessEqual",
        "math.top_k": "TopK",
        "math.log_sigmoid": "LogSigmoid",
        "__operators__.getitem": "GetItem",
        "clip_by_value": "Clip",
        "cast": "Cast",
        "linalg.matmul": "Matmul",
        "einsum": "Einsum",
        "reshape": "Reshape",
        "transpose": "Transpose",
        "compat.v1.transpose": "Transpose",
        "expand_dims": "ExpandDims",
        "squeeze": "Squeeze",
        "compat.v1.squeeze": "Squeeze",
        "concat": "Concatenate",
        "stack": "Stack",
        "unstack": "Unstack",
        "split": "SplitSizes",
        "tile": "Tile",
        "pad": "Pad",
        "reverse": "Flip",
        "identity": "Identity",
        "stop_gradient": "StopGradient",
        "broadcast_to": "BroadcastTo",
        "repeat": "Repeat",
        "where": "Where",
        "one_hot": "OneHot",
        "convert_to_tensor": "ConvertToTensor",
        "compat.v1.pad": "Pad",
        "compat.v1.nn.softmax": "Softmax",
    }
)
"""Names of tf's functions as Keras 2 states them, and of Keras 3's operations."""


def _cumulative_sum(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    attrs = {key: bool(node.setting(key, default=False)) for key in ("exclusive", "reverse")}
    axis = node.axis(node.setting("axis", default=0), len(node.shape(x)))
    return node.done("CumSum", [x], {"axis": axis, **attrs})


def _search(op: str) -> Handler:
    """Return the handler of a search along an axis, the first by default."""

    def handle(node: KerasNode) -> Sequence[str]:
        x = first_operand(node)
        axis = node.axis(node.setting("axis", default=0), len(node.shape(x)))
        place = node.emit(op, [x], {"axis": axis, "keepdims": False})
        dtype = TYPES.get(str(node.setting("output_type", default="int64")), "i64")
        return node.done("Cast", [place], {"to": dtype})

    return handle


def _gather(node: KerasNode) -> Sequence[str]:
    return done_take(node, first_operand(node), node.setting("axis", default=0))


def _normalize(node: KerasNode) -> Sequence[str]:
    """Add x / sqrt(max(sum of squares, epsilon)), over all axes by default."""
    x = node.to_float(first_operand(node))
    axes = node.axes(node.setting("axis"), len(node.shape(x)))
    return done_unit_length(node, x, axes, sqrt(float(node.setting("epsilon", default=1e-12))))


SWISH = with_settings("Swish", ("alpha", "beta", 1.0))
OWN: Mapping[str, Handler] = MappingProxyType(
    {
        "math.argmax": _search("ArgMax"),
        "math.argmin": _search("ArgMin"),
        "math.cumsum": _cumulative_sum,
        "math.l2_normalize": _normalize,
        "nn.gelu": gelu(is_approximate=False),
        "nn.leaky_relu": with_settings("LeakyRelu", ("alpha", "alpha", 0.2)),
        "nn.silu": SWISH,
        "nn.swish": SWISH,
        **dict.fromkeys(("gather", "compat.v1.gather"), _gather),
    }
)
"""Functions whose arguments or defaults are not those of Keras 3's operations."""

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        f"tf.{name}": handler
        for name, handler in {
            **{name: {**COMPUTING, **REDUCING, **MOVING}[operation] for name, operation in NAMES.items()},
            **OWN,
        }.items()
    }
)
