"""The option of CPU targets in a deployment file: in which type they may multiply floats."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph


def read_arithmetic(model: Model, target: str, allowed: Sequence[str]) -> str:
    """Return the `arithmetic` that a model asks a target for; one MaceError with every fault.

    allowed: what it may be, the default first.
    """
    options = model.options(target)
    place = f"model {model.name!r}: target_options: {target}"
    faults = [
        f"{place}: {name!r:.40} is no option of the target; remove it; the option is arithmetic"
        for name in options
        if name != "arithmetic"
    ]
    value = options.get("arithmetic", allowed[0])
    if value not in allowed:
        *others, last = allowed
        names = f"{', '.join(others)} or {last}" if others else last
        faults.append(f"{place}: arithmetic: {value!r:.40} is not allowed; write {names}")
    if value == "bf16" and int(str(model.keys.get("winograd", 0))):
        problem = "Winograd's tiles are of floats, and arithmetic: bf16 multiplies none by them"
        faults.append(f"model {model.name!r}: winograd: {problem}; remove winograd or arithmetic")
    if faults:
        raise MaceError.of(faults)
    return str(value)


def need_floats(graph: Graph, target: str) -> None:
    """Raise MaceError where `arithmetic: bf16` does nothing, because no product of a region is of floats."""
    products = [node for node in graph.nodes if node.op.name in ("Conv", "MatMul")]
    types = {graph.tensors[node.outputs[0]].dtype for node in products}
    if products and DType.F32 not in types:
        names = ", ".join(sorted(dtype.value for dtype in types))
        problem = f"bf16 rounds factors of products of floats, and the model's are of {names}"
        raise MaceError(
            f"target_options: {target}: arithmetic", problem, "remove it, or convert the model to float32"
        )
