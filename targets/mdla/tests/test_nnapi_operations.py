"""Numbers, operands and types of every operation that the adapter is told, by a second source: Android's header of NNAPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from operator_files import FILES, file_of, stub_network

from mace_target_mdla.lite_model import LiteModel
from mace_target_mdla.network import encode_lite_model
from mace_target_mdla.neuron import NeuronOperation, OperandType

import neuron_network  # isort: skip  # operator_files puts the folder of the stub in reach

TABLE: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "nnapi_operations.yml").read_text(encoding="utf-8")
)
SCALARS = {
    OperandType.INT32: "int32",
    OperandType.BOOL: "bool",
    OperandType.FLOAT32: "scalar",
    OperandType.FLOAT16: "scalar",
}
TENSORS = {
    OperandType.TENSOR_FLOAT16: "f16",
    OperandType.TENSOR_FLOAT32: "f32",
    OperandType.TENSOR_QUANT8_ASYMM: "u8",
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: "i8",
    OperandType.TENSOR_INT32: "i32",
    OperandType.TENSOR_BOOL8: "bool",
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: "i8",
}
REPLACED = ("SQUEEZE", "EXPAND_DIMS")
"""Operations that no file becomes: RESHAPE stands in their place."""


def kinds(written: list[str], count: int) -> Iterator[str]:
    """The kinds of `count` operands, from those that the table states."""
    for kind in written:
        if kind == "tensor*":
            yield from ["tensor"] * (count - len(written) + 1)
        else:
            yield kind.removesuffix("?")


def fits(operand: Any, kind: str) -> bool:
    """Tell whether an operand is what the page demands at its place; a scalar may be an integer beside integers."""
    of = OperandType(operand.type)
    if kind == "tensor":
        return of in TENSORS
    if kind == "tensor-i32":
        return of is OperandType.TENSOR_INT32
    if kind == "tensor-bool":
        return of is OperandType.TENSOR_BOOL8
    return SCALARS.get(of) == kind or (kind == "scalar" and of is OperandType.INT32)


def test_the_table_has_every_operation_with_its_number() -> None:
    assert {name: entry["code"] for name, entry in TABLE.items()} == {
        operation.name: int(operation) for operation in NeuronOperation
    }


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("case", FILES)
def test_operands_have_the_order_and_the_types_of_the_page(case: str) -> None:
    network = neuron_network.Network(stub_network(encode_lite_model(LiteModel(file_of(case)[0]))))
    assert network.operations
    for code, inputs, _ in network.operations:
        entry = TABLE[NeuronOperation(code).name]
        operands = [network.operands[i] for i in inputs]
        written = entry["operands"]
        least = sum(not kind.endswith("?") for kind in written)
        assert least <= len(operands)
        assert len(operands) <= len(written) or "tensor*" in written
        for number, (operand, kind) in enumerate(zip(operands, kinds(written, len(operands)), strict=False)):
            assert fits(operand, kind), (NeuronOperation(code).name, number, kind, operand.type)
        # SELECT reads its numbers behind the condition.
        first = operands[1 if code == NeuronOperation.SELECT else 0]
        assert TENSORS[OperandType(first.type)] in entry["types"], NeuronOperation(code).name


def test_the_files_make_every_operation_of_the_table() -> None:
    told = set()
    for case in FILES:
        network = neuron_network.Network(stub_network(encode_lite_model(LiteModel(file_of(case)[0]))))
        told |= {NeuronOperation(code).name for code, _, _ in network.operations}
    assert set(TABLE) - told == set(REPLACED)
