"""Rewriting: what rules see of a graph, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, Quant, Storage
from mace_core.ops import core_ops
from mace_core.rewrite import Match, copy_nodes, rewrite
from mace_core.run.reference import execute

X = np.array([[-2.0, 3.0]], np.float32)


def chain(*ops: str) -> Graph:
    builder = Builder("chain")
    tensor = builder.input("x", DType.F32, (1, 2))
    for op in ops:
        tensor = builder.one(op, [tensor], outputs=[op.lower()])
    return builder.finish([tensor], ["y"])


def replace_abs(match: Match) -> Sequence[str] | None:
    if match.node.op.name != "Abs":
        return None
    return match.emit("Neg", match.node.inputs)


def test_a_rule_that_answers_nothing_keeps_every_node_itself() -> None:
    graph = chain("Relu", "Abs")
    after = rewrite(graph, lambda match: None)
    assert after.nodes == graph.nodes
    assert all(kept is node for kept, node in zip(after.nodes, graph.nodes, strict=True))


def test_an_answer_takes_the_place_of_the_node_and_keeps_name_and_source() -> None:
    after = rewrite(chain("Abs", "Relu"), replace_abs)
    assert [node.op.name for node in after.nodes] == ["Neg", "Relu"]
    assert (after.nodes[0].name, after.nodes[0].sources) == ("abs", ("abs",))
    np.testing.assert_array_equal(execute(after, {"x": X})["y"], [[2, 0]])


def test_a_node_that_nothing_reads_any_more_disappears() -> None:
    def skip(match: Match) -> Sequence[str] | None:
        return [match.builder.inputs[0]] if match.node.op.name == "Relu" else None

    after = rewrite(chain("Abs", "Relu", "Neg"), skip)
    assert [node.op.name for node in after.nodes] == ["Neg"]
    np.testing.assert_array_equal(execute(after, {"x": X})["y"], -X)


def test_a_producer_is_seen_only_by_its_sole_reader() -> None:
    builder = Builder("two")
    x = builder.input("x", DType.F32, (1, 2))
    y = builder.one("Abs", [x])
    graph = builder.finish([builder.one("Relu", [y]), builder.one("Neg", [y])], ["r", "n"])
    seen: dict[str, bool] = {}

    def look(match: Match) -> None:
        seen[match.node.op.name] = match.sole_producer(0, "Abs") is not None

    rewrite(graph, look)
    rewrite(chain("Abs", "Sqrt"), look)
    assert seen == {"Abs": False, "Relu": False, "Neg": False, "Sqrt": True}


def test_a_producer_that_rounds_to_its_storage_is_hidden() -> None:
    builder = Builder("quantized")
    x = builder.input("x", DType.F32, (1, 2))
    rounded = builder.one(
        "Quantize", [x], outputs=[builder.reserve_output("q", Storage(DType.I8, Quant.of(0.5)))]
    )
    graph = builder.finish([builder.one("Dequantize", [rounded])], ["y"])
    producers = []

    def look(match: Match) -> None:
        producers.append(match.sole_producer(0))

    rewrite(graph, look)
    assert producers == [None, None]


def test_quantized_constants_are_no_constants_of_rules() -> None:
    builder = Builder("constants")
    x = builder.input("x", DType.F32, (1, 2))
    plain = builder.weight("w", X)
    integers = builder.weight("q", np.array([[1, 2]], np.int8), Quant.of(0.5))
    graph = builder.finish([builder.one("Add", [builder.one("Add", [x, plain]), integers])], ["y"])
    seen: list[bool] = []

    def look(match: Match) -> None:
        seen.append(match.constant(1) is not None)

    rewrite(graph, look)
    assert seen == [True, False]
    assert Match(graph.nodes[0], builder, {}).constant(7) is None


def test_merged_origins_come_in_the_order_of_the_graph_each_once() -> None:
    first, second = chain("Abs", "Relu").nodes
    merged = Match(second, Builder("b"), {}).merge_origins(first)
    assert merged.sources == ("abs", "relu")
    assert Match(merged, Builder("b"), {}).merge_origins(first).sources == ("abs", "relu")


def test_copied_nodes_read_the_renamed_tensors_and_constants_are_computed() -> None:
    graph = chain("Abs", "Relu")
    builder = Builder("copy")
    constant = builder.weight("c", X)
    renamed = copy_nodes(graph, builder, {"x": constant})
    assert builder.nodes == []
    np.testing.assert_array_equal(builder.weights[renamed.get("y", "y")], np.abs(X))


@pytest.mark.parametrize(
    ("ops", "is_found"), [((), True), (("Neg",), True), (("Abs", "Neg"), True), (("Abs",), False)]
)
def test_the_sole_producer_has_one_of_the_ops_if_any_are_named(ops: tuple[str, ...], is_found: bool) -> None:
    builder = Builder("m")
    negated = builder.one("Neg", [builder.input("x", DType.F32, (2,))])
    graph = builder.finish([builder.one("Relu", [negated])], ["y"])
    producers: list[str] = []

    def rule(match: Match) -> None:
        producer = match.sole_producer(0, *ops)
        if producer:
            producers.append(f"{producer.op.name} for {match.node.op.name}")

    rewrite(graph, rule)
    assert producers == (["Neg for Relu"] if is_found else [])


def readers_seen(drop: str, *others: str) -> dict[str, bool]:
    """Abs, then an Identity that the rule drops, then readers of either: does each see Abs as its sole producer?

    drop: readers of the Identity; others: readers of Abs itself.
    """
    builder = Builder("readers")
    absolute = builder.one("Abs", [builder.input("x", DType.F32, (1, 2))])
    identity = builder.one("Identity", [absolute])
    readers = [builder.one(op, [identity]) for op in drop.split()]
    readers += [builder.one(op, [absolute]) for op in others]
    seen: dict[str, bool] = {}

    def rule(match: Match) -> Sequence[str] | None:
        if match.node.op.name == "Identity":
            return match.node.inputs
        seen[match.node.op.name] = match.sole_producer(0, "Abs") is not None
        return None

    rewrite(builder.finish(readers), rule)
    return {op: found for op, found in seen.items() if op != "Abs"}


def test_readers_of_a_dropped_node_are_counted_as_readers_of_its_input() -> None:
    assert readers_seen("Relu") == {"Relu": True}
    assert readers_seen("Relu Neg") == {"Relu": False, "Neg": False}
    assert readers_seen("Relu", "Neg") == {"Relu": False, "Neg": False}
    assert readers_seen("Relu Exp", "Neg") == {"Relu": False, "Exp": False, "Neg": False}
    assert readers_seen("", "Neg") == {"Neg": True}


def test_readers_of_a_new_tensor_are_those_of_the_old_one() -> None:
    def seen_with(count: int) -> list[bool]:
        builder = Builder("new")
        absolute = builder.one("Abs", [builder.input("x", DType.F32, (1, 2))])
        seen: list[bool] = []

        def rule(match: Match) -> Sequence[str] | None:
            if match.node.op.name == "Abs":
                return [match.builder.one("Exp", match.node.inputs)]
            seen.append(match.sole_producer(0, "Exp") is not None)
            return None

        rewrite(builder.finish([builder.one("Neg", [absolute]) for _ in range(count)]), rule)
        return seen

    assert seen_with(1) == [True]
    assert seen_with(2) == [False, False]


def test_absent_and_missing_inputs_have_neither_producer_nor_elements() -> None:
    builder = Builder("absent")
    x = builder.input("x", DType.F32, (4,))
    graph = builder.finish([builder.one("Clip", [x])], ["y"])
    node = graph.nodes[0]
    for inputs in ((x,), (x, "")):
        match = Match(replace(node, inputs=inputs), builder, {x: 1})
        assert (match.sole_producer(1), match.constant(1)) == (None, None)
        assert (match.sole_producer(2), match.constant(2)) == (None, None)
    assert Match(node, builder, {}).shape(0) == (4,)
    negated = builder.one("Neg", [x])
    assert Match(replace(node, inputs=(negated,)), builder, {}).sole_producer(0, "Neg") is not None


Q, OTHER = Storage(DType.I8, Quant.of(0.5)), Storage(DType.I8, Quant.of(0.25))


@pytest.mark.parametrize(
    ("op", "attrs", "storage", "is_found"),
    [
        ("Transpose", {"perm": (1, 0)}, Q, True),
        ("Transpose", {"perm": (1, 0)}, OTHER, False),
        ("Relu", {}, Q, False),
    ],
)
def test_a_producer_that_moves_integers_as_they_are_does_not_round(
    op: str, attrs: dict[str, Attribute], storage: Storage, is_found: bool
) -> None:
    builder = Builder("moved")
    x = builder.input("x", DType.I8, (1, 2), Q.quant)
    [moved] = builder.add(op, [x], attrs, outputs=[builder.reserve_output("m", storage)])
    result = Match(Node("r", core_ops()["Relu"], (moved,), ("y",)), builder, {moved: 1}).sole_producer(0)
    assert (result is not None) == is_found


def test_nodes_are_inferred_anew_where_what_they_read_has_changed() -> None:
    """A rule that answers with another shape, or with a constant, changes the node that reads it."""

    def rewrite_abs(answer: Callable[[Match], str]) -> Graph:
        def rule(match: Match) -> Sequence[str] | None:
            return [answer(match)] if match.node.op.name == "Abs" else None

        return rewrite(chain("Abs", "Neg"), rule)

    longer = rewrite_abs(lambda match: match.builder.one("Concat", [*match.node.inputs] * 2, {"axis": 1}))
    assert longer.tensors[longer.outputs[0]].shape == (1, 4)
    constant = rewrite_abs(lambda match: match.builder.weight("c", X))
    assert [node.op.name for node in constant.nodes] == ["Identity"]  # an output is no constant itself
    np.testing.assert_array_equal(execute(constant, {"x": X})["y"], -X)


def test_copied_nodes_read_each_other() -> None:
    builder = Builder("copy")
    builder.input("x", DType.F32, (1, 2))
    copy_nodes(chain("Abs", "Relu"), builder, {})
    assert [(node.op.name, node.inputs, node.outputs) for node in builder.nodes] == [
        ("Abs", ("x",), ("abs",)),
        ("Relu", ("abs",), ("y",)),
    ]
