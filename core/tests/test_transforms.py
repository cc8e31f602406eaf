"""Transforms run in phases, by being installed, in the order that their constraints state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from mace_core.api import Repeat, Transform
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.plugin_loader import Plugin
from mace_core.registry import Registry
from mace_core.transforms import PHASES, describe_empty_phases, order_phases, run_phases

ONE, TWO = (
    Plugin(f"transform-{name}", f"mace_transform_{name}", f"mace-transform-{name}", "1.0")
    for name in ("one", "two")
)


def keep(graph: Graph) -> Graph:
    return graph


def install(*transforms: Transform, other: tuple[Transform, ...] = ()) -> Registry:
    """A registry of nothing but these, `other` from a second distribution."""
    offers = {t.name: t for t in (*transforms, *other)}
    owners = {("transforms", t.name): TWO if t in other else ONE for t in offers.values()}
    empty: MappingProxyType[str, object] = MappingProxyType({})
    tables = dict.fromkeys(("frontends", "targets", "toolchains", "ops"), empty)
    return Registry((ONE, TWO), transforms=offers, owners=owners, **tables)  # type: ignore[arg-type]


def order(*transforms: Transform) -> list[list[str]]:
    return [[p.transform.name for p in phase] for phase in order_phases(install(*transforms))]


def small_graph() -> Graph:
    new = Builder("net")
    return new.finish([new.one("Relu", [new.input("x", DType.F32, (2, 3))])])


def test_phases_run_in_their_order_and_names_decide_what_is_left_open() -> None:
    free = [
        Transform(name, keep, phase)
        for name, phase in (("b", "fuse"), ("a", "cleanup"), ("c", "fuse"), ("z", "layout"))
    ]
    assert order(*free) == [["z"], ["b", "c"], ["a"]]
    assert order(*reversed(free)) == [["z"], ["b", "c"], ["a"]]


def test_constraints_overrule_names() -> None:
    a = Transform("a", keep, "fuse", after={"c": "c makes what a reads"})
    d = Transform("d", keep, "fuse", before={"b": "b hides what d looks for"})
    assert order(a, Transform("b", keep, "fuse"), Transform("c", keep, "fuse"), d) == [["c", "a", "d", "b"]]


def test_a_transform_that_is_not_installed_constrains_nothing() -> None:
    assert order(Transform("a", keep, "fuse", after={"elsewhere": "why"}), Transform("b", keep, "fuse")) == [
        ["a", "b"]
    ]


def test_a_constraint_on_an_earlier_phase_is_kept_already() -> None:
    assert order(Transform("a", keep, "fuse", after={"b": "why"}), Transform("b", keep, "layout")) == [
        ["b"],
        ["a"],
    ]


def test_repeats_join_further_phases_with_constraints_of_their_own() -> None:
    again = Repeat("cleanup", "others leave some", after={"b": "b leaves them"})
    assert order(Transform("a", keep, "layout", repeats=(again,)), Transform("b", keep, "cleanup")) == [
        ["a"],
        ["b", "a"],
    ]


def test_every_pass_of_a_phase_runs_once_a_round() -> None:
    ran: list[str] = []

    def note(name: str) -> Callable[[Graph], Graph]:
        def apply(graph: Graph) -> Graph:
            ran.append(name)
            return graph

        return apply

    transforms = [
        Transform(name, note(name), phase) for name, phase in (("b", "fold"), ("a", "fold"), ("c", "combine"))
    ]
    run_phases(small_graph(), install(*transforms))
    assert ran == ["a", "b", "a", "b", "c"]


def test_without_transforms_a_graph_stays_as_it_is() -> None:
    graph = replace(small_graph(), notes=("from the frontend",))
    assert run_phases(graph, install()) == graph


def test_notes_of_the_frontend_outlive_the_transforms() -> None:
    graph = replace(small_graph(), notes=("from the frontend",))
    renewed = Transform("a", lambda _: small_graph(), "fuse")
    assert run_phases(graph, install(renewed)).notes == ("from the frontend",)


def test_phases_say_what_holds_and_why_they_repeat() -> None:
    for phase in PHASES:
        assert phase.before.endswith(".")
        assert phase.after.endswith(".")
        assert (phase.rounds > 1) == bool(phase.because)


CONFLICTS = {
    "cycle": (
        Transform("a", keep, "fuse", after={"b": "b makes what a reads"}),
        Transform("b", keep, "fuse", after={"a": "a makes what b reads"}),
        [
            "transform 'a' of mace-transform-one 1.0 must run before transform 'b' of mace-transform-two 1.0, because a makes what b reads",
            "transform 'b' of mace-transform-two 1.0 must run before transform 'a' of mace-transform-one 1.0, because b makes what a reads",
        ],
    ),
    "cycle of both sides": (
        Transform("a", keep, "fuse", before={"b": "a first"}),
        Transform("b", keep, "fuse", before={"a": "b first"}),
        [
            "'a' of mace-transform-one 1.0 must run before transform 'b' of mace-transform-two 1.0, because a first",
            "because b first",
        ],
    ),
    "after a later phase": (
        Transform("a", keep, "fuse", after={"b": "why"}),
        Transform("b", keep, "cleanup"),
        [
            "transform 'a' of mace-transform-one 1.0: cannot run after transform 'b' of mace-transform-two 1.0",
            "phase 'cleanup'",
        ],
    ),
    "before an earlier phase": (
        Transform("a", keep, "cleanup", before={"b": "why"}),
        Transform("b", keep, "fuse"),
        [
            "transform 'a' of mace-transform-one 1.0: cannot run before transform 'b' of mace-transform-two 1.0",
            "phase 'fuse'",
        ],
    ),
}


@pytest.mark.parametrize(("one", "two", "said"), CONFLICTS.values(), ids=CONFLICTS)
def test_a_conflict_names_both_transforms_and_both_distributions(
    one: Transform, two: Transform, said: list[str]
) -> None:
    with pytest.raises(MaceError) as error:
        order_phases(install(one, other=(two,)))
    for part in said:
        assert part in str(error.value)


def test_a_cycle_of_three_is_told_in_its_order() -> None:
    ring = [
        Transform(name, keep, "fuse", after={before: f"{before} first"})
        for name, before in (("a", "c"), ("b", "a"), ("c", "b"))
    ]
    with pytest.raises(MaceError) as error:
        order_phases(install(*ring))
    for first, second in (("a", "b"), ("b", "c"), ("c", "a")):
        one, two = (f"transform {name!r} of mace-transform-one 1.0" for name in (first, second))
        assert f"{one} must run before {two}, because {first} first" in str(error.value)


FAULTS = {
    "unknown phase": (Transform("a", keep, "folds"), "there is no phase 'folds'; did you mean 'fold'?"),
    "no phase of any name": (Transform("a", keep, "xyz"), "there is no phase 'xyz'; the phases are layout, "),
    "after itself": (
        Transform("a", keep, "fuse", after={"a": "why"}),
        "phase 'fuse': its transforms cannot be ordered",
    ),
    "no reason": (Transform("a", keep, "fuse", after={"b": ""}), "runs after 'b' without a reason"),
    "names alone": (Transform("a", keep, "fuse", before=("b",)), "`before` is ('b',); write a dictionary"),  # type: ignore[arg-type]
    "repeat without a reason": (
        Transform("a", keep, "fuse", repeats=(Repeat("fold", ""),)),
        "repeats in phase 'fold' without a reason",
    ),
    "twice in a phase": (
        Transform("a", keep, "fuse", repeats=(Repeat("fuse", "why"),)),
        "joins phase 'fuse' twice",
    ),
}


@pytest.mark.parametrize(("transform", "said"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_transform_and_distribution(transform: Transform, said: str) -> None:
    with pytest.raises(MaceError) as error:
        order_phases(install(transform))
    assert said in str(error.value)
    assert "transform 'a' of mace-transform-one 1.0" in str(error.value)


def _fail(graph: Graph) -> Graph:
    raise KeyError("scales")


def _break(graph: Graph) -> Graph:
    (node,) = graph.nodes
    return replace(graph, nodes=(replace(node, inputs=("nothing",)),))


BROKEN = {
    "raises": (_fail, "its transform 'bad' in phase 'fuse' fails: KeyError: 'scales'"),
    "gives nothing": (
        lambda _: None,
        "its transform 'bad' in phase 'fuse' gives NoneType instead of a graph",
    ),
    "renames outputs": (lambda graph: replace(graph, outputs=()), "changes the model's inputs or outputs"),
    "breaks the graph": (
        _break,
        "its transform 'bad' in phase 'fuse' makes a graph that is not well formed: MaceError: net: node",
    ),
}


@pytest.mark.parametrize(("apply", "said"), BROKEN.values(), ids=BROKEN)
def test_a_transform_that_breaks_its_contract_is_named(apply: Callable[[Graph], Graph], said: str) -> None:
    good = [Transform("good", keep, "layout"), Transform("later", keep, "cleanup")]
    with pytest.raises(PluginError) as error:
        run_phases(small_graph(), install(*good, other=(Transform("bad", apply, "fuse"),)))
    assert str(error.value).startswith("mace-transform-two 1.0: ")
    assert said in str(error.value)
    assert "MACE_DISABLED_PLUGINS=transform-two" in str(error.value)


def test_a_users_mistake_that_a_transform_finds_stays_as_it_is() -> None:
    def refuse(graph: Graph) -> Graph:
        raise MaceError("net: tensor 'x'", "its scale is 0", "quantize the model again")

    with pytest.raises(MaceError, match=r"^net: tensor 'x': its scale is 0; quantize the model again$"):
        run_phases(small_graph(), install(Transform("a", refuse, "fuse")))


def test_phases_without_transforms_are_named_with_what_installs_some() -> None:
    told = describe_empty_phases(install(Transform("a", keep, "fuse")))
    assert told is not None
    assert "layout, canonicalize, fold, combine, quantize, cleanup" in told
    assert "the library is right, but larger and slower" in told
    assert "pip install mace-transform-" in told
    assert describe_empty_phases(install(*(Transform(p.name, keep, p.name) for p in PHASES))) is None


def test_states_outlive_a_transform_that_makes_the_graph_anew() -> None:
    new = Builder("net")
    x, total = new.input("x", DType.F32, (2,)), new.state("total", np.zeros(2, np.float32))
    (y,) = new.add("Add", [x, total], outputs=["y"])
    new.set_next(total, y)
    graph = new.finish([y])

    def forget(old: Graph) -> Graph:
        return Graph(old.name, old.nodes, old.tensors, old.weights, old.inputs, old.outputs)

    result = run_phases(
        graph, install(Transform("forget", forget, "fuse"), Transform("keep", keep, "cleanup"))
    )
    assert result.states == graph.states
    assert result.port_inputs == ("x",)
