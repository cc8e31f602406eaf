"""Refuses nodes that would take the padding behind selected boxes for boxes.

How many boxes a suppression selects is known at run time only, and tensors of the IR have fixed shapes: the
rows behind the last box are filled with -1 or 0. A framework has no such rows, so a node of the model that
looks a box up by its row, or counts with the rows, would silently compute with a box that was never selected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mace_core.ir import Node

MOVES = frozenset(("Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Split", "Transpose"))
"""Ops that leave padding what it is: they move rows or columns, or give them another type."""


PROBLEM = (
    "it computes with boxes that a suppression selects; their number is known at run time only, and rows "
    "behind the last box would be taken for boxes"
)

REMEDY = "name the selected boxes as an output of the deployment file, and look them up in the application"


def find_padded_reads(nodes: Sequence[Node], padded: Collection[str], outputs: Iterable[str]) -> list[Node]:
    """Return the first nodes on each way from padding to the outputs that compute with it.

    nodes: in their order.  padded: the tensors that end in padding.
    """
    needed, live = set(outputs), set()
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            live.add(node.name)
    unselected, faulty = set(padded), []
    for node in nodes:
        if node.name not in live or not unselected.intersection(node.inputs):
            continue
        is_lookup = node.op.name == "Gather" and node.inputs[1] in unselected
        if node.op.name in MOVES and not is_lookup:
            unselected.update(node.outputs)
        else:
            faulty.append(node)
    return faulty
