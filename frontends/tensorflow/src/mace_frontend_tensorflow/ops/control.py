"""Branches, loops of known length, variables, and operators that do nothing in a trained model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError, SkippedError
from mace_core.ir import DType
from mace_frontend_tensorflow.frames import LOOP, SWITCH
from mace_frontend_tensorflow.importer import FlatScope
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.recurrence import LoopRun, are_unread, only_count
from mace_frontend_tensorflow.subgraphs import inline, translate_outputs
from mace_frontend_tensorflow.tensors import array, complete_shape, element, element_type, is_fill
from mace_frontend_tensorflow.values import DEAD, Constant, Dead, OptionalValue


def _identity(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.value(0)]


def _operands(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.scope.get(ref) for ref in node.operation.inputs]


def _constant(node: TensorFlowNode) -> Sequence[OptionalValue]:
    node.refuse_unless(node.has_attr("value"), "it has no value")
    known = node.importer.known_constants
    if node.operation not in known:
        tensor = node.operation.attrs["value"].tensor
        dtype, shape = element_type(tensor.dtype), complete_shape(tensor.tensor_shape)
        # Not the name of the node, which has the number of the loop's iteration: all iterations share the
        # constant.
        name = node.operation.name
        if node.scope.source is not None:
            name = f"{node.scope.source}/{name}"
        fill = element(tensor) if is_fill(tensor) else None
        known[node.operation] = Constant(name, dtype, shape, lambda: array(tensor), fill)
    return [known[node.operation]]


def _variable(node: TensorFlowNode) -> Sequence[OptionalValue]:
    value = node.importer.source.variables.find(node.operation)
    if value is None:
        raise RefusedError(
            "its value is not stored; freeze the graph, or keep the folder `variables` beside saved_model.pb"
        )
    return [value]


def _is_initialized(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.result(np.asarray(True))]


def _placeholder(node: TensorFlowNode) -> Sequence[OptionalValue]:
    raise RefusedError("it is an input; name it under input_tensors")


def _switch(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return operand 0 on the side that is taken; the other is dead, and what depends on it is not computed.

    Which side that is must be known: otherwise shapes would depend on it.
    """
    taken = bool(node.constant(1, "condition").reshape(()))
    return [DEAD, node.value(0)] if taken else [node.value(0), DEAD]


