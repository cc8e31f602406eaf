"""Makes the buffers that a run of an exported program changes inputs and outputs: states of the graph.

ONNX knows no state: torch's exporter writes buffers as constants, with the values that they begin with, and
leaves out what a run writes to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.graph_builder import NEXT
from mace_core.ir import Array

STARTS_FILE = "starts.npz"
"""The name of the file, beside the ONNX file, that holds the values before the first run by state."""

PREFIX = "state."
"""Stands before each name there: numpy takes `file` and `allow_pickle` for arguments of its own."""


def find_states(program: Any) -> dict[str, Any]:
    """Return the buffers that a run of an exported program changes, with their values before the first."""
    schemas = [getattr(node.target, "_schema", None) for node in program.graph.nodes]
    functional = program
    # Operators that write in place tell what they write once they are made functional.
    if any(schema.is_mutable for schema in schemas if schema):
        functional = program.run_decompositions({})
    buffers = dict(program.named_buffers())
    changed = functional.graph_signature.buffers_to_mutate.values()
    return {name: buffers[name].detach().cpu().clone() for name in changed}


def name_states(states: Collection[str], taken: Collection[str]) -> list[str]:
    """Return a name for each state that no other has: neither it nor its next value is an input or output."""
    names: list[str] = []
    for state in states:
        name = state
        while {name, name + NEXT} & {*taken, *names}:
            name += "_"
        names.append(name)
    return names


def export_with_states(program: Any, starts: Mapping[str, Any], examples: Sequence[Any]) -> Any:
    """Return a program that takes the states before its inputs, and returns them before its outputs."""
    import torch

    class WithStates(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module()

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            # The module writes to its buffers in place, and an input must stay as it is.
            states = {name: tensor.clone() for name, tensor in zip(starts, tensors, strict=False)}
            results = call_module(program, self.inner, tensors[len(starts) :], states)
            return (*states.values(), results)

    with torch.no_grad():
        return torch.export.export(WithStates(), (*starts.values(), *examples))


def call_module(program: Any, module: Any, tensors: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
    """Call the module of a program with its inputs in order, some of its buffers replaced."""
    import torch
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(list(tensors), program.call_spec.in_spec)
    return torch.func.functional_call(module, dict(buffers), args, kwargs)


def write_starts(target: Path, starts: Mapping[str, Array]) -> None:
    """Write the values before the first run beside an ONNX file, by the names of the states there."""
    arrays = {PREFIX + name: start for name, start in starts.items()}
    np.savez(target.with_name(STARTS_FILE), **arrays)  # type: ignore[arg-type]  # its keywords are arrays


def read_starts(target: Path) -> dict[str, Array]:
    """Return the values before the first run, by state; none for a model without states."""
    path = target.with_name(STARTS_FILE)
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        return {key.removeprefix(PREFIX): array for key, array in arrays.items()}
