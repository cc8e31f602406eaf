"""Imports a TensorFlow model into the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.attributes import Attributes, AttributeValues, values_of
from mace_core.graph_builder import FOLD_LIMIT, Builder
from mace_core.importer import Convert, Importer, Limits, RefusedError, Scope, SkippedError
from mace_core.ir import Array, Node, Quant, Shape
from mace_core.ops.op import Op
from mace_frontend_tensorflow.flat import Flat, GraphOperation, Ref
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.source import TensorFlowSource
from mace_frontend_tensorflow.values import (
    RANDOM_REFUSAL,
    Constant,
    Dead,
    Mask,
    Noise,
    OptionalValue,
    TensorList,
    Value,
)


@dataclass(kw_only=True)
class FlatScope(Scope[Ref, Value]):
    """What outputs of operations stand for in a graph, or in the body of a loop or branch.

    It has no parent scope: bodies of TensorFlow 2 read their arguments alone, and those of TensorFlow 1 lie
    in the main graph, so that what they read from outside is put into `values`.
    """

    flat: Flat

    def get(self, name: Ref) -> OptionalValue:
        """Return the value of an output, None where its node failed; RefusedError for an unknown one."""
        ref = self.flat.resolve(name)
        if ref in self.values:
            return self.values[ref]
        operation, index = ref
        if operation not in self.flat.operations:
            raise RefusedError(
                f"it reads {operation!r}, which the model does not hold; export the model again"
            )
        if (operation, 0) not in self.values:
            # Everything that an operation reads is translated before it: only in a cycle is it not.
            raise RefusedError(
                f"it reads {operation!r}, which depends on it; write the loop by tf.while_loop of version 2"
            )
        raise RefusedError(
            f"it reads output {index} of {operation!r}, which is not computed; export the model for inference"
        )


class TensorFlowImporter(Importer[Value]):
    """Reads the operations of a model.

    source: the model's files.
    known_constants: the constant of each operation, so that all iterations of a loop share it.
    """

    limits = Limits(depth=16, nodes=50_000, nesting="branches and loops are nested")

    def __init__(self, source: TensorFlowSource, builder: Builder, convert: Convert[Value]) -> None:
        super().__init__(source.name, builder, convert)
        self.source = source
        self.known_constants: dict[GraphOperation, Constant] = {}
        self._folded: dict[Hashable, tuple[str, ...]] = {}
        self._bodies: dict[str, Flat] = {}

    def tensor(self, value: OptionalValue) -> str:
        """Return the tensor of the graph that holds a value; a constant is added when it is first read.

        RefusedError for a value that is no tensor, SkippedError for one whose node failed or is not run.
        """
        if value is None or isinstance(value, Dead):
            raise SkippedError
        if isinstance(value, TensorList):
            raise RefusedError(
                "it reads a list of tensors as a tensor; cut the graph before it with output_tensors"
            )
        if isinstance(value, Noise | Mask):
            raise RefusedError(RANDOM_REFUSAL)
        if isinstance(value, str):
            if not value:
                raise RefusedError(
                    "it reads an output that is not computed for inference; export the model for inference"
                )
            return value
        if value.fill is not None and value.bytes > FOLD_LIMIT:
            return self._expand_fill(value, value.fill)
        return self.derive(value, "itself", lambda array: array)

    def _expand_fill(self, value: Constant, fill: Array) -> str:
        """Return a large constant of equal elements as one element that is expanded when the model runs.

        The file stores a single element too: written out it could make a library of any size.
        """

        def make() -> str:
            element = self.builder.weight(f"{value.name}/element", fill.reshape((1,) * len(value.shape)))
            names = [self.builder.fresh(value.name)]
            return self.builder.one("Expand", [element], {"shape": value.shape}, outputs=names)

        return self.constant(value, make)

    def array(self, value: OptionalValue) -> Array | None:
        """Return the elements of a constant; None for what is computed at run time."""
        if isinstance(value, Constant):
            return value.read()
        return self.builder.constant(value) if isinstance(value, str) else None

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None,
        *,
        outputs: Sequence[str],
        like: Node,
    ) -> tuple[str, ...]:
        """Add a node of the IR.

        All iterations of a loop share a node that reads constants alone: each would make the same constant
        again.
        """
        if not inputs or not all(name in self.builder.weights for name in inputs):
            return self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        values = values_of(attrs) if isinstance(attrs, Attributes) else attrs or {}
        key = (
            op if isinstance(op, str) else op.name,
            tuple(inputs),
            repr(sorted(values.items())),
            len(outputs),
        )
        if key not in self._folded:
            self._folded[key] = self.builder.add(op, inputs, attrs, outputs=outputs, like=like)
        return self._folded[key]

    def derive(self, value: OptionalValue, key: Hashable, make: Callable[[Array], Array]) -> str:
        """Return a constant made from another, which does not enter the graph itself, by moving its elements.

        key: tells apart what is made from one constant.
        """
        return self.constant((value, key), lambda: self._add_derived(value, make))

    def _add_derived(self, value: OptionalValue, make: Callable[[Array], Array]) -> str:
        # A quantized constant stays one: its integers are moved, and dequantized behind that, so that a
        # target finds the integers that training chose and need not quantize again.
        if isinstance(value, Constant) and value.quantized:
            integers, quant = value.quantized
            quant_after = _derive_quant(quant, integers.shape, make)
            if quant_after is not None:
                weight = self.builder.weight(f"{value.name}/stored", make(integers), quant_after)
                return self.builder.one("Dequantize", [weight], outputs=[self.builder.fresh(value.name)])
        array = self.array(value)
        if array is None:
            raise RefusedError(
                "it reads a constant that is computed at run time; freeze the model with a constant"
            )
        return self.builder.weight(value.name if isinstance(value, Constant) else str(value), make(array))

    def find_body(self, function: AttrValue) -> Flat:
        """Return the body of a function that a node names; every function is flattened once."""
        name = function.func.name
        if name not in self._bodies:
            self._bodies[name] = self.source.functions.function(name, dict(function.func.attr))
        return self._bodies[name]


def _derive_quant(quant: Quant, shape: Shape, make: Callable[[Array], Array]) -> Quant | None:
    """Return the quantization of a constant after its elements were moved.

    None if the elements of one scale no longer lie at one index of an axis. The function that moves them is
    not known here, so that it is applied to an array that holds the number of the scale of every element.
    """
    if quant.axis is None:
        return quant
    scale_shape = [-1 if i == quant.axis else 1 for i in range(len(shape))]
    scales = make(np.broadcast_to(np.arange(shape[quant.axis]).reshape(scale_shape), shape))
    for axis, size in enumerate(scales.shape):
        expected = np.arange(size).reshape([-1 if i == axis else 1 for i in range(scales.ndim)])
        if size == shape[quant.axis] and bool((scales == expected).all()):
            return replace(quant, axis=axis)
    return None
