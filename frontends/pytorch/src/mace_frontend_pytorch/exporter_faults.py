"""Refuses or mends operators that torch's exporters to ONNX silently write as something else.

Found by comparing torch's modules with their exports, torch 2.13. An exporter that refuses by itself is not
listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from mace_core.errors import MaceError

Accepts = Callable[[Any], bool]
"""Tells whether an exporter honors a value of an argument."""

LINEAR_SOFTPLUS = 15.0
"""From here on softplus and the straight line that torch continues it with are equal in single precision."""


def _is_absent(value: Any) -> bool:
    return value is None


EXPORTED: Mapping[str, tuple[str, Accepts]] = MappingProxyType(
    dict.fromkeys(("aten::avg_pool2d", "aten::avg_pool3d"), ("divisor_override", _is_absent))
)
"""Operators of exported programs -> an argument, and which values of it are exported."""

SCRIPTED: Mapping[str, tuple[str, Accepts]] = MappingProxyType(
    {
        **EXPORTED,
        # Sums of p-th powers without their magnitudes.
        "aten::cdist": ("p", lambda value: value == 2),
        # Of several values for one element the last is added.
        "aten::index_put": ("accumulate", lambda value: value is False),
        "aten::index_put_": ("accumulate", lambda value: value is False),
        "aten::softplus": ("threshold", lambda value: value is not None and value >= LINEAR_SOFTPLUS),
    }
)
"""The same for TorchScript."""

Call = tuple[str, Mapping[str, Any]]
"""An operator, and its arguments by name; None for one that is computed."""


def refuse_faults(place: str, calls: Iterable[Call], faults: Mapping[str, tuple[str, Accepts]]) -> None:
    """Raise one MaceError for all calls of operators whose arguments an exporter leaves out."""
    problems: dict[str, None] = {}
    for operator, arguments in calls:
        name, accepts = faults.get(operator, ("", _is_absent))
        if name in arguments and not accepts(arguments[name]):
            problem = f"torch's exporter to ONNX leaves out {name}={arguments[name]} of {operator}"
            problems[f"{place}: {problem}; compute it with other operators"] = None
    if problems:
        raise MaceError.of([*problems])


def read_program(graph: Any) -> Iterator[Call]:
    """Yield the operators that an exported program calls."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            names = [argument.name for argument in schema.arguments]
            yield schema.name, {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def read_script(graph: Any) -> Iterator[Call]:
    """Yield those of SCRIPTED that an inlined graph of TorchScript calls."""
    import torch

    for operator in SCRIPTED:
        for node in graph.findAllNodes(operator, recurse=True):
            names = [argument.name for argument in torch._C.parse_schema(node.schema()).arguments]
            values = [value.toIValue() for value in node.inputs()]
            yield operator, dict(zip(names, values, strict=False))


FLOOR_DIVIDE = "aten::floor_divide"
MENDED_OPSETS = range(9, 24)
"""Versions of ONNX for which the exporter of TorchScript has operators."""


@contextmanager
def mend_script_exporter() -> Iterator[None]:
    """Let the exporter of TorchScript round quotients down, where it cuts off their fractions by itself."""
    import torch

    for opset in MENDED_OPSETS:
        torch.onnx.register_custom_op_symbolic(FLOOR_DIVIDE, _write_floor_divide, opset)
    try:
        yield
    finally:
        for opset in MENDED_OPSETS:
            torch.onnx.unregister_custom_op_symbolic(FLOOR_DIVIDE, opset)


def _write_floor_divide(graph: Any, dividend: Any, divisor: Any) -> Any:
    """Add the quotient rounded down to a graph of the exporter; return its value."""
    import torch
    from torch.onnx import symbolic_helper

    quotient = graph.op("Div", dividend, divisor)
    if symbolic_helper._is_fp(dividend) or symbolic_helper._is_fp(divisor):
        return graph.op("Floor", quotient)
    # Div of integers cuts off. The remainder then has the sign of the dividend, and one less is the quotient
    # rounded down where that is not the sign of the divisor.
    rest = graph.op("Sub", dividend, graph.op("Mul", quotient, divisor))
    zero, one = (graph.op("Constant", value_t=torch.tensor(number)) for number in (0, 1))
    has_rest = graph.op("Not", graph.op("Equal", rest, zero))
    differs = graph.op("Xor", graph.op("Less", rest, zero), graph.op("Less", divisor, zero))
    is_cut = graph.op("And", has_rest, differs)
    return graph.op("Where", is_cut, graph.op("Sub", quotient, one), quotient)
