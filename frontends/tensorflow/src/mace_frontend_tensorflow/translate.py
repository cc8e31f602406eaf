"""Picks the handler of an operation, and walks the wanted part of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.attributes import fields_of
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.importer import RefusedError, SkippedError
from mace_core.ir import Array, DType
from mace_core.ops.op import Op
from mace_frontend_tensorflow.boundary import Part
from mace_frontend_tensorflow.flat import Ref
from mace_frontend_tensorflow.frames import LOOP
from mace_frontend_tensorflow.held import DEAD, Constant, Dead, Held, Mask, Noise
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.node import TensorFlowNode, plain
from mace_frontend_tensorflow.ops import handlers
from mace_frontend_tensorflow.ops.random import through
from mace_frontend_tensorflow.subgraphs import OUTPUTS, evaluate, gating

CARRIERS = ("Merge", "Switch", "IdentityN", "If", "StatelessIf", "While", "StatelessWhile", LOOP)
"""Operators that hand on what they read, whatever it is."""

AUDIO = ("AudioSpectrogram", "Mfcc", "DecodeWav")


def convert(node: TensorFlowNode) -> str | Sequence[Held]:
    """Add what computes an operation: the handler comes before a plugin's op."""
    custom = node.builder.ops.get(f"tensorflow::{node.op}")
    handler = handlers().get(node.op)
    if handler is None and custom is None:
        raise RefusedError(_unsupported(node))
    operands = [node.scope.get(ref) for ref in node.operation.inputs]
    gates = [node.scope.get((c, 0)) for c in gating(node.scope.flat, node.operation)]
    if any(isinstance(h, Dead) for h in (*gates, *(operands if node.op != "Merge" else ()))):
        return [DEAD] * OUTPUTS
    if any(isinstance(h, Noise | Mask) for h in operands) and node.op not in CARRIERS:
        return through(node, operands)
    if handler is None:
        assert custom is not None
        return node.done(custom, node.inputs(), _custom_attributes(node, custom))
    return handler(node)


def translate(importer: TensorFlowImporter, part: Part, variables: Mapping[str, Array]) -> list[str]:
    """Translate the part; the tensors that hold its outputs. MaceError with every fault.

    variables: values before the first run of those that are states, by name.
    """
    scope = FlatScope(flat=importer.source.flat)
    states = dict.fromkeys(variables, "")
    for given in part.inputs:
        scope.values[given.ref] = importer.builder.input(given.name, given.dtype, given.shape)
        if given.ref[0] in variables:
            importer.builder.begin(given.name, variables[given.ref[0]])
            states[given.ref[0]] = given.name
    for name, start in variables.items():
        if not states[name]:
            scope.values[name, 0] = states[name] = importer.builder.state(name, start)
    for ref in part.off:
        scope.values[ref] = Constant(ref[0], DType.BOOL, (), lambda: np.asarray(False))
    following = {name + NEXT: (name + NEXT, 0) for name in variables}
    evaluate(importer, scope, [*(ref for _, ref in part.outputs), *following.values()])
    importer.raise_faults()
    for name, state in states.items():
        importer.builder.set_next(state, _output(importer, scope, name + NEXT, following[name + NEXT]))
    return [_output(importer, scope, name, ref) for name, ref in part.outputs]


def _output(importer: TensorFlowImporter, scope: FlatScope, name: str, ref: Ref) -> str:
    try:
        return importer.tensor(scope.get(ref))
    except (RefusedError, SkippedError, ValueError) as error:
        problem = f"output {name!r} is never computed: {error or 'it lies in a branch that is not taken'}"
        raise MaceError(importer.location, problem, "name other output_tensors") from None


def _unsupported(node: TensorFlowNode) -> str:
    if node.op in AUDIO:
        name = node.operation.name
        return f'sound is not turned into features here; cut the graph after it: input_tensors: ["{name}"], and give the features'
    remedy = f"cut the graph before it with output_tensors, or add 'tensorflow::{node.op}' by a plugin"
    return f"this operator is not supported; {remedy}"


def _custom_attributes(node: TensorFlowNode, op: Op) -> dict[str, object]:
    """The attributes that a plugin's op knows, of the node's."""
    return {
        key: plain(value)
        for key, value in node.operation.attrs.items()
        if key in fields_of(op.attrs) and np.isscalar(plain(value))
    }
