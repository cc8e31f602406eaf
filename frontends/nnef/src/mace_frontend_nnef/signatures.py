"""Lists the operations of NNEF 1.0.5 (chapter 4): parameters with their types and defaults, and results.

A letter stands for the type of a parameter:

    T  tensor, or a number in its place     L  list of tensors
    i  integer                              n  list of integers
    f  number                               p  list of pairs of integers
    s  string                               v  list of values
    b  boolean

A result is a tensor; with * it is a list of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

Default = Any
"""A value of the syntax: number, string, boolean, list."""

MISSING = object()
"""Stands for a parameter without a default."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation.

    kind: the letter of its type.  default: MISSING if an argument must be stated.
    """

    name: str
    kind: str
    default: Default = MISSING

    @property
    def is_operand(self) -> bool:
        """Whether it is a tensor or a list of tensors, and not an attribute."""
        return self.kind in "TL"


@dataclass(frozen=True)
class OperationSignature:
    """The parameters and results of an operation.

    results: their names; one that is a list ends with *.
    kind: NNEF's type of the results; "" if it is that of the operands.
    """

    parameters: tuple[Parameter, ...]
    results: tuple[str, ...]
    kind: str


X, XY = "x:T", "x:T y:T"
SLIDE = "border:s=constant padding:p=[] stride:n=[] dilation:n=[]"
POOL = f"input:T size:n {SLIDE}"
SEPARABLE = "input:T plane_filter:T point_filter:T bias:T=0.0"
UNARY = (
    *("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh"),
    *("atanh", "abs", "sign", "rcp", "neg", "floor", "ceil", "round", "sqr", "sqrt", "rsqr", "rsqrt", "log2"),
    *("relu", "sigmoid", "softplus", "gelu", "silu"),
)
REDUCTIONS = ("max_reduce", "min_reduce", "mean_reduce")
ROIS = "input:T rois:T batch_index:T output_size:n"
NORMAL = "bias:f=0.0 epsilon:f=0.0"

TABLE: Mapping[str, str] = MappingProxyType(
    {
        "external": "shape:n -> output ?",
        "variable": "shape:n label:s -> output ?",
        "constant": "shape:n value:v -> output ?",
        "update": "variable:T value:T -> result",
        "reshape": "input:T shape:n axis_start:i=0 axis_count:i=-1 -> output",
        "transpose": "input:T axes:n -> output",
        "concat": "values:L axis:i -> value",
        "split": "value:T axis:i ratios:n -> values*",
        "slice": "input:T axes:n begin:n end:n stride:n=[] -> output",
        "squeeze": "input:T axes:n -> output",
        "unsqueeze": "input:T axes:n -> output",
        "stack": "values:L axis:i -> value",
        "unstack": "value:T axis:i -> values*",
        "tile": "input:T repeats:n -> output",
        "pad": "input:T padding:p border:s=constant value:f=0.0 -> output",
        "gather": "input:T indices:T axis:i=0 -> output",
        "cast": "input:T -> output ?",
        "copy": f"{X} -> y",
        "not": f"{X} -> y logical",
        **dict.fromkeys(UNARY, f"{X} -> y scalar"),
        **dict.fromkeys(("add", "sub", "mul", "div", "pow", "min", "max"), f"{XY} -> z scalar"),
        **dict.fromkeys(("lt", "gt", "le", "ge", "eq", "ne", "and", "or"), f"{XY} -> z logical"),
        "select": "condition:T true_value:T false_value:T -> output",
        "clamp": "x:T a:T b:T -> y scalar",
        "matmul": "A:T B:T transposeA:b=false transposeB:b=false -> C scalar",
        "conv": f"input:T filter:T bias:T=0.0 {SLIDE} groups:i=1 -> output scalar",
        "deconv": f"input:T filter:T bias:T=0.0 {SLIDE} output_shape:n=[] groups:i=1 -> output scalar",
        "separable_conv": f"{SEPARABLE} {SLIDE} groups:i=1 -> output scalar",
        "separable_deconv": f"{SEPARABLE} {SLIDE} output_shape:n=[] groups:i=1 -> output scalar",
        "box": f"{POOL} normalize:b=false -> output scalar",
        "debox": f"{POOL} output_shape:n=[] normalize:b=false -> output scalar",
        "argmax_pool": f"{POOL} -> index integer",
        "sample": f"input:T index:T size:n {SLIDE} -> output scalar",
        "desample": f"input:T index:T size:n {SLIDE} output_shape:n=[] -> output scalar",
        "max_pool_with_index": f"{POOL} -> output index scalar",
        **dict.fromkeys(("max_pool", "avg_pool", "rms_pool"), f"{POOL} -> output scalar"),
        **dict.fromkeys(
            ("nearest_downsample", "area_downsample", "nearest_upsample"), "input:T factor:n -> output scalar"
        ),
        "multilinear_upsample": "input:T factor:n method:s=symmetric border:s=replicate -> output scalar",
        "sum_reduce": "input:T axes:n normalize:b=false -> output scalar",
        **dict.fromkeys(REDUCTIONS, "input:T axes:n -> output scalar"),
        **dict.fromkeys(("argmax_reduce", "argmin_reduce"), "input:T axes:n -> output integer"),
        **dict.fromkeys(("any_reduce", "all_reduce"), "input:T axes:n -> output logical"),
        "moments": "input:T axes:n -> mean variance scalar",
        "softabs": "x:T epsilon:f -> y scalar",
        "softmax": "x:T axes:n=[1] -> y scalar",
        "elu": "x:T alpha:f=1.0 -> y scalar",
        "selu": "x:T alpha:f=1.67326319 lambda:f=1.05070102 -> y scalar",
        "prelu": "x:T alpha:T -> y scalar",
        "leaky_relu": "x:T alpha:f -> y scalar",
        "linear": "input:T filter:T bias:T=0.0 -> output scalar",
        "local_response_normalization": "input:T size:n alpha:f=1.0 beta:f=0.5 bias:f=1.0 -> output scalar",
        "local_mean_normalization": "input:T size:n -> output scalar",
        "local_variance_normalization": f"input:T size:n {NORMAL} -> output scalar",
        "local_contrast_normalization": f"input:T size:n {NORMAL} -> output scalar",
        "l1_normalization": f"input:T axes:n {NORMAL} -> output scalar",
        "l2_normalization": f"input:T axes:n {NORMAL} -> output scalar",
        "batch_normalization": "input:T mean:T variance:T offset:T scale:T epsilon:f -> output scalar",
        **dict.fromkeys(("avg_roi_pool", "max_roi_pool"), f"{ROIS} -> output scalar"),
        "roi_resample": f"{ROIS} method:s=symmetric -> output scalar",
        **dict.fromkeys(
            ("avg_roi_align", "max_roi_align"),
            f"{ROIS} sampling_rate:n resize_method:s=symmetric -> output scalar",
        ),
        "linear_quantize": "x:T min:T max:T bits:i -> y scalar",
        "min_max_linear_quantize": "x:T min:T max:T bits:i signed:b symmetric:b -> y scalar",
        "zero_point_linear_quantize": "x:T zero_point:T scale:T bits:i signed:b symmetric:b -> y scalar",
        "logarithmic_quantize": "x:T max:T bits:i -> y scalar",
        "copy_n": "x:T times:i -> y*",
        "add_n": "x:L -> y scalar",
    }
)
"""Operation -> its parameters, its results, and the type of the results.

The type ? is stated in angle brackets behind the operation; where there is none, it is that of the
operands. Operations that no handler supports stand here too: files with them are read, and one message
names all of them.
"""

KINDS = ("scalar", "integer", "logical", "string", "?")
GENERIC = "?"


@cache
def signature(operation: str) -> OperationSignature | None:
    """Return the signature of an operation; None for one that NNEF does not define."""
    if operation not in TABLE:
        return None
    parameters, results = TABLE[operation].split(" -> ")
    words = results.split()
    kind = words.pop() if words[-1] in KINDS else ""
    return OperationSignature(tuple(_parameter(text) for text in parameters.split()), tuple(words), kind)


def _parameter(text: str) -> Parameter:
    name, _, rest = text.partition(":")
    kind, has_default, default = rest.partition("=")
    return Parameter(name, kind, _value(kind, default) if has_default else MISSING)


def _value(kind: str, text: str) -> Default:
    if kind in "npv":
        return [int(number) for number in text.strip("[]").split(",") if number]
    if kind == "b":
        return text == "true"
    if kind == "s":
        return text
    return int(text) if kind == "i" else float(text)
