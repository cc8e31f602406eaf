"""Candidates: what computes a node at which level, by cost or by a tuning file, and that either computes the right numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from candidates_target import (
    BODIES,
    HEAD,
    SIZE,
    Grouping,
    check_numbers,
    find_cost,
    folder_of,
    names,
    network,
)

from mace_core.candidates import Candidate, Chooser, check_tuning, lower_by_choice
from mace_core.emit import code
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Weight, join
from mace_core.refusal import Refusal
from mace_core.selection import Selection
from mace_core.testing.compiled import check_merged
from mace_core.tuning import NO_TUNING, Tuning, TuningEntry


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "base"])
def test_cost_decides_for_each_level_and_both_compute_right_numbers(is_fast: bool, tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path, is_fast), network()
    assert [target.refuses(node, graph) for node in graph.nodes] == [None] * 4
    program = target.lower(graph)
    add = [("copy", ("fast",)), ("turned", ("fast",)), ("plain", ("base",))]
    assert names(program) == [("relu", ()), *add, *add, ("relu", ())]
    choices = program.selections[0].choices
    assert [(c.level, c.candidate, c.reason) for c in choices] == [
        ("fast", "turned", "lowest cost"),
        ("base", "plain", "lowest cost"),
    ]
    assert choices[0].costs == {"plain": 9.0, "turned": 2.0}
    check_numbers(target, graph, program, tmp_path)


def entries(*found: TuningEntry) -> Tuning:
    return Tuning(Path("tuning.yml"), found)


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "base"])
def test_a_tuning_file_overrules_the_cost(is_fast: bool, tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path, is_fast), network()
    node = graph.nodes[1].name
    tuning = entries(
        TuningEntry("plain", 2, node=node, level="fast"), TuningEntry("turned", 3, node=node, level="base")
    )
    program = target.lower(graph, tuning=tuning)
    check_tuning(tuning, program.selections)
    add = [("copy", ("fast",)), ("turned", ("fast",)), ("plain", ("base",))]
    swapped = [("plain", ("fast",)), ("copy", ("base",)), ("turned", ("base",))]
    assert names(program) == [("relu", ()), *swapped, *add, ("relu", ())]
    assert [choice.reason for choice in program.selections[0].choices] == [
        "named by tuning.yml:2",
        "named by tuning.yml:3",
    ]
    check_numbers(target, graph, program, tmp_path)


def test_one_candidate_at_all_levels_is_called_at_all(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    tuning = entries(TuningEntry("plain", 2, op="Add", shapes="f32 2x6, f32 2x6"))
    program = target.lower(graph, tuning=tuning)
    check_tuning(tuning, program.selections)
    assert names(program) == [("relu", ()), ("plain", ()), ("plain", ()), ("relu", ())]
    alone = Grouping(folder_of(tmp_path, "alone"))
    alone.lowerings = {**alone.lowerings, "Add": alone.add_plain}
    assert [
        replace(c, kernel=d.kernel) for c, d in zip(program.calls, alone.lower(graph).calls, strict=True)
    ] == list(alone.lower(graph).calls)


def test_a_trial_without_levels_calls_the_first_candidate_of_all_levels_that_takes_the_node() -> None:
    def lower(name: str) -> Candidate:
        def append(node: Node, lowering: Lowering) -> None:
            if name.startswith("refuses"):
                raise Refused(f"{name} it")
            lowering.call(node, Call(Kernel(name, Path(name)), {}, tuple(node.inputs), tuple(node.outputs)))

        return Candidate(name, append, lambda *_: 1.0, ("fast",) if name == "fast only" else ())

    graph, chooser = network(), Chooser("t", (), lambda level: None)
    lowering = Lowering(graph)
    offered = [lower(name) for name in ("refuses", "fast only", "first", "second")]
    lower_by_choice(offered, graph.nodes[0], lowering, chooser)
    assert [call.kernel.name for call in lowering.calls] == ["first"]
    with pytest.raises(Refused, match="refuses it"):
        lower_by_choice(offered[:2], graph.nodes[0], Lowering(graph), chooser)


class OneLevel(Grouping):
    """Has one level, as a device has: its nodes are lowered without forks."""

    def levels(self, abi: str) -> tuple[Level, ...]:
        return super().levels(abi)[:1]


def test_a_candidate_does_not_see_what_one_of_the_node_before_has_set(tmp_path: Path) -> None:
    target, graph = OneLevel(tmp_path), network()

    def ask(node: Node, lowering: Lowering) -> None:
        target.add_plain(node, lowering.aim("asked", lowering.levels))

    def refuse_request(node: Node, lowering: Lowering) -> None:
        if lowering.parameters == "asked":
            raise Refused("was asked for something else")
        target.add_plain(node, lowering)

    free_candidate = Candidate("auto", refuse_request, lambda *_: 0.0)
    target.lowerings = {
        **target.lowerings,
        "Add": (free_candidate, Candidate("asking", ask, lambda *_: 1.0)),
    }
    tuning = entries(TuningEntry("asking", 1, node=graph.nodes[1].name))
    first, second = target.lower(graph, tuning=tuning).selections
    assert {choice.candidate for choice in first.choices} == {"asking"}
    assert {choice.candidate for choice in second.choices} == {"auto"}
    assert not second.refused


def test_a_node_is_stronger_than_an_op_and_a_level_than_all(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    node, shapes = graph.nodes[1].name, "f32 2x6, f32 2x6"
    tuning = entries(
        TuningEntry("plain", 1, op="Add", shapes=shapes),
        TuningEntry("turned", 2, node=node),
        TuningEntry("plain", 3, node=node, level="fast"),
    )
    first, second = target.lower(graph, tuning=tuning).selections
    assert [choice.candidate for choice in first.choices] == ["plain", "turned"]
    assert [choice.candidate for choice in second.choices] == ["plain", "plain"]


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "base"])
@pytest.mark.parametrize("strides", [(3, 2), (2, 2)], ids=["other", "same"])
def test_arguments_and_weights_differ_between_levels_where_a_lowering_asks_for_parameters(
    is_fast: bool, strides: tuple[int, int], tmp_path: Path
) -> None:
    target, graph = Grouping(tmp_path, is_fast, strides), network()
    target.lowerings = {**target.lowerings, "Add": target.add_turned}
    program = target.lower(graph)
    is_same = strides[0] == strides[1]
    results = [(call.args["stride"], call.levels) for call in program.calls if call.kernel.name == "turned"]
    assert results == ([(2, ())] * 2 if is_same else [(3, ("fast",)), (2, ("base",))] * 2)
    assert names(program)[0] == ("relu", ())
    assert len(program.weights) == (2 if is_same else 4)
    check_numbers(target, graph, program, tmp_path)


def test_a_kernel_is_compiled_only_for_the_levels_that_call_it(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    (tmp_path / "turned.c.in").write_text(
        "{% if level.name != 'fast' %}#error other level\n{% endif %}" + HEAD + BODIES["turned"]
    )
    check_numbers(target, graph, target.lower(graph), tmp_path)


def test_a_library_of_one_level_holds_its_calls_only(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    program = target.lower(graph)
    assert names(program.restrict(["base"])) == [("relu", ()), ("plain", ()), ("plain", ()), ("relu", ())]
    sources = code.library("cases", [plan_calls(program)], target.levels("host")[1:])
    assert not any(isinstance(text, str) and "turned" in text for text in sources.files.values())


FAULTS = [
    (
        TuningEntry("plain", 7, node="nowhere"),
        r"tuning.yml:7: node 'nowhere': .* nodes with several candidates: (\S+), (\S+)$",
    ),
    (
        TuningEntry("plain", 7, op="Add", shapes="f32 1"),
        r"tuning.yml:7: op 'Add' of 'f32 1': .* nodes with several candidates: Add of 'f32 2x6, f32 2x6'$",
    ),
    (
        TuningEntry("plain", 7, node="NODE", level="sse9"),
        r"tuning.yml:7: target grouping has no level 'sse9' here; its levels are fast, base; write",
    ),
    (
        TuningEntry("winograd", 7, node="NODE"),
        r"tuning.yml:7: no candidate 'winograd' for node .* at level fast; choose one of plain, turned$",
    ),
    (
        TuningEntry("plain", 7, node="NODE", target="other"),
        r"tuning.yml:7: node '.*': the model has no such node",
    ),
]


@pytest.mark.parametrize(("entry", "message"), FAULTS, ids=["node", "shapes", "level", "candidate", "target"])
def test_an_unknown_name_is_one_message_with_the_known_ones(
    entry: TuningEntry, message: str, tmp_path: Path
) -> None:
    target, graph = Grouping(tmp_path), network()
    tuning = entries(replace(entry, node=graph.nodes[1].name) if entry.node == "NODE" else entry)
    with pytest.raises(MaceError, match=message) as error:
        check_tuning(tuning, target.lower(graph, tuning=tuning).selections)
    assert len(str(error.value).splitlines()) == 1


def test_all_wrong_entries_are_told_together(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    tuning = entries(*(replace(entry, line=10 + number) for number, (entry, _) in enumerate(FAULTS[:2])))
    with pytest.raises(MaceError) as error:
        check_tuning(tuning, target.lower(graph, tuning=tuning).selections)
    assert [line.partition(": ")[0] for line in str(error.value).splitlines()] == [
        "tuning.yml:10",
        "tuning.yml:11",
    ]


def refuse(node: Node, to: Lowering) -> None:
    raise Refused("has no taste for it")


def free(node: Node, to: Lowering, level: Level) -> float:
    return 0.0


def test_a_candidate_that_refuses_the_node_is_passed_over_and_may_not_be_named(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    target.lowerings = {
        **target.lowerings,
        "Add": (Candidate("picky", refuse, free), *target.lowerings["Add"]),
    }  # type: ignore[misc]
    assert target.refuses(graph.nodes[1], graph) is None
    node = graph.nodes[1].name
    tuning = entries(TuningEntry("picky", 4, node=node))
    program = target.lower(graph, tuning=tuning)
    assert program.selections[0].refused == {"picky": "has no taste for it"}
    assert [choice.candidate for choice in program.selections[0].choices] == ["turned", "plain"]
    with pytest.raises(
        MaceError,
        match=r"tuning.yml:4: candidate 'picky' does not take node '.*': has no taste for it; choose one of plain, turned",
    ):
        check_tuning(tuning, program.selections)


def test_a_node_is_refused_unless_a_candidate_of_all_levels_takes_it(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    plain, turned = target.lowerings["Add"]  # type: ignore[misc]
    bound = replace(turned, levels=("fast",))
    target.lowerings = {**target.lowerings, "Add": (plain, bound)}
    assert target.refuses(graph.nodes[1], graph) is None
    assert [choice.costs for choice in target.lower(graph).selections[0].choices] == [
        {"plain": 9.0, "turned": 2.0},
        {"plain": 4.0},
    ]
    target.lowerings = {**target.lowerings, "Add": (Candidate("picky", refuse, free), bound)}
    assert "has no taste for it" in str(target.refuses(graph.nodes[1], graph))
    target.lowerings = {**target.lowerings, "Add": (bound,)}
    assert target.refuses(graph.nodes[1], graph) == Refusal(
        "unsupported-op", "no candidate for Add serves every level"
    )


def test_reasons_of_several_candidates_are_joined_and_the_last_one_says_what_to_do(tmp_path: Path) -> None:
    def refuse_shape(node: Node, to: Lowering) -> None:
        raise Refused("is too long", code="shape", remedy="make it shorter")

    target, graph = Grouping(tmp_path), network()
    target.lowerings = {
        **target.lowerings,
        "Add": (Candidate("picky", refuse, free), Candidate("general", refuse_shape, free)),
    }
    expected = Refusal("shape", "picky: has no taste for it; general: is too long", "make it shorter")
    assert target.refuses(graph.nodes[1], graph) == expected


@pytest.mark.parametrize("cost", [float("nan"), float("inf")])
def test_a_cost_that_is_no_number_is_the_plugins_fault(cost: float, tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    target.lowerings = {**target.lowerings, "Add": (Candidate("odd", target.add_plain, lambda *_: cost),)}
    with pytest.raises(
        PluginError, match=r"candidate 'odd': says that Add costs (nan|inf) at fast; return a finite number"
    ):
        target.lower(graph)


def test_two_candidates_of_one_name_are_the_plugins_fault(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    plain, turned = target.lowerings["Add"]  # type: ignore[misc]
    target.lowerings = {**target.lowerings, "Add": (plain, replace(turned, name="plain"))}
    with pytest.raises(
        PluginError, match="target 'grouping': two candidates for Add have the same name: plain, plain"
    ):
        target.lower(graph)


def test_levels_share_bytes_alike_or_not_at_all(tmp_path: Path) -> None:
    def view(node: Node, to: Lowering) -> None:
        to.alias(node.outputs[0], node.inputs[0])

    target, graph = Grouping(tmp_path), network()
    target.lowerings = {
        **target.lowerings,
        "Add": (Candidate("view", view, partial(find_cost, "turned")), *target.lowerings["Add"][:1]),
    }  # type: ignore[index]
    with pytest.raises(
        PluginError,
        match=r"node '.*' \(Add\): its calls at different levels alias different tensors; let every",
    ):
        target.lower(graph)


@pytest.mark.slow
def test_what_one_level_computed_is_not_taken_for_another(tmp_path: Path) -> None:
    """`once` hands out the name of a tensor that a call writes only at the levels of that call."""
    target = Grouping(tmp_path)

    def shared(node: Node, to: Lowering) -> None:
        def copy() -> str:
            copied = to.temporary(Tensor("shared", DType.F32, (2, SIZE)))
            to.call(node, Call(target.kernel("copy"), {"n": 2 * SIZE}, [node.inputs[0]], [copied]))
            return copied

        stride = to.parameters
        assert isinstance(stride, int)
        operand = to.once("x copied", copy)
        to.call(node, Call(target.kernel("relu"), {"n": 2 * SIZE if stride else 0}, [operand], node.outputs))

    target.lowerings = {"Relu": shared}
    new = Builder("network")
    x = new.input("x", DType.F32, (2, SIZE))
    new.one("Relu", [x], outputs=["y"])
    new.one("Relu", [x], outputs=["r"])
    graph = new.finish(["y", "r"])
    program = target.lower(graph)
    copies = [(call.writes, call.levels) for call in program.calls if call.kernel.name == "copy"]
    assert copies == [(("shared",), ("fast",)), (("shared.1",), ("base",))]
    for is_fast in (True, False):
        forced = Grouping(folder_of(tmp_path, str(is_fast)), is_fast)
        check_numbers(forced, graph, program, tmp_path / str(is_fast))


def test_joined_programs_keep_what_was_chosen(tmp_path: Path) -> None:
    graph = network()
    program = Grouping(tmp_path).lower(graph)
    assert join(graph, [program]).selections == program.selections
    assert isinstance(program.selections[0], Selection)
    assert isinstance(next(iter(program.weights.values())), Weight)
    assert NO_TUNING.entries == ()


@pytest.mark.slow
def test_the_contract_computes_with_every_candidate(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    check_merged(target, [graph], folder_of(tmp_path, "right"), 1e-5)

    def add_nothing(node: Node, to: Lowering) -> None:
        to.call(node, Call(target.kernel("copy"), {"n": 2 * SIZE}, node.inputs[:1], node.outputs))

    wrong = Candidate("wrong", add_nothing, lambda *_: 100.0)
    target.lowerings = {**target.lowerings, "Add": (*target.lowerings["Add"], wrong)}  # type: ignore[misc]
    with pytest.raises(AssertionError, match=r"1 of 1 graphs differ from their references"):
        check_merged(target, [graph], folder_of(tmp_path, "wrong"), 1e-5)
