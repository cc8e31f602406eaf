"""The arena: nothing that lives at one time overlaps, and no more is taken than must be."""

from collections.abc import Callable
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.ir import DType, Tensor
from mace_core.memory import Span, _overlapping_pairs, _sweeps, _Timeline, arena, lower_bound
from mace_core.part import HOST
from mace_core.program import Call, Kernel, Program

KERNEL = Kernel("k", files("mace_core") / "SConstruct")


def program(sizes: list[int], reads: list[list[int]], inplace: list[bool]) -> Program:
    """Call i makes tensor i, of so many elements, from earlier tensors; the last one is the output."""
    tensors = {f"t{i}": Tensor(f"t{i}", DType.F32, (n,)) for i, n in enumerate(sizes)} | {
        "x": Tensor("x", DType.F32, (1,))
    }
    calls = tuple(
        Call(
            KERNEL, {}, tuple(f"t{j % i}" for j in reads[i]) if i else ("x",), (f"t{i}",), inplace=inplace[i]
        )
        for i in range(len(sizes))
    )
    return Program("p", calls, tensors, {}, {}, ("x",), (f"t{len(sizes) - 1}",))


def lives(made: Program, name: str) -> range:
    touched = [i for i, c in enumerate(made.calls) if name in (*c.reads, *c.writes)]
    return range(min(touched), max(touched) + 1)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    count = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
    reads = draw(
        st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=count, max_size=count)
    )
    return program(sizes, reads, draw(st.lists(st.booleans(), min_size=count, max_size=count)))


@pytest.mark.slow
@given(programs())
@settings(max_examples=200, deadline=None)
def test_live_tensors_never_overlap(made: Program) -> None:
    plan = arena(made)
    assert plan.bytes >= plan.bound
    names = sorted(plan.offsets)
    for i, a in enumerate(names):
        assert plan.offsets[a] % HOST.alignment == 0
        for b in names[i + 1 :]:
            shared = set(lives(made, a)) & set(lives(made, b))
            apart = (
                plan.offsets[a] + made.tensors[a].bytes <= plan.offsets[b]
                or plan.offsets[b] + made.tensors[b].bytes <= plan.offsets[a]
            )
            handed_over = (
                len(shared) == 1
                and made.calls[min(shared)].inplace
                and {a, b} & set(made.calls[min(shared)].writes)
            )
            assert not shared or apart or handed_over, f"{a} and {b} both live in {shared}"


def test_a_chain_takes_its_two_largest_neighbours() -> None:
    made = program([16, 32, 64, 16, 16], [[0], [0], [1], [2], [3]], [False] * 5)
    assert arena(made).bytes == arena(made).bound == (32 + 64) * 4


def test_a_result_may_take_over_its_input() -> None:
    made = program([64, 64, 64], [[0], [0], [1]], [False, True, True])
    plan = arena(made)
    assert plan.offsets["t0"] == plan.offsets["t1"]
    assert plan.bytes == 64 * 4


def test_a_result_does_not_take_over_a_smaller_input_whatever_the_alignment() -> None:
    plan = arena(program([1, 3, 3], [[0], [0], [1]], [False, True, False]))
    assert plan.offsets["t0"] != plan.offsets["t1"]


def test_inputs_and_outputs_are_not_in_the_arena() -> None:
    assert set(arena(program([8, 8], [[0], [0]], [False, False])).offsets) == {"t0"}


def chain(count: int) -> list[list[int]]:
    return [[i - 1] if i else [0] for i in range(count)]


def branches(count: int) -> list[list[int]]:
    """Each call reads the last result and one of a few before it."""
    return [[max(0, i - 1), max(0, i - 1 - i * 7 % 11)] for i in range(count)]


def unrolled(count: int) -> list[list[int]]:
    """A recurrent layer as single calls: every fifth result lives until the last call joins them."""
    return [*chain(count - 1), list(range(0, count - 1, 5))]


@pytest.mark.exhaustive
@pytest.mark.timeout(150)  # by the pairs of all tensors it takes many minutes, in n log n a few seconds
@pytest.mark.parametrize("reads", [branches, unrolled])
def test_twenty_thousand_calls_are_planned(reads: Callable[[int], list[list[int]]]) -> None:
    count = 20_000
    sizes = [16 * (1 + i * 37 % 101) for i in range(count)]
    made = program(sizes, reads(count), [False] * count)
    plan = arena(made)
    assert plan.bound <= plan.bytes <= 1.25 * plan.bound


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40)
)
@settings(max_examples=100, deadline=None)
def test_the_timeline_finds_what_lives_beside(spans: list[tuple[int, int, int]]) -> None:
    made = [Span(f"s{i}", size, first, first + more) for i, (size, first, more) in enumerate(spans)]
    timeline = _Timeline(1 + max(s.last for s in made))
    for i, span in enumerate(made):
        assert {o.name for o in timeline.overlapping(span)} == {o.name for o in made[:i] if o.overlaps(span)}
        assert len(timeline.overlapping(span)) == len({o.name for o in timeline.overlapping(span)})
        timeline.add(span)
    assert _overlapping_pairs(made) == sum(a.overlaps(b) for i, a in enumerate(made) for b in made[:i])


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40)
)
@settings(max_examples=100, deadline=None)
def test_plans_of_sweeps_keep_living_buffers_apart(spans: list[tuple[int, int, int]]) -> None:
    made = [Span(f"s{i}", size, first, first + more) for i, (size, first, more) in enumerate(spans)]
    for plan in _sweeps(made, lower_bound(made)):
        for i, a in enumerate(made):
            for b in made[:i]:
                apart = plan[a.name] + a.size <= plan[b.name] or plan[b.name] + b.size <= plan[a.name]
                assert apart or not a.overlaps(b)
