"""A model on its way into the IR: faults of all nodes at once, limits, shared constants."""

from __future__ import annotations

import pytest
from importer_example import ExampleImporter, ExampleNode, ones

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.importer import Importer, RefusedError, SkippedError


def test_a_node_is_translated_and_bound_to_its_names() -> None:
    importer = ExampleImporter()
    node = ExampleNode(importer, "Relu")
    importer.scope.bind(node.writes, importer.translate(node))
    graph = importer.finish(lambda: [importer.scope.find("y")], ["result"])
    assert [(n.op.name, n.name, n.outputs, n.sources) for n in graph.nodes] == [
        ("Relu", "Relu-of-y", ("result",), ("Relu-of-y",))
    ]


def test_one_result_may_be_returned_without_a_list() -> None:
    importer = ExampleImporter()
    assert importer.translate(ExampleNode(importer, "double")) == ["double-of-y/twice"]


def test_faults_are_collected_over_all_nodes_and_what_reads_them_is_skipped() -> None:
    importer = ExampleImporter()
    for node in (
        ExampleNode(importer, "refused", writes=("p",)),
        ExampleNode(importer, "Relu", reads=("p",), writes=("q",)),
        ExampleNode(importer, "damaged", writes=("r",)),
        ExampleNode(importer, "skipped", writes=("s",)),
    ):
        importer.scope.bind(node.writes, importer.translate(node))
    with pytest.raises(MaceError) as error:
        importer.finish(lambda: pytest.fail("outputs are looked up though a node failed"), ["y"])
    assert str(error.value).splitlines() == [
        "m.example: node 'refused-of-p' (refused): this operator is not supported; do without",
        "m.example: node 'damaged-of-r' (damaged): its inputs or attributes make no sense (KeyError('k')); "
        "export the model again",
    ]


def test_unknown_operators_are_all_refused_before_anything_is_translated() -> None:
    importer = ExampleImporter()
    nodes = [ExampleNode(importer, kind) for kind in ("Relu", "Foo", "Bar", "Foo")]
    with pytest.raises(MaceError) as error:
        importer.refuse_unknown(nodes, lambda node: None if node.op == "Relu" else "is unknown")
    assert str(error.value).splitlines() == [
        "m.example: node 'Foo-of-y' (Foo): is unknown",
        "m.example: node 'Bar-of-y' (Bar): is unknown",
    ]
    importer.refuse_unknown(nodes, lambda node: None)
    assert not importer.builder.nodes


def test_nodes_that_fail_alike_are_one_line() -> None:
    importer = ExampleImporter()
    for name in ("p", "q", "r", "s", "t"):
        assert importer.translate(ExampleNode(importer, "refused", writes=(name,))) is None
    with pytest.raises(MaceError) as error:
        importer.raise_faults()
    assert str(error.value) == (
        "m.example: 5 nodes (refused), 'refused-of-p', 'refused-of-q', 'refused-of-r' and 2 more: this operator "
        "is not supported; do without"
    )


def test_a_shared_constant_is_made_once_and_only_if_asked_for() -> None:
    importer, made = ExampleImporter(), []

    def make() -> str:
        made.append(1)
        return importer.builder.weight("w", ones(2))

    assert made == []
    assert {importer.constant("key", make), importer.constant("key", make)} == {"w"}
    assert importer.constant("another key", make) == "w.1"
    assert len(made) == 2


def test_nesting_is_limited_and_reported_once() -> None:
    importer = ExampleImporter()
    assert importer.translate(ExampleNode(importer, "nested")) is None
    assert importer.faults == [
        "m.example: node 'nested-of-y' (nested): bodies hold bodies more than 3 deep; use fewer"
    ]


def test_a_subgraph_without_a_fault_is_no_fault() -> None:
    importer = ExampleImporter()
    importer.faults.append("an earlier one")
    for _ in range(5):
        with importer.enter_subgraph():
            pass
    with pytest.raises(SkippedError), importer.enter_subgraph():
        importer.faults.append("inside")


def test_what_is_written_out_is_counted_against_the_limit() -> None:
    importer = ExampleImporter()
    assert [importer.count_expanded(count) for count in (6, 4, 1, 0)] == [True, True, False, False]
    assert importer.has_room_for(10)
    importer.translate(ExampleNode(importer, "Relu"))
    assert not importer.has_room_for(10)
    assert importer.has_room_for(9)


class Plain(Importer[str]):
    """An importer with the limits that hold unless a frontend states others."""


def test_the_limits_of_a_frontend_that_states_none() -> None:
    importer = Plain("m.example", Builder("graph"), lambda node: "x")
    assert [importer.count_expanded(count) for count in (0, 16_384, 1)] == [True, True, False]
    assert [Plain("m", Builder("g"), lambda node: "x").has_room_for(count) for count in (16_384, 16_385)] == [
        True,
        False,
    ]

    def nest(depth: int) -> None:
        if depth:
            with importer.enter_subgraph():
                nest(depth - 1)

    nest(32)
    with pytest.raises(RefusedError, match="graphs call each other more than 32 deep"):
        nest(33)
