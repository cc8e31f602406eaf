"""Finds the variables that a run of the model changes: states, which the next run reads.

A function runs every operation in it that changes a variable, whether or not its outputs need that; a graph
runs what its outputs need or wait for. For each such variable an operation NAME.next is added, the variable's
value after the run, and whoever reads the variable after it was assigned reads that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.ir import Array
from mace_core.states import is_reset
from mace_frontend_tensorflow.boundary import public, reference_of
from mace_frontend_tensorflow.flat import Flat, Operation, Ref
from mace_frontend_tensorflow.source import Source
from mace_frontend_tensorflow.variables import VARIABLES

ASSIGNS = {
    **dict.fromkeys(("Assign", "AssignVariableOp"), ""),
    **dict.fromkeys(("AssignAdd", "AssignAddVariableOp"), "AddV2"),
    **dict.fromkeys(("AssignSub", "AssignSubVariableOp"), "Sub"),
}
"""Operators that give a variable a value -> the operator that makes it of the variable and the operand.

"" for the operand itself.
"""

CHANGES = (
    "ResourceScatter",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
    "StridedSliceAssign",
    "Scatter",
)
"""How the names of operators begin that change a part of a variable.

Those of `ScatterNd` compute a tensor and are none.
"""

READ = "ReadVariableOp"
PASSING = ("Identity",)


@dataclass(frozen=True, eq=False)
class Changed:
    """A variable that a run changes, or an operation whose branches or loops change one.

    start: its stored value; None where the model cannot be translated with it as a state.
    reason: why not, as a clause.
    """

    name: str
    start: Array | None = None
    reason: str = ""


def refuse_hidden(source: Source, model: Model, variables: Iterable[Changed]) -> None:
    """Raise one MaceError for variables that change from run to run and can be no states.

    None where every run begins anew.
    """
    faults = []
    for variable in variables:
        if variable.start is None and not is_reset(model):
            remedy = "export the model without it, or, if every run is to begin with its stored value, write in the deployment file"
            faults.append(
                f"{source.name}: {variable.name!r} lasts from run to run, and {variable.reason}; {remedy}\n    states: reset"
            )
    if faults:
        raise MaceError.of(faults)


def changed_variables(source: Source, model: Model) -> list[Changed]:
    """Return the variables that a run changes and that it sees the value of before.

    Add what they are after the run to the graph.
    """
    flat = source.flat
    outputs = _outputs(source, model)
    executed = _executed(flat, outputs)
    changing: dict[str, list[Operation]] = {}
    for name in executed:
        operation = flat.operations[name]
        if _changes(operation.op) and operation.inputs:
            variable = flat.source(operation.inputs[0], PASSING)
            if variable is not None:
                changing.setdefault(variable.name, []).append(operation)
    for name, operations in changing.items():
        _add_next(flat, name, operations, executed)
    seen = _seen(flat, outputs, changing)
    found = [_described(source, flat.operations[name]) for name in changing if name in seen]
    return [*found, *_inside(source, executed)]


def _seen(flat: Flat, outputs: Sequence[Ref], changing: Iterable[str]) -> dict[str, None]:
    """Return the operations that the outputs of this run or, through the variables that it changes, of a later one are computed of."""
    ends = list(outputs)
    while True:
        seen = _ancestors(flat, ends)
        following = [(name + NEXT, 0) for name in changing if name in seen and name + NEXT in flat.operations]
        if all(ref in ends for ref in following):
            return seen
        ends += [ref for ref in following if ref not in ends]


def _changes(op: str) -> bool:
    return op in ASSIGNS or (op.startswith(CHANGES) and not op.startswith("ScatterNd"))


def _outputs(source: Source, model: Model) -> list[Ref]:
    plain = replace(model, outputs=tuple(port for port in model.outputs if not port.name.endswith(NEXT)))
    refs = [source.flat.resolved(reference_of(text)) for text in public(source, plain).outputs.values()]
    return [ref for ref in refs if ref[0] in source.flat.operations]


def _ancestors(flat: Flat, refs: Iterable[Ref], *, controls: bool = False) -> dict[str, None]:
    """Return the operations that these outputs are computed of.

    With `controls`, also those that they wait for.
    """
    found: dict[str, None] = {}
    waiting = [flat.resolved(ref)[0] for ref in refs]
    while waiting:
        operation = flat.operations.get(waiting.pop())
        if operation is None or operation.name in found:
            continue
        found[operation.name] = None
        waiting.extend(name for name, _ in flat.inputs(operation))
        if controls:
            waiting.extend(flat.resolved((name, 0))[0] for name in operation.controls)
    return found


def _executed(flat: Flat, outputs: Sequence[Ref]) -> dict[str, None]:
    """Return the operations that run: those that the outputs need or wait for, and all in the functions that are called for that."""
    calls = {name for name, _ in flat.aliases}
    found = _ancestors(flat, outputs, controls=True)
    while True:
        reached = {call for name in found for call in _calls_around(name, calls)}
        inside = [
            n
            for n, o in flat.operations.items()
            if n not in found and _changes(o.op) and reached & set(_calls_around(n, calls))
        ]
        if not inside:
            return found
        found |= _ancestors(flat, [(name, 0) for name in inside], controls=True)


def _calls_around(name: str, calls: set[str]) -> list[str]:
    """Return the calls in whose functions an operation lies."""
    return [name[:i] for i, letter in enumerate(name) if letter == "/" and name[:i] in calls]


def _add_next(flat: Flat, name: str, operations: Sequence[Operation], executed: Iterable[str]) -> None:
    """Add what a variable is after the run, where one assignment tells it; let later reads read that."""
    if len(operations) != 1 or operations[0].op not in ASSIGNS or len(operations[0].inputs) < 2:
        return
    (assign,) = operations
    value, following = assign.inputs[1], name + NEXT
    variable = flat.operations[name]
    inputs: tuple[tuple[str, int], ...] = (value,)
    op = "Identity"
    if ASSIGNS[assign.op]:
        before = Operation(f"{name}.before", READ, ((name, 0),), (), variable.attrs)
        flat.operations[before.name] = before
        inputs, op = ((before.name, 0), value), ASSIGNS[assign.op]
    flat.operations[following] = Operation(following, op, inputs, (), {})
    for reader in [flat.operations[n] for n in executed]:
        reads = reader.op == READ and flat.inputs(reader)[:1] == [(name, 0)]
        if reads and assign.name in _ancestors(flat, [(reader.name, 0)], controls=True):
            flat.aliases[reader.name, 0] = (following, 0)


def _described(source: Source, variable: Operation) -> Changed:
    if variable.op not in VARIABLES or variable.name + NEXT not in source.flat.operations:
        return Changed(variable.name, reason="it is assigned to in parts or several times")
    found = source.variables.find(variable)
    if found is None:
        return Changed(variable.name, reason="the model file does not hold its value before the first run")
    return Changed(variable.name, found.read())


def _inside(source: Source, executed: Iterable[str]) -> list[Changed]:
    """Return each operation whose branches or loops change variables, which of them is not known here."""
    functions = source.functions.functions
    found: list[Changed] = []
    for name in executed:
        operation = source.flat.operations[name]
        waiting = [v.func.name for v in operation.attrs.values() if v.func.name]
        seen: set[str] = set()
        while waiting:
            function = waiting.pop()
            if function in seen or function not in functions:
                continue
            seen.add(function)
            for node in functions[function].node_def:
                waiting.extend(v.func.name for v in node.attr.values() if v.func.name)
                if _changes(node.op) and not any(changed.name == name for changed in found):
                    found.append(Changed(name, reason="a variable is changed inside its branches or loop"))
    return found
