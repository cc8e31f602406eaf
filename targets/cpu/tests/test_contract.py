"""The contract that every target keeps; and that targets with a fault do not keep it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mace_core.attributes import values_of
from mace_core.ir import Graph, Node, Quant
from mace_core.levels import with_levels
from mace_core.lowering import Lower, Lowering
from mace_core.ops.pad import PadAttributes
from mace_core.ops.shapes import AxisAttributes
from mace_core.ops.windows import WindowAttributes
from mace_core.testing.processor import levels_here
from mace_core.testing.target import TargetContract
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86, X86_DEFAULT, CpuLevel

OTHER_LEVELS = [level for level in levels_here(X86) if level not in levels_here(X86_DEFAULT)[:1]]
"""Levels of this processor that TestCpu does not run: it takes the best of those that a library holds."""


@pytest.mark.slow
class TestCpu(TargetContract):
    target = Cpu()

    @pytest.mark.exhaustive  # every kernel has tests of its own in the plain run
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        super().test_accepted_nodes_compute_what_their_references_do(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("level", OTHER_LEVELS, ids=lambda level: str(level.name))
def test_every_other_level_of_this_processor_keeps_the_contract(level: CpuLevel, tmp_path: Path) -> None:
    contract = TestCpu()
    contract.target = with_levels(Cpu(), [level])  # type: ignore[misc]  # of this instance only
    TargetContract.test_accepted_nodes_compute_what_their_references_do(contract, tmp_path)


def swap_operands(node: Node, to: Lowering) -> Node:
    return replace(node, inputs=node.inputs[::-1])


def swap_pads(node: Node, to: Lowering) -> Node:
    attrs = node.attrs
    if isinstance(attrs, WindowAttributes):
        return replace(node, attrs=replace(attrs, pads_before=attrs.pads_after, pads_after=attrs.pads_before))
    assert isinstance(attrs, PadAttributes)
    return replace(node, attrs=replace(attrs, before=attrs.after, after=attrs.before))


def turn(key: str) -> Callable[[Node, Lowering], Node]:
    """Attributes of the axes in reverse."""

    def turned(node: Node, to: Lowering) -> Node:
        values = values_of(node.attrs)
        return replace(node, attrs=node.op.complete(values | {key: values[key][::-1]}))

    return turned


def forget_zero_point(node: Node, to: Lowering) -> Node:
    for name in node.inputs[:2]:
        tensor = to.tensors[name]
        if tensor.quant:
            to.tensors[name] = replace(tensor, quant=Quant.of(tensor.quant.scale[0]))
    return node


def forget_axis(node: Node, to: Lowering) -> Node:
    attrs = node.attributes(AxisAttributes)
    return replace(node, attrs=replace(attrs, axis=len(to.shape(node.inputs[0])) - 1))


FAULTS: Mapping[str, tuple[str, Callable[[Node, Lowering], Node]]] = {
    "sign": ("Sub", swap_operands),
    "padding of a window": ("Conv", swap_pads),
    "padding of a tensor": ("Pad", swap_pads),
    "transposed stride": ("Conv", turn("strides")),
    "pool stride": ("MaxPool", turn("strides")),
    "zero point of a sum": ("Add", forget_zero_point),
    "zero point of a convolution": ("Conv", forget_zero_point),
    "axis": ("Softmax", forget_axis),
}


def faulty(op: str, change: Callable[[Node, Lowering], Node]) -> Cpu:
    """The CPU target, which lowers one op as if the node were another."""

    def spoil_one(original: Lower) -> Lower:
        return lambda node, to: original(change(node, to), to)

    def spoil(table: Mapping[str, Any]) -> dict[str, Any]:
        original = table.get(op)
        if original is None:
            return {**table}
        if callable(original):
            return {**table, op: spoil_one(original)}
        return {**table, op: tuple(replace(way, lower=spoil_one(way.lower)) for way in original)}

    class Faulty(Cpu):
        lowerings: Any = spoil(Cpu().lowerings)
        quantized: Any = spoil(Cpu().quantized)

    return Faulty()


class OneOp(TargetContract):
    """The contract's own graphs of one op: to compile all for each fault takes too long."""

    op: ClassVar[str]

    def graphs(self) -> list[Graph]:
        return [g for g in super().graphs() if {n.op.name for n in g.nodes} == {self.op}]


OneOp.__test__ = False  # type: ignore[attr-defined]  # run by the test below


@pytest.mark.slow
@pytest.mark.sampled(cases="sign")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_target_with_a_fault_does_not_keep_the_contract(fault: str, tmp_path: Path) -> None:
    op, change = FAULTS[fault]
    contract = type("Faulty", (OneOp,), {"target": faulty(op, change), "op": op})()
    with pytest.raises(AssertionError, match=f"differ from their references:\\n.*= {op}\\("):
        contract.test_accepted_nodes_compute_what_their_references_do(tmp_path)
