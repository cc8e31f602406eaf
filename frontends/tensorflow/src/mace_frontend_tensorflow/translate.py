"""Walk a TensorFlow graph from its outputs, branches and loops inline, and build the IR's graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import FOLD_LIMIT, NEXT, Builder
from mace_core.ir import Array, DType, Quant, Shape
from mace_core.ir import Node as IrNode
from mace_core.ops.op import Op
from mace_core.translation import RefusedError, Senseless, SkippedError, attempt
from mace_frontend_tensorflow.boundary import Part
from mace_frontend_tensorflow.flat import Flat, Operation, Ref
from mace_frontend_tensorflow.frames import LOOP
from mace_frontend_tensorflow.held import DEAD, Constant, Dead, Held, Mask, Noise, TensorList
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.node import Node, Scope
from mace_frontend_tensorflow.ops import handlers
from mace_frontend_tensorflow.ops.random import REFUSAL, through
from mace_frontend_tensorflow.source import Source

SENSELESS = Senseless("its inputs or attributes", "export the model again")

DEPTH = 16
"""How deep branches and loops may be nested."""

MOST = 50_000
"""Nodes of a model with all its loops written out."""

OUTPUTS = 64
"""Outputs of a node that failed, as far as anything asks for them."""

CARRIERS = ("Merge", "Switch", "IdentityN", "If", "StatelessIf", "While", "StatelessWhile", LOOP)
"""Operators that hand on what they read, whatever it is."""

AUDIO = ("AudioSpectrogram", "Mfcc", "DecodeWav")


class Translation:
    """One model's way into the IR; `faults` collects what is wrong with single nodes."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.faults: list[str] = []
        self.constants: dict[Operation, Constant] = {}
        self._derived: dict[Hashable, str] = {}
        self._folded: dict[Hashable, tuple[str, ...]] = {}
        self._bodies: dict[str, Flat] = {}
        self._depth = 0
        self._count = 0

    def run(self, part: Part, variables: Mapping[str, Array]) -> list[str]:
        """Translate the part; the tensors that hold its outputs. MaceError with every fault.

        variables: values before the first run of those that are states, by name.
        """
        scope = Scope(self.source.flat)
        states = dict.fromkeys(variables, "")
        for given in part.inputs:
            scope.held[given.ref] = self.builder.input(given.name, given.dtype, given.shape)
            if given.ref[0] in variables:
                self.builder.begin(given.name, variables[given.ref[0]])
                states[given.ref[0]] = given.name
        for name, start in variables.items():
            if not states[name]:
                scope.held[name, 0] = states[name] = self.builder.state(name, start)
        for ref in part.off:
            scope.held[ref] = Constant(ref[0], DType.BOOL, (), lambda: np.asarray(False))
        following = {name + NEXT: (name + NEXT, 0) for name in variables}
        self._evaluate(scope, [*(ref for _, ref in part.outputs), *following.values()])
        if self.faults:
            raise MaceError.of(self.faults)
        for name, state in states.items():
            self.builder.set_next(state, self._output(scope, name + NEXT, following[name + NEXT]))
        return [self._output(scope, name, ref) for name, ref in part.outputs]

    def _output(self, scope: Scope, name: str, ref: Ref) -> str:
        try:
            return self.tensor(self.find(scope, ref))
        except (RefusedError, SkippedError, ValueError) as error:
            problem = f"output {name!r} is never computed: {error or 'it lies in a branch that is not taken'}"
            raise MaceError(self.source.name, problem, "name other output_tensors") from None

    def find(self, scope: Scope, ref: Ref) -> Held:
        """What an output stands for; RefusedError for an unknown one."""
        ref = scope.flat.resolved(ref)
        if ref in scope.held:
            return scope.held[ref]
        name, index = ref
        if name not in scope.flat.operations:
            raise RefusedError(f"it reads {name!r}, which the model does not hold; export the model again")
        if (name, 0) not in scope.held:
            raise RefusedError(
                f"it reads {name!r}, which depends on it; write the loop as tf.while_loop of TensorFlow 2"
            )
        raise RefusedError(f"it reads output {index} of {name!r}, which is not computed")

    def tensor(self, held: Held) -> str:
        """The graph's tensor for what an output stands for.

        A constant enters the graph when it is first asked for.
        """
        if held is None or isinstance(held, Dead):
            raise SkippedError
        if isinstance(held, TensorList):
            raise RefusedError(
                "it reads a list of tensors as if it were a tensor; cut the graph before it with output_tensors"
            )
        if isinstance(held, Noise | Mask):
            raise RefusedError(REFUSAL)
        if isinstance(held, str):
            if not held:
                raise RefusedError("it reads an output that is not computed for inference")
            return held
        if held.fill is not None and held.bytes > FOLD_LIMIT:
            return self._filled(held, held.fill)
        return self.derived(held, "itself", lambda array: array)

    def _filled(self, held: Constant, fill: Array) -> str:
        if held not in self._derived:
            one = self.builder.weight(f"{held.name}/element", fill.reshape((1,) * len(held.shape)))
            self._derived[held] = self.builder.one(
                "Expand", [one], {"shape": held.shape}, outputs=[self.builder.fresh(held.name)]
            )
        return self._derived[held]

    def array(self, held: Held) -> Array | None:
        """The elements of a constant; None for what is computed at run time."""
        if isinstance(held, Constant):
            return held.read()
        return self.builder.constant(held) if isinstance(held, str) else None

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None,
        *,
        outputs: Sequence[str],
        like: IrNode,
    ) -> tuple[str, ...]:
        """Add an IR node; what it makes of constants is made once for all turns of a loop."""
        if not inputs or not all(name in self.builder.weights for name in inputs):
            return self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        mark = (
            op if isinstance(op, str) else op.name,
            tuple(inputs),
            repr(sorted((attrs or {}).items())),
            len(outputs),
        )
        if mark not in self._folded:
            self._folded[mark] = self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        return self._folded[mark]

    def derived(self, held: Held, key: Hashable, make: Callable[[Array], Array]) -> str:
        """A constant made from another by moving its elements.

        That itself does not enter the graph for it.
        """
        mark = (held, key)
        if mark not in self._derived:
            self._derived[mark] = self._made(held, make)
        return self._derived[mark]

    def _made(self, held: Held, make: Callable[[Array], Array]) -> str:
        if isinstance(held, Constant) and held.stored:
            whole, quant = held.stored
            moved = _moved(quant, whole.shape, make)
            if moved is not None:
                stored = self.builder.weight(f"{held.name}/stored", make(whole), moved)
                return self.builder.one("Dequantize", [stored], outputs=[self.builder.fresh(held.name)])
        array = self.array(held)
        if array is None:
            raise RefusedError("it reads a constant that is computed at run time")
        return self.builder.weight(held.name if isinstance(held, Constant) else str(held), make(array))

    def inline(self, node: Node, function: AttrValue, held: Sequence[Held], tag: str) -> list[Held]:
        """Translate a function that a node names as the body of a branch or loop.

        What its outputs stand for.
        """
        flat = self.called(function)
        node.refuse_unless(
            len(held) == len(flat.arguments),
            f"it gives {len(held)} arguments to a function of {len(flat.arguments)}",
        )
        scope = node.inner(flat, tag)
        scope.held.update(
            ((argument, 0), value) for argument, value in zip(flat.arguments, held, strict=True)
        )
        return self.turn(scope, flat.outputs)

    def called(self, function: AttrValue) -> Flat:
        """The body of a function that a node names."""
        name = function.func.name
        if name not in self._bodies:
            self._bodies[name] = self.source.functions.function(name, dict(function.func.attr))
        return self._bodies[name]

    def turn(self, scope: Scope, refs: Sequence[Ref]) -> list[Held]:
        """Translate what computes these outputs in a scope.

        SkippedError if any of its nodes fails, which is noted.
        """
        before = len(self.faults)
        if self._depth >= DEPTH:
            raise RefusedError(f"branches and loops are nested more than {DEPTH} deep")
        self._depth += 1
        self._evaluate(scope, refs)
        self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError
        return [self.find(scope, ref) for ref in refs]

    def _evaluate(self, scope: Scope, refs: Sequence[Ref]) -> None:
        for operation in order(scope.flat, refs, scope.held):
            self._count += 1
            if self._count > MOST:
                raise MaceError(
                    self.source.name,
                    f"has more than {MOST} nodes with its loops written out",
                    "shorten its loops",
                )
            self._node(Node(operation, scope, self))

    def _node(self, node: Node) -> None:
        """Translate one node; a fault is noted, and what reads the node's outputs is passed over."""
        place = f"{self.source.name}: node {node.name!r} ({node.op})"
        results = attempt(self.faults, place, lambda: self._results(node), SENSELESS)
        # All outputs of a node that failed, as far as anything can ask for them.
        if results is None or results[:1] == [None]:
            results = [None] * OUTPUTS
        for index, result in enumerate(results):
            node.scope.held.setdefault((node.operation.name, index), result)

    def _results(self, node: Node) -> Sequence[Held]:
        custom = self.builder.ops.get(f"tensorflow::{node.op}")
        handler = handlers().get(node.op)
        if handler is None and custom is None:
            raise RefusedError(_unsupported(node))
        operands = [self.find(node.scope, ref) for ref in node.operation.inputs]
        gates = [self.find(node.scope, (c, 0)) for c in gating(node.scope.flat, node.operation)]
        if any(isinstance(h, Dead) for h in (*gates, *(operands if node.op != "Merge" else ()))):
            return [DEAD] * OUTPUTS
        if any(isinstance(h, Noise | Mask) for h in operands) and node.op not in CARRIERS:
            return through(node, operands)
        if handler is None:
            assert custom is not None
            return node.done(custom, node.inputs(), _custom_attributes(node, custom.attrs))
        made = handler(node)
        return [made] if isinstance(made, str) else made


