"""Parts that contradict themselves are refused, with the target's name."""

from __future__ import annotations

import pytest

from mace_core.errors import PluginError
from mace_core.ir import DType, Tensor
from mace_core.part import HOST, BlobBody, BufferKind, MemorySpace, Part, PartPort, ProjectBody

X = Tensor("x", DType.F32, (3,))
Y = Tensor("y", DType.F32, (3,))
ISLAND = MemorySpace("island", alignment=256, granule=4096, slack=16)
BLOB = BlobBody(b"code")


def test_the_space_of_a_part_is_that_of_its_device() -> None:
    part = Part("p", "acme", (PartPort(X, ISLAND),), (PartPort(Y, ISLAND, 64),), BLOB, driver="acme_driver")
    assert part.space == ISLAND
    assert [port.bytes for port in (*part.inputs, *part.outputs)] == [12, 64]
    assert Part("p", "acme", (PartPort(X),), (PartPort(Y),), BLOB, driver="acme_driver").space == HOST


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"driver": ""}, "has a driver and no bytes for it, or bytes and no driver"),
        ({"body": ProjectBody({})}, "has a driver and no bytes for it, or bytes and no driver"),
        ({"outputs": (PartPort(Y, MemorySpace("other")),)}, "uses the spaces island, other"),
        ({"inputs": (PartPort(X, ISLAND, 8),)}, "gives 'x' 8 bytes of 12"),
        (
            {"inputs": (PartPort(X, ISLAND, kinds=(BufferKind.HOST,)),)},
            "imports host memory into 'island' at 'x'",
        ),
        ({"driver": "", "body": ProjectBody({})}, "has tensors outside host memory that nothing can reach"),
    ],
)
def test_contradictions_name_the_target_and_the_part(change: dict[str, object], problem: str) -> None:
    stated = {
        "inputs": (PartPort(X, ISLAND),),
        "outputs": (PartPort(Y, ISLAND),),
        "body": BLOB,
        "driver": "acme_driver",
        **change,
    }
    with pytest.raises(PluginError) as error:
        Part("p0", "acme", **stated)  # type: ignore[arg-type]
    assert str(error.value).startswith(f"target 'acme': part 'p0': {problem}; ")


@pytest.mark.parametrize(("size", "rounded"), [(0, 0), (1, 4096), (4096, 4096), (4097, 8192)])
def test_sizes_round_up_to_the_granule(size: int, rounded: int) -> None:
    assert ISLAND.round_up(size) == rounded
