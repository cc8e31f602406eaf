"""Names of tensors in a file."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Graph
from mace_core.terminal import escape_controls


def file_names(graph: Graph) -> Mapping[str, str]:
    """Return the name of each tensor of a graph in its file: the same, where a C string of UTF-8 can hold it.

    NUL would end a name early for readers in C, other control characters could forge lines of their messages,
    and a lone surrogate has no UTF-8; they are escaped. Names that become equal get a number; inputs and
    outputs come first, so that an inner tensor gives way to them.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys((*graph.inputs, *graph.outputs, *graph.tensors)):
        stem = escape_controls(name, keep="").encode("utf-8", "backslashreplace").decode("utf-8")
        unique, number = stem, 1
        while unique in taken:
            unique, number = f"{stem}.{number}", number + 1
        names[name] = unique
        taken.add(unique)
    return names