def _moved(quant: Quant, shape: Shape, make: Callable[[Array], Array]) -> Quant | None:
    """The quantization of a constant whose elements are moved.

    None if those of one scale no longer lie side by side.
    """
    if quant.axis is None:
        return quant
    ends = [-1 if i == quant.axis else 1 for i in range(len(shape))]
    channels = make(np.broadcast_to(np.arange(shape[quant.axis]).reshape(ends), shape))
    for axis, size in enumerate(channels.shape):
        along = np.arange(size).reshape([-1 if i == axis else 1 for i in range(channels.ndim)])
        if size == shape[quant.axis] and bool((channels == along).all()):
            return replace(quant, axis=axis)
    return None


def order(flat: Flat, refs: Sequence[Ref], held: Mapping[Ref, Held]) -> list[Operation]:
    """The operations that compute these outputs from what is held, each after those it reads.

    A cycle is left open.
    """
    found: list[Operation] = []
    entered: set[str] = set()
    stack = [(flat.resolved(ref)[0], False) for ref in reversed(refs) if flat.resolved(ref) not in held]
    while stack:
        name, left = stack.pop()
        operation = flat.operations.get(name)
        if operation is None:
            continue
        if left:
            found.append(operation)
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((before, False) for before in _before(flat, operation, held))
    return found


def _before(flat: Flat, operation: Operation, held: Mapping[Ref, Held]) -> Iterator[str]:
    yield from gating(flat, operation)
    yield from (ref[0] for ref in reversed(flat.inputs(operation)) if ref not in held)


def gating(flat: Flat, operation: Operation) -> Iterator[str]:
    """The nodes without whose side of a branch an operation does not run: switches that it waits for."""
    for name in operation.controls:
        source = flat.source((name, 0)) if name in flat.operations else None
        if source is not None and source.op == "Switch":
            yield name


def _unsupported(node: Node) -> str:
    if node.op in AUDIO:
        name = node.operation.name
        return f'sound is not turned into features here; cut the graph after it: input_tensors: ["{name}"], and give the features'
    remedy = f"cut the graph before it with output_tensors, or add 'tensorflow::{node.op}' by a plugin"
    return f"this operator is not supported; {remedy}"


def _custom_attributes(node: Node, attrs: Mapping[str, object]) -> dict[str, object]:
    """The attributes that a plugin's op knows, of the node's."""
    from mace_frontend_tensorflow.node import plain

    return {
        key: plain(value)
        for key, value in node.operation.attrs.items()
        if key in attrs and np.isscalar(plain(value))
    }
