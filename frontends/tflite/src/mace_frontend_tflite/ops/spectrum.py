"""Spectra and complex numbers.

The IR has no complex type: a complex number is a pair of floats along one more axis, the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.importer import RefusedError
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.source import TensorInfo

COMPLEX = ("COMPLEX64", "COMPLEX128")
"""The format's names of complex types."""


def is_complex(node: TfliteNode) -> bool:
    """Tell whether an operator reads complex numbers."""
    return any(node.has(i) and node.info(i).kind in COMPLEX for i in range(node.count))


def refuse_complex(output: TensorInfo) -> None:
    """Raise RefusedError if an output of the model is of complex numbers: no library can return them."""
    if output.kind in COMPLEX:
        raise RefusedError("it is of complex numbers; name their REAL and IMAG parts under output_tensors")


def handle_complex(node: TfliteNode) -> Sequence[str]:
    """Add the IR's nodes for an operator on complex numbers; RefusedError for one without a handler."""
    handler = ON_COMPLEX.get(node.operator.code)
    if handler is None:
        raise RefusedError(
            "only RFFT2D, COMPLEX_ABS, REAL, IMAG and reshapes of complex numbers are supported;"
            " cut the graph before it"
        )
    outputs = handler(node)
    return [outputs] if isinstance(outputs, str) else outputs


def _rfft_2d(node: TfliteNode) -> Sequence[str]:
    """Add the frequencies of the last two axes, cut or filled up with zeros to the stated lengths."""
    shape, lengths = node.shape(0), node.ints(1, "lengths")
    node.require_consistent(
        len(shape) >= 2 and len(lengths) == 2 and min(lengths) > 0,
        f"it has lengths {lengths} of a shape of {list(shape)}",
    )
    pairs = node.emit("Reshape", [node.input(0)], {"shape": (*shape, 1)}, tag="pairs")
    # The spectrum of real numbers is symmetric, so the last axis has its first half only.
    attrs = {"axis": len(shape) - 1, "length": lengths[1], "onesided": True}
    rows = node.emit("DFT", [pairs], attrs, tag="rows")
    return node.done("DFT", [rows], {"axis": len(shape) - 2, "length": lengths[0]})


def _absolute(node: TfliteNode) -> Sequence[str]:
    x = node.stored_input(0)
    last = len(node.shape(0)) - 1
    squares = node.emit("Mul", [x, x], tag="squares")
    total = node.emit("ReduceSum", [squares], {"axes": (last,), "keepdims": False}, tag="sum")
    return node.done("Sqrt", [total])


def _part(place: int) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        shape = node.shape(0)
        attrs = {
            "starts": (*(0 for _ in shape[1:]), place),
            "sizes": (*shape[:-1], 1),
            "steps": tuple(1 for _ in shape),
        }
        part = node.emit("Slice", [node.stored_input(0)], attrs, tag="part")
        return node.done("Reshape", [part], {"shape": shape[:-1]})

    return handle


def _reshape_complex(node: TfliteNode) -> Sequence[str]:
    """Add RESHAPE, SQUEEZE or EXPAND_DIMS by the shape that the file states for the result."""
    return node.done("Reshape", [node.stored_input(0)], {"shape": (*node.output().shape, 2)})


ON_COMPLEX: Mapping[str, Handler] = MappingProxyType(
    {
        "COMPLEX_ABS": _absolute,
        "REAL": _part(0),
        "IMAG": _part(1),
        **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshape_complex),
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "RFFT2D": _rfft_2d,
        **{code: handler for code, handler in ON_COMPLEX.items() if code in ("COMPLEX_ABS", "REAL", "IMAG")},
    }
)
