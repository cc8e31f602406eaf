"""Branches, loops of known length, variables, and operators that do nothing when a trained model runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError, SkippedError
from mace_core.ir import DType
from mace_frontend_tensorflow.frames import LOOP, SWITCH
from mace_frontend_tensorflow.held import DEAD, Constant, Dead, Held
from mace_frontend_tensorflow.importer import FlatScope
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.recurrence import Loop, only_counts, unread
from mace_frontend_tensorflow.subgraphs import inline
from mace_frontend_tensorflow.subgraphs import turn as turn_body
from mace_frontend_tensorflow.tensors import array, complete, element, element_type, is_fill


def _identity(node: TensorFlowNode) -> Sequence[Held]:
    return [node.held(0)]


def _operands(node: TensorFlowNode) -> Sequence[Held]:
    return [node.scope.get(ref) for ref in node.operation.inputs]


def _constant(node: TensorFlowNode) -> Sequence[Held]:
    node.refuse_unless(node.has_attr("value"), "it has no value; export the model again")
    known = node.importer.known_constants
    if node.operation not in known:  # one for all turns of a loop
        tensor = node.operation.attrs["value"].tensor
        dtype, shape = element_type(tensor.dtype), complete(tensor.tensor_shape)
        name = (
            node.operation.name if node.scope.source is None else f"{node.scope.source}/{node.operation.name}"
        )
        known[node.operation] = Constant(
            name, dtype, shape, lambda: array(tensor), element(tensor) if is_fill(tensor) else None
        )
    return [known[node.operation]]


def _variable(node: TensorFlowNode) -> Sequence[Held]:
    found = node.importer.source.variables.find(node.operation)
    if found is None:
        raise RefusedError(
            "its value is not stored; freeze the graph, or keep the folder `variables` beside saved_model.pb"
        )
    return [found]


def _initialized(node: TensorFlowNode) -> Sequence[Held]:
    return [node.result(np.asarray(True))]


def _placeholder(node: TensorFlowNode) -> Sequence[Held]:
    raise RefusedError("it is an input; name it under input_tensors")


def _switch(node: TensorFlowNode) -> Sequence[Held]:
    """The side that is not taken is dead: what depends on it is not computed."""
    taken = bool(node.constant(1, "condition").reshape(()))
    return [DEAD, node.held(0)] if taken else [node.held(0), DEAD]


def _merge(node: TensorFlowNode) -> Sequence[Held]:
    held = [node.scope.get(ref) for ref in node.operation.inputs]
    alive = [i for i, h in enumerate(held) if not isinstance(h, Dead)]
    if not alive:
        return [DEAD, DEAD]
    if any(held[i] is None for i in alive):
        raise SkippedError
    node.refuse_unless(
        len(alive) == 1, "which of its operands comes is known at run time only; freeze the condition"
    )
    return [held[alive[0]], node.result(np.asarray(alive[0], np.int32), 1)]


def _if(node: TensorFlowNode) -> Sequence[Held]:
    held = [node.scope.get(ref) for ref in node.operation.inputs[1:]]
    attrs = node.operation.attrs
    condition = node.array(0)
    if condition is not None:
        taken = bool(condition.reshape(-1)[0]) if condition.ndim == 0 else condition.size > 0
        side = "then" if taken else "else"
        return inline(node, attrs[f"{side}_branch"], held, side)
    node.refuse_unless(
        node.dtype(0) is DType.BOOL and not node.shape(0), "its condition is no single truth value"
    )
    sides = [inline(node, attrs[f"{side}_branch"], held, side) for side in ("then", "else")]
    return [_chosen(node, yes, no) for yes, no in zip(*sides, strict=True)]


def _chosen(node: TensorFlowNode, yes: Held, no: Held) -> Held:
    """One of two tensors of one shape, both computed: neither has an effect besides its result."""
    if yes is no:
        return yes
    pair = [node.importer.tensor(h) for h in (yes, no)]
    shapes = [node.builder.shape(t) for t in pair]
    node.refuse_unless(
        shapes[0] == shapes[1], f"its branches give shapes {shapes[0]} and {shapes[1]}; they must be the same"
    )
    return node.emit("Where", [node.input(0), *pair], tag="chosen")


def _case(node: TensorFlowNode) -> Sequence[Held]:
    held = [node.scope.get(ref) for ref in node.operation.inputs[1:]]
    branches = node.operation.attrs["branches"].list.func
    index = node.integer(0, "branch")
    index = index if 0 <= index < len(branches) else len(branches) - 1
    node.refuse_unless(index >= 0, "it has no branches")
    made = type(node.operation.attrs["branches"])()
    made.func.CopyFrom(branches[index])
    return inline(node, made, held, f"branch{index}")


def _while(node: TensorFlowNode) -> Sequence[Held]:
    """Write the body out once a turn; whether to go on must be known."""
    attrs = node.operation.attrs

    def more(values: Sequence[Held], turn: int) -> Held:
        (found,) = inline(node, attrs["cond"], values, f"cond{turn}")
        return found

    def body(values: Sequence[Held], turn: int) -> Sequence[Held]:
        return inline(node, attrs["body"], values, str(turn))

    def counts(places: Collection[int], others: Collection[int]) -> bool:
        cond, inner = (node.importer.called(attrs[key]) for key in ("cond", "body"))
        return unread(cond, {(cond.arguments[p], 0) for p in others}) and only_counts(
            inner, [(inner.arguments[p], 0) for p in places]
        )

    return Loop(node, [_operands(node)], (), more, body, counts).run()


def _frame(node: TensorFlowNode) -> Sequence[Held]:
    """A loop of TensorFlow 1, its body once a turn."""
    loop, given = node.importer.source.loops[node.operation.name], _operands(node)

    def scope(values: Sequence[Held], turn: int) -> FlatScope:
        made = node.inner(node.scope.flat, str(turn))
        made.values.update(((name, 0), value) for name, value in zip(loop.enters, given, strict=True))
        for variable, value in zip(loop.variables, values, strict=True):
            made.values[variable.merge, 0] = value
            if variable.switch:
                made.values |= {(variable.switch, 0): DEAD, (variable.switch, 1): value}
        return made

    def more(values: Sequence[Held], turn: int) -> Held:
        return turn_body(node.importer, scope(values, turn), [loop.condition])[0]

    def body(values: Sequence[Held], turn: int) -> Sequence[Held]:
        return turn_body(node.importer, scope(values, turn), [v.next for v in loop.variables])

    def counts(places: Collection[int], others: Collection[int]) -> bool:
        flat, switches = node.scope.flat, [loop.variables[p].switch for p in places]
        known = [(name, 1) for name in switches if name]
        decided = unread(flat, {(loop.variables[p].merge, 0) for p in others}, SWITCH)
        return decided and len(known) == len(places) and only_counts(flat, known)

    return Loop(node, [[given[v.enter] for v in loop.variables]], given, more, body, counts).run()


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "CheckNumericsV2", "Snapshot"),
            _identity,
        ),
        **dict.fromkeys(
            ("PlaceholderWithDefault", "ReadVariableOp", "Print", "DebugIdentity", "DebugIdentityV2"),
            _identity,
        ),
        **dict.fromkeys(("EnsureShape", "DeepCopy", "OptimizationBarrier", "XlaSharding"), _identity),
        **dict.fromkeys(("VarHandleOp", "VariableV2", "Variable"), _variable),
        **dict.fromkeys(("Placeholder", "PlaceholderV2"), _placeholder),
        **dict.fromkeys(("IsVariableInitialized", "VarIsInitializedOp"), _initialized),
        **dict.fromkeys(("If", "StatelessIf"), _if),
        **dict.fromkeys(("Case", "StatelessCase"), _case),
        **dict.fromkeys(("While", "StatelessWhile"), _while),
        LOOP: _frame,
        "Const": _constant,
        "IdentityN": _operands,
        "Merge": _merge,
        "Switch": _switch,
    }
)
