"""Reductions and norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "MEAN": "ReduceMean",
        "SUM": "ReduceSum",
        "REDUCE_MAX": "ReduceMax",
        "REDUCE_MIN": "ReduceMin",
        "REDUCE_PROD": "ReduceProd",
    }
)


def _reduce(op: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        rank = len(node.shape(0))
        # The file may name an axis twice, and a negative one; the IR's attribute is sorted and unique.
        axes = tuple(sorted({node.axis(a, rank) for a in node.ints(1, "axes")}))
        keep = bool(node.options("ReducerOptions").KeepDims())
        return node.done(op, [node.input(0)], {"axes": axes, "keepdims": keep})

    return handle


def _any_or_all(op: str) -> Handler:
    """Return the handler of any or all: the maximum or minimum of booleans as numbers."""

    def handle(node: TfliteNode) -> Sequence[str]:
        numbers = node.emit("Cast", [node.input(0)], {"to": "i32"}, tag="numbers")
        rank = len(node.shape(0))
        attrs = {
            "axes": tuple(sorted({node.axis(a, rank) for a in node.ints(1, "axes")})),
            "keepdims": bool(node.options("ReducerOptions").KeepDims()),
        }
        return node.done("Cast", [node.emit(op, [numbers], attrs, tag="reduced")], {"to": "bool"})

    return handle


def _arg(op: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        axis = node.axis(node.ints(1, "axis")[0], len(node.shape(0)))
        place = node.emit(op, [node.input(0)], {"axis": axis, "keepdims": False}, tag="place")
        # Results of the IR's op have 64 bits, the format's have 32 unless the options say otherwise.
        dtype = node.output().dtype
        return node.done("Cast", [place], {"to": dtype.value if dtype else "i32"})

    return handle


def _cumsum(node: TfliteNode) -> Sequence[str]:
    options = node.options("CumsumOptions")
    axis = node.axis(node.ints(1, "axis")[0], len(node.shape(0)))
    attrs = {"axis": axis, "exclusive": bool(options.Exclusive()), "reverse": bool(options.Reverse())}
    return node.done("CumSum", [node.input(0)], attrs)


def _l2_norm(node: TfliteNode) -> Sequence[str]:
    return node.done("LpNorm", [node.input(0)], {"axis": -1, "p": 2})


def _local_response(node: TfliteNode) -> Sequence[str]:
    """Add x * (bias + alpha * sum of squares) ** -beta.

    The kernel sums over the channels from `radius` before to `radius - 1` behind the element.
    """
    options, shape = node.options("LocalResponseNormalizationOptions"), node.shape(0)
    radius = int(options.Radius())
    node.require_consistent(
        0 < radius <= max(shape[-1], 1), f"it has a radius of {radius} over {shape[-1]} channels"
    )
    size = 2 * radius
    # The IR divides alpha by the size, as ONNX does.
    attrs = {
        "size": size,
        "alpha": float(options.Alpha()) * size,
        "beta": float(options.Beta()),
        "bias": float(options.Bias()),
    }
    rank = len(shape)
    turn = {
        "starts": (0,) * (rank - 1) + (shape[-1] - 1,),
        "sizes": shape,
        "steps": (1,) * (rank - 1) + (-1,),
    }
    # The IR's windows of even size reach one further behind than before, so the channels are reversed for it.
    reversed_channels = node.emit("Slice", [node.input(0)], turn, tag="turned")
    return node.done("Slice", [node.emit("LRN", [reversed_channels], attrs, tag="normal")], turn)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _reduce(op) for name, op in REDUCTIONS.items()},
        "REDUCE_ANY": _any_or_all("ReduceMax"),
        "REDUCE_ALL": _any_or_all("ReduceMin"),
        "ARG_MAX": _arg("ArgMax"),
        "ARG_MIN": _arg("ArgMin"),
        "CUMSUM": _cumsum,
        "L2_NORMALIZATION": _l2_norm,
        "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    }
)
