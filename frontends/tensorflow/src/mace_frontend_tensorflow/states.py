"""Finds the variables that a run of the model changes: states, which the next run reads.

A function runs every operation in it that changes a variable, whether or not its outputs need that (automatic
control dependencies of tf.function); a graph runs what its outputs need or wait for. For each such variable
an operation NAME.next is added, the variable's value after the run, and operations that read the variable
after it was assigned read that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.ir import Array
from mace_core.states import is_reset
from mace_frontend_tensorflow.boundary import public_names, reference_of
from mace_frontend_tensorflow.flat import Flat, GraphOperation, Ref
from mace_frontend_tensorflow.source import TensorFlowSource
from mace_frontend_tensorflow.variables import VARIABLE_OPS

ASSIGNS = {
    **dict.fromkeys(("Assign", "AssignVariableOp"), ""),
    **dict.fromkeys(("AssignAdd", "AssignAddVariableOp"), "AddV2"),
    **dict.fromkeys(("AssignSub", "AssignSubVariableOp"), "Sub"),
}
"""Operators that assign to a variable -> the operator that computes its value from it and the operand.

"" where the value is the operand itself.
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

Those of `ScatterNd` compute a tensor instead.
"""

READ = "ReadVariableOp"
PASSING = ("Identity",)


@dataclass(frozen=True, eq=False)
class ChangedVariable:
    """A variable that a run changes, or an operation whose branches or loops change one.

    start: its stored value; None if the model cannot be translated with it as a state.
    reason: why it cannot, as a clause.
    """

    name: str
    start: Array | None = None
    reason: str = ""


def refuse_hidden(source: TensorFlowSource, model: Model, variables: Iterable[ChangedVariable]) -> None:
    """Raise one MaceError for all variables that change from run to run and cannot be states.

    It raises none if the deployment file says that every run begins with the stored values.
    """
    faults = []
    for variable in variables:
        if variable.start is None and not is_reset(model):
            remedy = (
                "export the model without it, or, if every run is to begin with its stored value, "
                "write in the deployment file\n    states: reset"
            )
            problem = f"{variable.name!r} lasts from run to run, and {variable.reason}"
            faults.append(f"{source.name}: {problem}; {remedy}")
    if faults:
        raise MaceError.of(faults)


def changed_variables(source: TensorFlowSource, model: Model) -> list[ChangedVariable]:
    """Return the variables that a run changes and whose value before the run matters to it.

    Operations for their values after the run are added to the graph.
    """
    flat = source.flat
    outputs = _output_refs(source, model)
    executed = _find_executed(flat, outputs)
    changing: dict[str, list[GraphOperation]] = {}
    for name in executed:
        operation = flat.operations[name]
        if _is_change(operation.op) and operation.inputs:
            variable = flat.source(operation.inputs[0], PASSING)
            if variable is not None:
                changing.setdefault(variable.name, []).append(operation)
    for name, operations in changing.items():
        _add_next(flat, name, operations, executed)
    relevant = _find_relevant(flat, outputs, changing)
    variables = [_read_state(source, flat.operations[name]) for name in changing if name in relevant]
    return [*variables, *_find_hidden_changes(source, executed)]


def _find_relevant(flat: Flat, outputs: Sequence[Ref], changing: Iterable[str]) -> Collection[str]:
    """Return the operations that outputs of this run or of a later one are computed from.

    A variable that this run changes carries what its new value is computed from to later runs, so that
    variables are added until no more are.
    """
    refs = list(outputs)
    while True:
        relevant = flat.ancestors(refs)
        carried = [name for name in changing if name in relevant and name + NEXT in flat.operations]
        added = [(name + NEXT, 0) for name in carried if (name + NEXT, 0) not in refs]
        if not added:
            return relevant
        refs += added


def _is_change(op: str) -> bool:
    return op in ASSIGNS or (op.startswith(CHANGES) and not op.startswith("ScatterNd"))


def _output_refs(source: TensorFlowSource, model: Model) -> list[Ref]:
    """Return the outputs that the deployment file names, or the model's own, without values of states."""
    plain = replace(model, outputs=tuple(port for port in model.outputs if not port.name.endswith(NEXT)))
    refs = [source.flat.resolve(reference_of(text)) for text in public_names(source, plain).outputs.values()]
    return [ref for ref in refs if ref[0] in source.flat.operations]