def _merge(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the operand that is not dead, and its number."""
    values = _operands(node)
    alive = [i for i, value in enumerate(values) if not isinstance(value, Dead)]
    if not alive:
        return [DEAD, DEAD]
    if any(values[i] is None for i in alive):
        raise SkippedError
    node.refuse_unless(
        len(alive) == 1, "which of its operands arrives is known at run time only", "freeze the condition"
    )
    return [values[alive[0]], node.result(np.asarray(alive[0], np.int32), 1)]


def _if(node: TensorFlowNode) -> Sequence[OptionalValue]:
    arguments = _operands(node)[1:]
    attrs = node.operation.attrs
    condition = node.array(0)
    if condition is not None:
        # A condition that is no scalar holds if it has elements (functional_ops.cc, ToBool).
        is_taken = bool(condition.reshape(-1)[0]) if condition.ndim == 0 else condition.size > 0
        side = "then" if is_taken else "else"
        return inline(node, attrs[f"{side}_branch"], arguments, side)
    node.refuse_unless(
        node.dtype(0) is DType.BOOL and not node.shape(0), "its condition is no single boolean", CUT_BEFORE
    )
    sides = [inline(node, attrs[f"{side}_branch"], arguments, side) for side in ("then", "else")]
    return [_choose(node, then, other) for then, other in zip(*sides, strict=True)]


def _choose(node: TensorFlowNode, then: OptionalValue, other: OptionalValue) -> OptionalValue:
    """Return one of two tensors of one shape by the condition, operand 0.

    Both are computed, because a branch has no effect besides its results: changes of variables inside are
    refused.
    """
    if then is other:
        return then
    pair = [node.importer.tensor(value) for value in (then, other)]
    shapes = [node.builder.shape(t) for t in pair]
    node.refuse_unless(
        shapes[0] == shapes[1],
        f"its branches return shapes {list(shapes[0])} and {list(shapes[1])}, which must be the same",
        CUT_BEFORE,
    )
    return node.emit("Where", [node.input(0), *pair], tag="chosen")


def _case(node: TensorFlowNode) -> Sequence[OptionalValue]:
    arguments = _operands(node)[1:]
    branches = node.operation.attrs["branches"].list.func
    index = node.integer(0, "branch")
    # An index out of range runs the last branch (functional_ops.cc).
    index = index if 0 <= index < len(branches) else len(branches) - 1
    node.refuse_unless(index >= 0, "it has no branches")
    branch = type(node.operation.attrs["branches"])()
    branch.func.CopyFrom(branches[index])
    return inline(node, branch, arguments, f"branch{index}")


def _while(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Unroll a loop of TensorFlow 2; whether another iteration follows must be known after each."""
    attrs = node.operation.attrs

    def condition(values: Sequence[OptionalValue], iteration: int) -> OptionalValue:
        (goes_on,) = inline(node, attrs["cond"], values, f"cond{iteration}")
        return goes_on

    def body(values: Sequence[OptionalValue], iteration: int) -> Sequence[OptionalValue]:
        return inline(node, attrs["body"], values, str(iteration))

    def counts(counters: Collection[int], others: Collection[int]) -> bool:
        cond, inner = (node.importer.find_body(attrs[key]) for key in ("cond", "body"))
        if not are_unread(cond, {(cond.arguments[index], 0) for index in others}):
            return False
        return only_count(inner, [(inner.arguments[index], 0) for index in counters])

    return LoopRun(node, [_operands(node)], (), condition, body, counts).run()


def _loop_of_version_1(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Unroll a loop of TensorFlow 1, whose operations lie in the main graph."""
    loop, operands = node.importer.source.loops[node.operation.name], _operands(node)

    def iteration_scope(values: Sequence[OptionalValue], iteration: int) -> FlatScope:
        scope = node.inner(node.scope.flat, str(iteration))
        scope.values.update(((name, 0), value) for name, value in zip(loop.enters, operands, strict=True))
        for variable, value in zip(loop.variables, values, strict=True):
            scope.values[variable.merge, 0] = value
            if variable.switch:
                # Output 0 leaves the loop, output 1 leads to the body.
                scope.values |= {(variable.switch, 0): DEAD, (variable.switch, 1): value}
        return scope

    def condition(values: Sequence[OptionalValue], iteration: int) -> OptionalValue:
        scope = iteration_scope(values, iteration)
        return translate_outputs(node.importer, scope, [loop.condition])[0]

    def body(values: Sequence[OptionalValue], iteration: int) -> Sequence[OptionalValue]:
        scope = iteration_scope(values, iteration)
        return translate_outputs(node.importer, scope, [variable.next for variable in loop.variables])

    def counts(counters: Collection[int], others: Collection[int]) -> bool:
        flat, switches = node.scope.flat, [loop.variables[index].switch for index in counters]
        refs = [(name, 1) for name in switches if name]
        if not are_unread(flat, {(loop.variables[index].merge, 0) for index in others}, SWITCH):
            return False
        return len(refs) == len(counters) and only_count(flat, refs)

    start = [operands[variable.enter] for variable in loop.variables]
    return LoopRun(node, [start], operands, condition, body, counts).run()


PASSING = (
    *("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "CheckNumericsV2", "Snapshot"),
    *("PlaceholderWithDefault", "ReadVariableOp", "Print", "DebugIdentity", "DebugIdentityV2"),
    *("EnsureShape", "DeepCopy", "OptimizationBarrier", "XlaSharding"),
)
"""Operators whose first output is their first operand when a trained model runs."""

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(PASSING, _identity),
        **dict.fromkeys(("VarHandleOp", "VariableV2", "Variable"), _variable),
        **dict.fromkeys(("Placeholder", "PlaceholderV2"), _placeholder),
        **dict.fromkeys(("IsVariableInitialized", "VarIsInitializedOp"), _is_initialized),
        **dict.fromkeys(("If", "StatelessIf"), _if),
        **dict.fromkeys(("Case", "StatelessCase"), _case),
        **dict.fromkeys(("While", "StatelessWhile"), _while),
        LOOP: _loop_of_version_1,
        "Const": _constant,
        "IdentityN": _operands,
        "Merge": _merge,
        "Switch": _switch,
    }
)
