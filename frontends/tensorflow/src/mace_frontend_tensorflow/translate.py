"""Picks the handler of an operation, and translates the part of a model that is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.attributes import fields_of
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.importer import RefusedError, SkippedError
from mace_core.ir import Array, DType
from mace_core.ops.op import Op
from mace_frontend_tensorflow.boundary import TensorFlowPart
from mace_frontend_tensorflow.flat import Ref
from mace_frontend_tensorflow.frames import LOOP
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode, plain_value
from mace_frontend_tensorflow.ops import handlers
from mace_frontend_tensorflow.ops.random import carry_randomness
from mace_frontend_tensorflow.subgraphs import MAX_OUTPUTS, evaluate, gating_switches
from mace_frontend_tensorflow.values import DEAD, Constant, Dead, Mask, Noise, OptionalValue

CARRIERS = ("Merge", "Switch", "IdentityN", "If", "StatelessIf", "While", "StatelessWhile", LOOP)
"""Operators that pass on what they read, random numbers among it."""

AUDIO = ("AudioSpectrogram", "Mfcc", "DecodeWav")


def convert(node: TensorFlowNode) -> str | Sequence[OptionalValue]:
    """Add what computes an operation: the handler takes precedence over a plugin's op."""
    custom = node.builder.ops.get(f"tensorflow::{node.op}")
    handler = handlers().get(node.op)
    if handler is None and custom is None:
        raise RefusedError(_explain_unknown(node))
    operands = [node.scope.get(ref) for ref in node.operation.inputs]
    gates = [node.scope.get((name, 0)) for name in gating_switches(node.scope.flat, node.operation)]
    # TensorFlow does not run an operation with a dead operand, except for Merge, whose purpose is to choose
    # the living one ("Implementation of Control Flow in TensorFlow", 2017).
    deciding = gates if node.op == "Merge" else [*gates, *operands]
    if any(isinstance(value, Dead) for value in deciding):
        return [DEAD] * MAX_OUTPUTS
    if any(isinstance(value, Noise | Mask) for value in operands) and node.op not in CARRIERS:
        return carry_randomness(node, operands)
    if handler is None:
        assert custom is not None
        return node.done(custom, node.inputs(), _custom_attributes(node, custom))
    return handler(node)


def translate(
    importer: TensorFlowImporter, part: TensorFlowPart, variables: Mapping[str, Array]
) -> list[str]:
    """Translate the part; return the tensors of its outputs. MaceError with every fault.

    variables: for those that are states, the value before the first run, by name.
    """
    scope = FlatScope(flat=importer.source.flat)
    states = dict.fromkeys(variables, "")
    for port in part.inputs:
        scope.values[port.ref] = importer.builder.input(port.name, port.dtype, port.shape)
        # A deployment file may name a variable as an input: the state then has the name and the shape of
        # that.
        if port.ref[0] in variables:
            importer.builder.begin(port.name, variables[port.ref[0]])
            states[port.ref[0]] = port.name
    for name, start in variables.items():
        if not states[name]:
            scope.values[name, 0] = states[name] = importer.builder.state(name, start)
    for ref in part.off:
        scope.values[ref] = Constant(ref[0], DType.BOOL, (), lambda: np.asarray(False))
    next_refs = {name + NEXT: (name + NEXT, 0) for name in variables}
    evaluate(importer, scope, [*(ref for _, ref in part.outputs), *next_refs.values()])
    importer.raise_faults()
    for name, state in states.items():
        importer.builder.set_next(state, _output(importer, scope, name + NEXT, next_refs[name + NEXT]))
    return [_output(importer, scope, name, ref) for name, ref in part.outputs]


def _output(importer: TensorFlowImporter, scope: FlatScope, name: str, ref: Ref) -> str:
    try:
        return importer.tensor(scope.get(ref))
    except (RefusedError, SkippedError, ValueError) as error:
        problem = f"output {name!r} is never computed: {error or 'it is in a branch that is not taken'}"
        raise MaceError(importer.location, problem, "name other output_tensors") from None


def _explain_unknown(node: TensorFlowNode) -> str:
    if node.op in AUDIO:
        cut = f'cut the graph after it: input_tensors: ["{node.operation.name}"], and pass in the features'
        return f"audio feature extraction is not supported; {cut}"
    remedy = f"{CUT_BEFORE}, or add 'tensorflow::{node.op}' by a plugin"
    return f"this operator is not supported; {remedy}"


def _custom_attributes(node: TensorFlowNode, op: Op) -> dict[str, object]:
    """Return the node's attributes that the op of a plugin has too."""
    known = fields_of(op.attrs)
    values = {key: plain_value(value) for key, value in node.operation.attrs.items() if key in known}
    return {key: value for key, value in values.items() if np.isscalar(value)}
