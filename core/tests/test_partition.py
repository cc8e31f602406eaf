"""Which target computes what."""

import numpy as np
import pytest

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.partition import count_regions, partition


class Only(Target):
    """Takes the ops that it is given."""

    device = "cpu"

    def __init__(self, name: str, ops: set[str], least: int = 0) -> None:
        self.name = name  # type: ignore[misc]  # an instance stands for a class of its own here
        self.ops, self.least = ops, least

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None if node.op.name in self.ops else Refusal("unsupported-op", f"no {node.op.name} here")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        raise NotImplementedError

    def worth(self, region: Graph) -> bool:
        return len(region.nodes) >= self.least


def random(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    new = Builder("random")
    results = [new.input("x", DType.F32, (2,))]
    for _ in range(14):
        a, b = (results[int(i)] for i in rng.integers(0, len(results), 2))
        results.append(
            new.one("Relu", [a]) if rng.random() < 0.5 else new.one(str(rng.choice(["Add", "Mul"])), [a, b])
        )
    return new.finish(results[-3:])


TARGETS = {
    "two": (Only("npu", {"Add"}), Only("cpu", {"Add", "Relu", "Mul"})),
    "three": (Only("npu", {"Add"}), Only("gpu", {"Mul"}), Only("cpu", {"Relu"})),
}


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("seed", range(50))
def test_regions_are_convex_complete_and_in_order(seed: int, targets: str) -> None:
    graph = random(seed)
    parts = partition(graph, TARGETS[targets])
    assert sorted(n.name for r in parts.regions for n in r.graph.nodes) == sorted(n.name for n in graph.nodes)
    known = {*graph.inputs, *graph.weights}
    # A path that left a region and came back would need what is not computed yet.
    for region in parts.regions:
        assert set(region.graph.inputs) <= known
        known |= {o for n in region.graph.nodes for o in n.outputs}
    assert {n.op.name for r in parts.regions if r.target.name == "npu" for n in r.graph.nodes} <= {"Add"}


def test_one_target_gets_one_region() -> None:
    parts = partition(random(3), (Only("cpu", {"Add", "Relu", "Mul"}),))
    assert len(parts.regions) == 1
    assert not parts.refusals


def test_a_region_too_small_goes_to_the_next_target() -> None:
    parts = partition(random(5), (Only("npu", {"Add"}, least=100), Only("cpu", {"Add", "Relu", "Mul"})))
    assert {r.target.name for r in parts.regions} == {"cpu"}
    assert "not-worth-it" in {refused.refusal.code for refused in parts.refusals}


def test_every_node_without_a_target_is_told() -> None:
    with pytest.raises(MaceError) as error:
        partition(random(1), (Only("cpu", {"Relu"}),))
    graph = random(1)
    lost = [n.name for n in graph.nodes if n.op.name != "Relu"]
    assert all(f"node {name!r}" in str(error.value) for name in lost)
    assert "cpu: no Add here" in str(error.value)


# With the set of regions before each region it takes many minutes, with counts a few seconds.
@pytest.mark.exhaustive
@pytest.mark.timeout(150)
def test_twenty_thousand_switches_of_target() -> None:
    new = Builder("alternating")
    last = new.input("x", DType.F32, (2,))
    for i in range(20_000):
        last = new.one(("Relu", "Abs")[i % 2], [last])
    graph = new.finish([last])
    parts = partition(graph, (Only("npu", {"Relu"}), Only("cpu", {"Abs"})))
    assert len(parts.regions) == 20_000


def test_a_node_joins_an_earlier_region_that_no_path_leaves() -> None:
    new = Builder("late")
    x = new.input("x", DType.F32, (2,))
    first, other = new.one("Add", [x, x]), new.one("Relu", [x])
    graph = new.finish([new.one("Add", [first, other])])
    parts = partition(graph, (Only("npu", {"Add"}), Only("cpu", {"Relu"})))
    assert [[n.op.name for n in r.graph.nodes] for r in parts.regions] == [["Relu"], ["Add", "Add"]]


def test_what_runs_after_a_region_also_runs_after_what_feeds_its_second_node() -> None:
    """Regions: gpu (Mul), cpu (Relu), npu (Add): the last Relu must not join the first, which runs before the Mul."""
    new = Builder("second")
    x = new.input("x", DType.F32, (2,))
    product, rectified, total = new.one("Mul", [x, x]), new.one("Relu", [x]), new.one("Add", [x, x])
    late_product = new.one("Mul", [product, total])  # gpu runs after npu
    late_total = new.one("Add", [total, rectified])  # npu runs after cpu, and so does gpu
    graph = new.finish([new.one("Relu", [late_product]), late_total])
    parts = partition(graph, TARGETS["three"])
    assert [[node.op.name for node in region.graph.nodes] for region in parts.regions] == [
        ["Relu"],
        ["Add", "Add"],
        ["Mul", "Mul"],
        ["Relu"],
    ]


@pytest.mark.parametrize(
    ("taken", "regions"), [((), 0), ((0,), 1), ((0, 1, 2, 3), 1), ((0, 2), 2), ((0, 1, 3), 2), ((1, 2), 1)]
)
def test_a_chain_is_divided_where_another_target_computes(taken: tuple[int, ...], regions: int) -> None:
    builder = Builder("chain")
    tensor = builder.input("x", DType.F32, (4,))
    for _ in range(4):
        tensor = builder.one("Relu", [tensor])
    graph = builder.finish([tensor])
    assert count_regions(graph, [graph.nodes[number].name for number in taken]) == regions
