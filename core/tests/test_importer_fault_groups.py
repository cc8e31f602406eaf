"""Faults of many nodes become a line for each reason."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.importer.fault_groups import FaultGroups, FaultyNode


def test_nodes_of_one_operator_and_reason_are_one_line() -> None:
    faults = FaultGroups()
    faults.check()
    for name in ("a", "b", "it's c", "d", "a"):
        faults.add(FaultyNode("m.onnx", "node", name, "Foo"), "is unknown; do without")
    faults.add(FaultyNode("m.onnx", "layer", "e", "Bar"), "is unknown; do without")
    faults.add(None, "m.onnx: output 'y': is nowhere; name another")
    for name in ("f", "g", "h"):
        faults.add(FaultyNode("m.onnx", "layer", name, "Foo"), "has 3 inputs; give 2")
    with pytest.raises(MaceError) as error:
        faults.check()
    assert str(error.value).splitlines() == [
        """m.onnx: 4 nodes (Foo), 'a', 'b', "it's c" and 1 more: is unknown; do without""",
        "m.onnx: layer 'e' (Bar): is unknown; do without",
        "m.onnx: output 'y': is nowhere; name another",
        "m.onnx: 3 layers (Foo), 'f', 'g', 'h': has 3 inputs; give 2",
    ]
