"""Walk a model's calls and build the IR's graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array
from mace_core.translation import RefusedError, Senseless, SkippedError, attempt
from mace_frontend_keras.layer import Layer
from mace_frontend_keras.network import Call, Expansion, Ref
from mace_frontend_keras.node import Node
from mace_frontend_keras.ops import handlers
from mace_frontend_keras.source import Source
from mace_frontend_keras.weights import Weights

KEEP_MASK = frozenset(
    (
        *(
            "Activation",
            "ReLU",
            "LeakyReLU",
            "PReLU",
            "ELU",
            "Softmax",
            "Dense",
            "Identity",
            "Rescaling",
            "Normalization",
        ),
        *(
            "BatchNormalization",
            "LayerNormalization",
            "GroupNormalization",
            "UnitNormalization",
            "RMSNormalization",
        ),
        *(
            "Dropout",
            "AlphaDropout",
            "GaussianDropout",
            "GaussianNoise",
            "ActivityRegularization",
            "SpatialDropout1D",
        ),
        *("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "ThresholdedReLU"),
    )
)
"""Layers that hand a mask on to those that read them."""
USE_MASK = frozenset(
    (
        *(
            "LSTM",
            "GRU",
            "SimpleRNN",
            "RNN",
            "Bidirectional",
            "TimeDistributed",
            "ConvLSTM1D",
            "ConvLSTM2D",
            "ConvLSTM3D",
            "Softmax",
        ),
        *(
            "MultiHeadAttention",
            "GroupedQueryAttention",
            "GroupQueryAttention",
            "Attention",
            "AdditiveAttention",
            "GlobalAveragePooling1D",
        ),
    )
)
"""Layers that compute something else where a mask tells them to."""
MASKS = "make the model without masks (mask_zero=False, no Masking layer) and give it sequences of one length"
DEEPEST = 32


SENSELESS = Senseless(
    "its settings or weights",
    "save the model again",
    (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError, MemoryError),
)


class Translation:
    """One model's way into the IR. tensors: by name what a call made; None where that failed.

    masked: tensors that carry a mask.

    stateful: names of the layers whose states last from run to run.
    """

    def __init__(self, source: Source, builder: Builder, weights: Weights) -> None:
        self.source = source
        self.builder = builder
        self.weights = weights
        self.tensors: dict[str, str | None] = {}
        self.masked: set[str] = set()
        self.stateful: set[str] = set()
        self.faults: list[str] = []
        self._shared: dict[Hashable, str] = {}
        self._listed: dict[Hashable, list[str]] = {}
        self._depth = 0

    def tensor(self, ref: Ref) -> str:
        """The graph's tensor for a result of a call."""
        if ref.name not in self.tensors:
            raise RefusedError(f"it reads {ref.name!r}, which nothing makes")
        found = self.tensors[ref.name]
        if found is None:
            raise SkippedError
        return found

    def shared(self, key: Hashable, make: Callable[[], Array]) -> str:
        """A constant that is made once."""
        if key not in self._shared:
            self._shared[key] = self.builder.weight(
                "/".join(map(str, key)) if isinstance(key, tuple) else str(key), make()
            )
        return self._shared[key]

    def listed(self, key: Hashable, make: Callable[[], list[str]]) -> list[str]:
        """Constants that are made together, once."""
        if key not in self._listed:
            self._listed[key] = make()
        return self._listed[key]

    def refuse_unknown(self, calls: Iterable[Call]) -> None:
        """Raise one MaceError for all layers that nothing here knows."""
        faults = [
            f"{self._place(call)}: {_unsupported(call.layer.kind)}"
            for call in calls
            if not self._known(call.layer.kind)
        ]
        if faults:
            raise MaceError.of(dict.fromkeys(faults))

    def _known(self, kind: str) -> bool:
        return kind in handlers() or custom_name(kind) in self.builder.ops

    def _place(self, call: Call) -> str:
        return f"{self.source.file.name}: layer {call.name!r} ({call.layer.kind})"

    def call(self, call: Call) -> None:
        """Translate one call; a fault is noted, and what reads its results is passed over."""
        place = self._place(call)
        made = attempt(self.faults, place, lambda: self._made(Node(call, self)), SENSELESS) or ()
        self.tensors[call.name] = None
        self.tensors.update((Ref(call.name, i).name, tensor) for i, tensor in enumerate(made))

    def _made(self, node: Node) -> Sequence[str]:
        kind = node.layer.kind
        _refuse_settings(node)
        masked = any(self.tensors.get(ref.name) in self.masked for ref in node.call.refs())
        if masked and kind in USE_MASK:
            raise RefusedError(f"it is given sequences with a mask, which is computed at run time; {MASKS}")
        if kind in handlers():
            made = handlers()[kind](node)
        elif custom := self.builder.ops.get(custom_name(kind)):
            made = node.done(
                custom, node.inputs(), {k: v for k, v in node.layer.config.items() if k in custom.attrs}
            )
        else:
            raise RefusedError(_unsupported(kind))
        if (
            (masked and kind in KEEP_MASK)
            or kind == "Masking"
            or (kind == "Embedding" and node.get("mask_zero", False))
        ):
            self.masked.update(made)
        return made

    def apply(self, name: str, layer: Layer, tensors: Sequence[str]) -> list[str]:
        """Translate a layer or a model that another one is made of; its results.

        RefusedError with what is wrong in it.
        """
        if self._depth >= DEEPEST:
            raise RefusedError(f"layers are made of each other more than {DEEPEST} deep")
        given = [Ref(f"{name}/given", i) for i in range(len(tensors))]
        self.tensors.update((ref.name, tensor) for ref, tensor in zip(given, tensors, strict=True))
        expansion = Expansion()
        if layer.is_model:
            results = expansion.model(name, layer, given)
        else:
            expansion.call(name, layer, [given[0] if len(given) == 1 else given], {})
            results = []
        before = len(self.faults)
        self._depth += 1
        for call in expansion.calls:
            self.call(call)
        self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError
        if layer.is_model:
            return [self.tensor(ref) for ref in results]
        count = next(i for i in range(len(self.tensors) + 1) if Ref(name, i).name not in self.tensors)
        return [self.tensor(Ref(name, i)) for i in range(count)]


def custom_name(kind: str) -> str:
    """The name that a plugin's op for a kind of layer bears."""
    return f"keras::{kind.rpartition('>')[2]}"


def _refuse_settings(node: Node) -> None:
    """RefusedError for settings that change what every layer computes."""
    policy = node.layer.config.get("dtype")
    name = policy.get("class_name") if isinstance(policy, dict) else policy
    quantized = isinstance(name, str) and (
        "Quantized" in name or name.startswith(("int8_", "float8_", "int4_", "gptq", "awq"))
    )
    remedy = "save the model before it is quantized, or convert it to TFLite"
    node.refuse_unless(
        not quantized and not node.layer.config.get("quantization_config"),
        f"it is quantized by Keras; {remedy}",
    )


def _unsupported(kind: str) -> str:
    if kind in ("Lambda", "ops.Lambda"):
        return (
            "it is Python code, which is never executed here; write it with operations of keras.ops, "
            "or cut the graph before it with output_tensors"
        )
    name = custom_name(kind)
    return (
        f"{kind} is not supported; cut the graph before it with output_tensors, or add {name!r} by a plugin"
    )
