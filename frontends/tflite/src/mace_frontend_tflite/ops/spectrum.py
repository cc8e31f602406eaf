"""Spectra. The IR holds complex numbers as pairs of floats along one more axis, the last."""

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
    """Raise RefusedError if an output of the model is of complex numbers, which no library gives."""
    if output.kind in COMPLEX:
        raise RefusedError("it is of complex numbers; name their REAL and IMAG parts under output_tensors")


def handle_complex(node: TfliteNode) -> Sequence[str]:
    """Add what computes an operator on complex numbers; RefusedError for one that is not known on them."""
    handler = ON_COMPLEX.get(node.operator.code)
    if handler is None:
        raise RefusedError(
            "complex numbers are known to RFFT2D, COMPLEX_ABS, REAL, IMAG and reshapes; cut the graph before it"
        )
    made = handler(node)
    return [made] if isinstance(made, str) else made


def _rfft_2d(node: TfliteNode) -> Sequence[str]:
    """Frequencies of the last two axes, cut or filled up with zeros to the stated lengths.

    Half of those along the last one.
    """
    shape, lengths = node.shape(0), node.ints(1, "lengths")
    node.refuse_unless(
        len(shape) >= 2 and len(lengths) == 2 and min(lengths) > 0,
        f"lengths {lengths} of a shape of {list(shape)}",
    )
    pairs = node.emit("Reshape", [node.input(0)], {"shape": (*shape, 1)}, tag="pairs")
    rows = node.emit(
        "DFT", [pairs], {"axis": len(shape) - 1, "length": lengths[1], "onesided": True}, tag="rows"
    )
    return node.done("DFT", [rows], {"axis": len(shape) - 2, "length": lengths[0]})


def _absolute(node: TfliteNode) -> Sequence[str]:
    x = node.stored(0)
    last = len(node.shape(0)) - 1
    squares = node.emit("Mul", [x, x], tag="squares")
    return node.done(
        "Sqrt", [node.emit("ReduceSum", [squares], {"axes": (last,), "keepdims": False}, tag="sum")]
    )


def _part(place: int) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        shape = node.shape(0)
        attrs = {
            "starts": (*(0 for _ in shape[1:]), place),
            "sizes": (*shape[:-1], 1),
            "steps": tuple(1 for _ in shape),
        }
        part = node.emit("Slice", [node.stored(0)], attrs, tag="part")
        return node.done("Reshape", [part], {"shape": shape[:-1]})

    return handle


def _reshaped(node: TfliteNode) -> Sequence[str]:
    """RESHAPE, SQUEEZE or EXPAND_DIMS: the shape that the file states."""
    return node.done("Reshape", [node.stored(0)], {"shape": (*node.output().shape, 2)})


ON_COMPLEX: Mapping[str, Handler] = MappingProxyType(
    {
        "COMPLEX_ABS": _absolute,
        "REAL": _part(0),
        "IMAG": _part(1),
        **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshaped),
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "RFFT2D": _rfft_2d,
        **{code: handler for code, handler in ON_COMPLEX.items() if code in ("COMPLEX_ABS", "REAL", "IMAG")},
    }
)
