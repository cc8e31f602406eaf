"""Functions of TensorFlow that Keras 2 wrote into functional models (TFOpLambda).

They are the operations of keras.ops under other names, and some with other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.operations import OPERATIONS as COMPUTING
from mace_frontend_keras.ops.operations_reduce import REDUCING
from mace_frontend_keras.ops.operations_shape import OPERATIONS as MOVING

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
        "cumsum",
        "argmax",
    ),
    *("argmin", "expm1", "log1p", "less", "greater", "equal", "mod"),
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
        "nn.silu": "Silu",
        "nn.swish": "Silu",
        "nn.gelu": "Gelu",
        "nn.leaky_relu": "LeakyRelu",
        "nn.log_softmax": "LogSoftmax",
        "math.truediv": "Divide",
        "math.floordiv": "FloorDivide",
        "math.pow": "Power",
        "math.l2_normalize": "Normalize",
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
        "compat.v1.gather": "Take",
        "gather": "Take",
        "compat.v1.pad": "Pad",
        "compat.v1.nn.softmax": "Softmax",
    }
)
"""Names of tf's functions as Keras 2 states them, and of Keras 3's operations."""

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {f"tf.{name}": {**COMPUTING, **REDUCING, **MOVING}[operation] for name, operation in NAMES.items()}
)
