"""A TensorFlow model on its way into the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.attributes import Attributes, AttributeValues, values_of
from mace_core.graph_builder import FOLD_LIMIT, Builder
from mace_core.importer import Convert, Importer, Limits, RefusedError, Scope, SkippedError
from mace_core.ir import Array, Node, Quant, Shape
from mace_core.ops.op import Op
from mace_frontend_tensorflow.flat import Flat, Operation, Ref
from mace_frontend_tensorflow.held import REFUSAL, Constant, Dead, Held, Known, Mask, Noise, TensorList
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.source import Source


@dataclass(kw_only=True)
class FlatScope(Scope[Ref, Known]):
    """What outputs of operations stand for in a graph, or in the body of a loop or branch."""

    flat: Flat

    def get(self, name: Ref) -> Held:
        """Return what an output stands for, None where its node failed; RefusedError for an unknown one."""
        ref = self.flat.resolved(name)
        if ref in self.values:
            return self.values[ref]
        operation, index = ref
        if operation not in self.flat.operations:
            raise RefusedError(
                f"it reads {operation!r}, which the model does not hold; export the model again"
            )
        if (operation, 0) not in self.values:
            raise RefusedError(
                f"it reads {operation!r}, which depends on it; write the loop as tf.while_loop of TensorFlow 2"
            )
        raise RefusedError(f"it reads output {index} of {operation!r}, which is not computed")


class TensorFlowImporter(Importer[Known]):
    """Reads the operations of a model.

    known_constants: by operation, so that all turns of a loop share one.
    """

    limits = Limits(depth=16, nodes=50_000, nesting="branches and loops are nested")

    def __init__(self, source: Source, builder: Builder, convert: Convert[Known]) -> None:
        super().__init__(source.name, builder, convert)
        self.source = source
        self.known_constants: dict[Operation, Constant] = {}
        self._folded: dict[Hashable, tuple[str, ...]] = {}
        self._bodies: dict[str, Flat] = {}

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
        def make() -> str:
            one = self.builder.weight(f"{held.name}/element", fill.reshape((1,) * len(held.shape)))
            names = [self.builder.fresh(held.name)]
            return self.builder.one("Expand", [one], {"shape": held.shape}, outputs=names)

        return self.constant(held, make)

    def array(self, held: Held) -> Array | None:
        """The elements of a constant; None for what is computed at run time."""
        if isinstance(held, Constant):
            return held.read()
        return self.builder.constant(held) if isinstance(held, str) else None

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None,
        *,
        outputs: Sequence[str],
        like: Node,
    ) -> tuple[str, ...]:
        """Add an IR node; what it makes of constants is made once for all turns of a loop."""
        if not inputs or not all(name in self.builder.weights for name in inputs):
            return self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        values = values_of(attrs) if isinstance(attrs, Attributes) else attrs or {}
        mark = (
            op if isinstance(op, str) else op.name,
            tuple(inputs),
            repr(sorted(values.items())),
            len(outputs),
        )
        if mark not in self._folded:
            self._folded[mark] = self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        return self._folded[mark]

    def derived(self, held: Held, key: Hashable, make: Callable[[Array], Array]) -> str:
        """A constant made from another by moving its elements.

        That itself does not enter the graph for it.
        """
        return self.constant((held, key), lambda: self._moved(held, make))

    def _moved(self, held: Held, make: Callable[[Array], Array]) -> str:
        if isinstance(held, Constant) and held.stored:
            whole, quant = held.stored
            moved = _moved_quant(quant, whole.shape, make)
            if moved is not None:
                stored = self.builder.weight(f"{held.name}/stored", make(whole), moved)
                return self.builder.one("Dequantize", [stored], outputs=[self.builder.fresh(held.name)])
        array = self.array(held)
        if array is None:
            raise RefusedError("it reads a constant that is computed at run time")
        return self.builder.weight(held.name if isinstance(held, Constant) else str(held), make(array))

    def called(self, function: AttrValue) -> Flat:
        """The body of a function that a node names."""
        name = function.func.name
        if name not in self._bodies:
            self._bodies[name] = self.source.functions.function(name, dict(function.func.attr))
        return self._bodies[name]


def _moved_quant(quant: Quant, shape: Shape, make: Callable[[Array], Array]) -> Quant | None:
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
