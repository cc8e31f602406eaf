"""fuse-group-norm: groups as images of one row between Reshapes."""

from __future__ import annotations

import pytest
from expressions import Expressions, ops_after

from mace_core.ir import Shape
from mace_transform_standard.layout.fuse_group_norm import fuse_group_norm

SEEDS = range(16)
SWAP = (0, 2, 1)


def spell_norm(
    e: Expressions, x: str, groups: int, perm: tuple[int, ...] = SWAP, result: Shape | None = None
) -> str:
    """Add the nodes into which an exporter divides a norm of groups; the result has the shape of x unless given."""
    shape = e.new.shape(x)
    apart = e("Reshape", x, shape=(shape[0], groups, x_size(shape) // shape[0] // groups))
    vectors = [e.constant(groups), e.constant(groups)]
    norm = e("InstanceNorm", e("Transpose", apart, perm=perm), *vectors, epsilon=1e-3)
    return e("Reshape", e("Transpose", norm, perm=perm), shape=result or shape)


def x_size(shape: tuple[int, ...]) -> int:
    size = 1
    for d in shape:
        size *= d
    return size


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_one_node(seed: int) -> None:
    e = Expressions(seed)
    groups, each = e.pick(1, 2, 3), e.pick(1, 2, 3)
    x = e("Sin", e.input(2, groups * each, *e.shape(0, 1, 2, 3)))
    graph = e.graph(e("Neg", spell_norm(e, x, groups)))
    assert ops_after([fuse_group_norm], graph, 2e-5) == ["Sin", "Transpose", "GroupNorm", "Transpose", "Neg"]


def test_what_is_nearly_it_stays() -> None:
    e = Expressions(0)
    x = e.input(2, 4, 3, 3)
    y = e("Reshape", x, shape=(2, 2, 18))
    inner = e("Transpose", y, perm=SWAP)
    norm = e("Transpose", e("InstanceNorm", inner, e.constant(2), e.constant(2)), perm=SWAP)
    for graph in (
        e.graph(spell_norm(e, e.input(2, 2, 4, 4), 4)),  # groups that are parts of channels
        e.graph(spell_norm(e, e.input(2, 4, 1, 2, 1, 2), 2)),  # more axes than kernels have
        e.graph(spell_norm(e, x, 2, result=(2, 3, 4, 3))),
        e.graph(spell_norm(e, e.input(4, 4, 4), 4, perm=(1, 2, 0))),
        e.graph(e("Reshape", norm, shape=(2, 4, 3, 3)), norm),
        e.graph(e("Reshape", norm, shape=(2, 4, 3, 3)), e("Neg", inner)),
    ):
        assert ops_after([fuse_group_norm], graph) == [n.op.name for n in graph.nodes]
