"""Predicts which nodes the vendor's compiler computes in one go.

Two predictions bound what it does. The safe one has only the pairs that the guide spells out (lines 642 to
677, and 726 to 740 for conversions of types). The optimistic one has every chain that its groups allow, with
the usual order of stages, because the sequences of rules A, B, D and E and the limits of deep layer fusion
are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mace_core.ir import Graph
from mace_target_mdla.operation import TfliteOperation

GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"), "CONV"),
    **dict.fromkeys(("ABS", "NEG"), "MATH1"),
    **dict.fromkeys(("MUL", "ADD", "SUB", "MAXIMUM", "MINIMUM"), "MATH2"),
    **dict.fromkeys(("RELU", "TANH", "LOGISTIC"), "ACT1"),
    **dict.fromkeys(("RELU6", "RELU_N1_TO_1"), "ACT1"),  # inferred: the guide's group says Relu alone
    "PRELU": "ACT2",
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "POOL"),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), "RESIZE"),
    "DEQUANTIZE": "DEQUANTIZE",
    "QUANTIZE": "REQUANT",
}
"""The guide's group of each operator; others are fused with nothing."""

SAFE_AFTER_CONV = ("MATH1", "ACT1", "ACT2", "POOL")
CONVERTED = ("CONV_2D", "FULLY_CONNECTED")
"""Operators that a conversion of types behind them is fused with."""
# PAD comes first, because it is fused into what follows it (guide 251).
STAGES = ("PAD", "CONV", "RESIZE", "MATH1", "MATH2", "ACT1", "ACT2", "POOL", "REQUANT")
"""The order of stages in the optimistic prediction: each once, any of them left out."""
MAX_CONVS = 2
"""Convolutions of a group before MDLA 3.0 (rule C); deep layer fusion has no such limit."""


def predict_groups(graph: Graph, taken: Sequence[str], generation: str, *, safe: bool) -> Mapping[str, int]:
    """Return the number of the group of each node that the target takes.

    taken: names of nodes, in the graph's order.
    """
    chosen = set(taken)
    uses = graph.uses()
    producers: dict[str, str] = {}
    for node in graph.nodes:
        producers.update(dict.fromkeys(node.outputs, node.name))
    operations = {node.name: TfliteOperation.of(node, graph) for node in graph.nodes if node.name in chosen}
    members: dict[int, list[TfliteOperation]] = {}
    groups: dict[str, int] = {}
    for name, operation in operations.items():
        for before in _single_use_producers(operation, uses, producers):
            number = groups.get(before)
            if number is None or members[number][-1].node.name != before:
                continue
            chain = members[number]
            joins = _joins_safely if safe else _joins_hopefully
            if joins(chain, operation, generation):
                chain.append(operation)
                groups[name] = number
                break
        else:
            groups[name] = len(members)
            members[len(members)] = [operation]
    return groups


def _single_use_producers(
    operation: TfliteOperation, uses: Mapping[str, int], producers: Mapping[str, str]
) -> Iterator[str]:
    """Yield the nodes whose result this one alone reads: no rule fuses what several read."""
    for tensor in operation.activations:
        if uses[tensor.name] == 1 and tensor.name in producers:
            yield producers[tensor.name]


def _joins_safely(chain: Sequence[TfliteOperation], operation: TfliteOperation, generation: str) -> bool:
    """Tell whether the guide spells out that the node is fused with the chain before it."""
    first, group = chain[0].operator, GROUPS.get(operation.operator)
    if GROUPS.get(first) != "CONV":
        return False
    # Line 664 gives pairs as examples of rule A, and nothing longer. Rule F puts RESIZE between (line 675).
    if len(chain) == 1:
        is_conversion = group in ("REQUANT", "DEQUANTIZE") and first in CONVERTED
        return group in SAFE_AFTER_CONV or is_conversion or (group == "RESIZE" and generation == "3.0")
    after_resize = GROUPS.get(chain[1].operator) == "RESIZE"
    return len(chain) == 2 and after_resize and group in ("MATH1", "ACT1", "ACT2")


def _joins_hopefully(chain: Sequence[TfliteOperation], operation: TfliteOperation, generation: str) -> bool:
    """Tell whether no rule that is known forbids that the node is fused with the chain before it."""
    stage = _stage(operation)
    if stage is None or _stage(chain[-1]) is None:
        return False
    # Deep layer fusion has no limit of layers (line 675), and its constraints are lost.
    if generation == "3.0":
        return True
    convs = sum(_stage(member) == "CONV" for member in chain)
    # A second convolution begins group 2 of rule C, whose stages start again (line 667).
    if stage in ("CONV", "PAD"):
        return convs < MAX_CONVS
    return STAGES.index(stage) > STAGES.index(_stage(chain[-1]) or "PAD")


def _stage(operation: TfliteOperation) -> str | None:
    if operation.operator == "PAD":
        return "PAD"
    group = GROUPS.get(operation.operator)
    # Both are fused behind a convolution that nothing else reads (lines 727 and 737).
    return "REQUANT" if group == "DEQUANTIZE" else group