def _find_executed(flat: Flat, outputs: Sequence[Ref]) -> list[str]:
    """Return the operations that run, by name.

    These are all that the outputs need or wait for, and each change of a variable in a function that is
    called for them, with what that needs.
    """
    calls = {name for name, _ in flat.aliases}
    changes = [name for name, operation in flat.operations.items() if _is_change(operation.op)]
    executed = flat.ancestors(outputs, controls=True)
    while True:
        called: set[str] = set()
        for name in executed:
            called.update(_calls_around(name, calls))
        added = [
            name
            for name in changes
            if name not in executed and not called.isdisjoint(_calls_around(name, calls))
        ]
        if not added:
            return list(executed)
        executed |= flat.ancestors([(name, 0) for name in added], controls=True)


def _calls_around(name: str, calls: set[str]) -> list[str]:
    """Return the calls in whose functions an operation lies."""
    return [name[:i] for i, letter in enumerate(name) if letter == "/" and name[:i] in calls]


def _add_next(flat: Flat, name: str, operations: Sequence[GraphOperation], executed: Iterable[str]) -> None:
    """Add the value of a variable after the run, if a single assignment makes it; let later reads read that.

    With several assignments the order in which they run would decide, which control dependencies may leave
    open.
    """
    if len(operations) != 1 or operations[0].op not in ASSIGNS or len(operations[0].inputs) < 2:
        return
    (assign,) = operations
    operand = assign.inputs[1]
    variable = flat.operations[name]
    inputs: tuple[Ref, ...] = (operand,)
    op = "Identity"
    if ASSIGNS[assign.op]:
        # A read of its own, because others may read the value after the run.
        before = GraphOperation(f"{name}.before", READ, ((name, 0),), (), variable.attrs)
        flat.operations[before.name] = before
        inputs, op = ((before.name, 0), operand), ASSIGNS[assign.op]
    next_name = name + NEXT
    flat.operations[next_name] = GraphOperation(next_name, op, inputs, (), {})
    for reader in [flat.operations[executed_name] for executed_name in executed]:
        _read_after(flat, reader, assign, (next_name, 0))


def _read_after(flat: Flat, reader: GraphOperation, assign: GraphOperation, value: Ref) -> None:
    """Let an operation that reads a variable and waits for its assignment read this value instead.

    Besides ReadVariableOp these are gathers, and branches and loops whose bodies read the variable.
    """
    variable = flat.source(assign.inputs[0], PASSING)
    # An Identity of a resource passes the variable on; one of a variable of version 1 reads it.
    passing = PASSING if variable is not None and variable.op == "VarHandleOp" else ()
    reads = [flat.source(ref, passing) is variable for ref in reader.inputs]
    if reader.name == assign.name or not any(reads):
        return
    # What waits for the assignment, directly or not, runs after it.
    if assign.name not in flat.ancestors([(reader.name, 0)], controls=True):
        return
    inputs = tuple(value if is_read else ref for ref, is_read in zip(reader.inputs, reads, strict=True))
    flat.operations[reader.name] = replace(reader, inputs=inputs)


def _read_state(source: TensorFlowSource, variable: GraphOperation) -> ChangedVariable:
    if variable.op not in VARIABLE_OPS or variable.name + NEXT not in source.flat.operations:
        return ChangedVariable(variable.name, reason="it is assigned to in parts or several times")
    value = source.variables.find(variable)
    if value is None:
        return ChangedVariable(
            variable.name, reason="the model file does not hold its value before the first run"
        )
    return ChangedVariable(variable.name, value.read())


def _find_hidden_changes(source: TensorFlowSource, executed: Iterable[str]) -> list[ChangedVariable]:
    """Return each operation whose branches or loops change a variable.

    Which variable it is stays open: bodies have it as an argument, and whether a branch runs is not known.
    """
    return [
        ChangedVariable(name, reason="a variable is changed inside its branches or loop")
        for name in executed
        if _changes_inside(source, source.flat.operations[name])
    ]


def _changes_inside(source: TensorFlowSource, operation: GraphOperation) -> bool:
    """Tell whether a function that an operation names, or one called from there, changes a variable."""
    functions = source.functions.functions
    pending = [value.func.name for value in operation.attrs.values() if value.func.name]
    seen: set[str] = set()
    while pending:
        function = pending.pop()
        if function in seen or function not in functions:
            continue
        seen.add(function)
        for node in functions[function].node_def:
            if _is_change(node.op):
                return True
            pending.extend(value.func.name for value in node.attr.values() if value.func.name)
    return False
