"""Candidates: what computes a node at which level, by cost or by a tuning file, and that either computes the right numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mace_core.candidates import Candidate, Selection, check_tuning
from mace_core.emit import code
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, Tensor
from mace_core.kernel_target import KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.memory import arena, touches_of
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Program, Weight, join
from mace_core.refusal import Refusal
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_merged, host, random_inputs
from mace_core.tuning import NO_TUNING, Tuning, TuningEntry, read_tuning

SIZE = 6
HEAD = "static void {{ name }}(const mace_workers *run, const {{ name }}_args *a, void *const *t) {\n  (void)run;\n"
BODIES = {
    # y = x + w, one after another
    "plain": "  const float *x = t[0], *w = t[1];\n  float *y = t[2];\n  for (int i = 0; i < a->n; i++) y[i] = x[i] + w[i];\n}\n",
    # y = x + w with w stored in groups of `stride`, the last of each group first: wrong numbers with the
    # weights of another stride
    "turned": "  const float *x = t[0], *w = t[1];\n  float *y = t[2];\n"
    "  for (int i = 0; i < a->n; i++) y[i] = x[i] + w[i / a->stride * a->stride + a->stride - 1 - i % a->stride];\n}\n",
    "copy": "  memcpy(t[1], t[0], (size_t)a->n * 4);\n}\n",
    "relu": "  const float *x = t[0];\n  float *y = t[1];\n  for (int i = 0; i < a->n; i++) y[i] = x[i] > 0 ? x[i] : 0;\n}\n",
}
COSTS = {("plain", "fast"): 9.0, ("plain", "base"): 4.0, ("turned", "fast"): 2.0, ("turned", "base"): 8.0}


@dataclass(frozen=True, kw_only=True)
class GroupedLevel(Level):
    """A level of the test target: its weights lie in groups of `stride`."""

    stride: int


class Grouping(KernelTarget):
    """Adds a constant with either of two kernels, at two levels; `stride` is asked for by one of them."""

    name = "grouping"
    device = "cpu"
    cost_unit = "points"

    def __init__(self, folder: Path, is_fast: bool = True, strides: tuple[int, int] = (3, 2)) -> None:
        self.folder, self.is_fast, self.strides = folder, is_fast, strides
        for name, body in BODIES.items():
            (folder / f"{name}.c.in").write_text(HEAD + body)
        (folder / "empty.h.in").write_text("\n")
        self.lowerings = {
            "Add": (
                Candidate("plain", self.add_plain, partial(find_cost, "plain")),
                Candidate("turned", self.add_turned, partial(find_cost, "turned")),
            ),
            "Relu": self.relu,
            "Sub": self.add_turned,
        }

    def levels(self, abi: str) -> tuple[Level, ...]:
        fast, base = self.strides
        empty = self.folder / "empty.h.in"
        return (
            GroupedLevel("fast", (), str(int(self.is_fast)), empty, stride=fast),
            GroupedLevel("base", (), "", empty, stride=base),
        )

    def parameters(self, level: Level | None) -> int:
        return level.stride if isinstance(level, GroupedLevel) else 1

    def kernel(self, name: str, *fields: str) -> Kernel:
        return Kernel(name, self.folder / f"{name}.c.in", tuple((field, "i32") for field in ("n", *fields)))

    def relu(self, node: Node, to: Lowering) -> None:
        to.call(
            node,
            Call(
                self.kernel("relu"),
                {"n": to.tensors[node.inputs[0]].elements},
                node.inputs,
                node.outputs,
                inplace=True,
            ),
        )

    def add_plain(self, node: Node, to: Lowering) -> None:
        to.call(
            node,
            Call(
                self.kernel("plain"), {"n": constant(node, to).size}, node.inputs, node.outputs, inplace=True
            ),
        )

    def add_turned(self, node: Node, to: Lowering) -> None:
        """Copy the operand to a tensor of its own, then add to that: two calls, with weights that depend on the level."""
        array, stride = constant(node, to), to.parameters
        assert isinstance(stride, int)
        turned = np.ascontiguousarray(array.reshape(-1, stride)[:, ::-1]).reshape(-1)
        weight = to.once(
            (node.inputs[1], stride),
            lambda: to.weight(f"{node.inputs[1]}.turned", turned.shape, "float32", lambda: turned),
        )
        copied = to.temporary(replace(to.tensors[node.inputs[0]], name=f"{node.inputs[0]}.copied"))
        to.call(node, Call(self.kernel("copy"), {"n": array.size}, [node.inputs[0]], [copied]))
        args = {"n": array.size, "stride": stride}
        to.call(
            node, Call(self.kernel("turned", "stride"), args, [copied, weight], node.outputs, inplace=True)
        )


def constant(node: Node, to: Lowering) -> np.ndarray:
    array = to.constant(node.inputs[1])
    if array is None or array.size % SIZE:
        raise Refused("adds only a constant of whole groups")
    return array


def find_cost(name: str, node: Node, to: Lowering, level: Level) -> float:
    return COSTS[name, str(level.name)]


def network(op: str = "Add") -> Graph:
    """relu(x) + w, and that + v: the second one reads what the first one writes at either level."""
    new = Builder("network")
    x = new.input("x", DType.F32, (2, SIZE))
    y = new.one("Relu", [x], outputs=["y"])
    w, v = (
        new.weight(name, np.arange(2 * SIZE, dtype=np.float32).reshape(2, SIZE) * factor)
        for name, factor in (("w", 1), ("v", 100))
    )
    z = new.one(op, [y, w], outputs=["z"])
    return new.finish([new.one("Relu", [new.one(op, [z, v], outputs=["s"])], outputs=["r"])])


def names(program: Program) -> list[tuple[str, tuple[str, ...]]]:
    return [(str(call.kernel.name), call.levels) for call in program.calls]


def check_numbers(target: Grouping, graph: Graph, program: Program, folder: Path) -> None:
    """Compile the program for all levels and run it at the level that `is_fast` says."""
    sources = code.library("cases", [plan_calls(program)], target.levels("host"))
    model = native.load(shared_library(sources, host(), folder / "library"), "cases")["network"]
    inputs = random_inputs(graph)
    seen: list[str] = []
    found = model.run(inputs, lambda layer, result: seen.append(layer))
    np.testing.assert_array_equal(found["r"], execute(graph, inputs)["r"])
    # Both levels' calls one after another would compute the same numbers, so those that were made are
    # counted.
    level = "fast" if target.is_fast else "base"
    assert seen == [call.node for call in program.calls if call.is_made_at(level)]


def folder_of(path: Path, name: str) -> Path:
    path = path / name
    path.mkdir()
    return path


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
    found = [(call.args["stride"], call.levels) for call in program.calls if call.kernel.name == "turned"]
    assert found == ([(2, ())] * 2 if is_same else [(3, ("fast",)), (2, ("base",))] * 2)
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
    with pytest.raises(MaceError, match=message) as told:
        check_tuning(tuning, target.lower(graph, tuning=tuning).selections)
    assert len(str(told.value).splitlines()) == 1


def test_all_wrong_entries_are_told_together(tmp_path: Path) -> None:
    target, graph = Grouping(tmp_path), network()
    tuning = entries(*(replace(entry, line=10 + number) for number, (entry, _) in enumerate(FAULTS[:2])))
    with pytest.raises(MaceError) as told:
        check_tuning(tuning, target.lower(graph, tuning=tuning).selections)
    assert [line.partition(": ")[0] for line in str(told.value).splitlines()] == [
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


def calls(*rows: tuple[Sequence[str], str, bool, tuple[str, ...]]) -> Program:
    kernel = Kernel("k", Path("none"))
    tensors = {name: Tensor(name, DType.F32, (16,)) for row in rows for name in (*row[0], row[1])}
    made = tuple(
        Call(kernel, {}, tuple(reads), (write,), inplace=inplace, levels=levels)
        for reads, write, inplace, levels in rows
    )
    return Program("p", made, tensors, {}, {}, ("x",), (rows[-1][1],))


def test_alternatives_write_one_tensor_that_takes_over_their_operand_if_both_may() -> None:
    before, after = (["x"], "a", False, ()), (["b"], "o", False, ())
    both = calls(before, (["a"], "b", True, ("l1",)), (["a"], "b", True, ("l2",)), after)
    assert arena(both).bytes == 64
    one = calls(before, (["a"], "b", True, ("l1",)), (["a"], "b", False, ("l2",)), after)
    assert arena(one).bytes == 128
    read_later = calls(
        before,
        (["a"], "b", True, ("l1",)),
        (["a"], "b", True, ("l2",)),
        (["a", "b"], "c", False, ("l1",)),
        after,
    )
    assert arena(read_later).offsets["a"] != arena(read_later).offsets["b"]


def test_temporaries_of_alternatives_share_bytes() -> None:
    made = calls(
        (["x"], "a", False, ()),
        (["a"], "t1", False, ("l1",)),
        (["t1"], "b", False, ("l1",)),
        (["a"], "t2", False, ("l2",)),
        (["t2"], "b", False, ("l2",)),
        (["b"], "o", False, ()),
    )
    plan = arena(made)
    assert plan.offsets["t1"] == plan.offsets["t2"]
    assert len({plan.offsets["a"], plan.offsets["b"], plan.offsets["t1"]}) == 3


def test_what_one_target_reads_at_its_levels_lives_whatever_level_another_target_chose() -> None:
    made = calls(
        (["x"], "a", False, ()),
        (["a"], "b", True, ("l1",)),
        (["a"], "b", True, ("l2",)),
        (["a", "b"], "c", False, ("m1",)),
        (["b"], "c", False, ("m2",)),
        (["c"], "o", False, ()),
    )
    touches = touches_of(made, "one")[:3] + touches_of(made, "other")[3:]
    plan = arena(made, touches)
    assert plan.offsets["a"] != plan.offsets["b"]


def test_joined_programs_keep_what_was_chosen(tmp_path: Path) -> None:
    graph = network()
    program = Grouping(tmp_path).lower(graph)
    assert join(graph, [program]).selections == program.selections
    assert isinstance(program.selections[0], Selection)
    assert isinstance(next(iter(program.weights.values())), Weight)
    assert NO_TUNING.entries == ()


def written(folder: Path, text: str) -> Path:
    file = folder / "tuning.yml"
    file.write_text(text)
    return file


def test_a_tuning_file_is_read_with_its_lines(tmp_path: Path) -> None:
    text = 'choices:\n  - {node: conv1, level: avx2, candidate: winograd}\n  - op: Conv\n    shapes: "f32 1x8x8x3"\n    candidate: direct\n'
    tuning = read_tuning(written(tmp_path, text))
    assert tuning.entries == (
        TuningEntry("winograd", 2, node="conv1", level="avx2"),
        TuningEntry("direct", 3, op="Conv", shapes="f32 1x8x8x3"),
    )
    json = '{"choices": [{"node": "conv1", "candidate": "direct", "target": "cpu"}]}'
    assert read_tuning(written(tmp_path, json)).entries == (
        TuningEntry("direct", 1, node="conv1", target="cpu"),
    )


BROKEN = [
    ("choices:\n  - {node: a}\n", "tuning.yml:2: candidate: is missing"),
    ("choices:\n  - {node: a, candidate: b, speed: 3}\n", "tuning.yml:2: speed: unknown key"),
    (
        "choices:\n  - {candidate: b}\n",
        "tuning.yml:2: does not say which nodes it is about; write node, or op and shapes",
    ),
    ("choices:\n  - {op: Conv, candidate: b}\n", "tuning.yml:2: does not say which nodes it is about"),
    (
        "choices:\n  - {node: a, op: Conv, shapes: f32 1, candidate: b}\n",
        "tuning.yml:2: names a node and an op",
    ),
    (
        "choices:\n  - {node: a, candidate: b}\n  - {node: a, candidate: c}\n",
        "tuning.yml:3: node 'a' was chosen for .* in line 2; keep one",
    ),
    ("nodes: 3\n", "nodes: unknown key"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_a_faulty_tuning_file_is_told_with_its_lines(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=message):
        read_tuning(written(tmp_path, text))


def test_a_missing_tuning_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="cannot be read: No such file"):
        read_tuning(tmp_path / "none.yml")


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
