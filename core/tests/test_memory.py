"""The arena: nothing that lives at one time overlaps, and no more is taken than must be."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core import memory
from mace_core.ir import DType, Tensor
from mace_core.memory import (
    Arena,
    Span,
    Touch,
    _attempts,
    _best,
    _effort,
    _fit,
    _fit_fixed_orders,
    _height,
    _list_neighbors,
    _overlapping_pairs,
    _release,
    _shuffles,
    _sweeps,
    _take,
    arena,
    arrange,
    fits,
    lower_bound,
)
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
    result = program([16, 32, 64, 16, 16], [[0], [0], [1], [2], [3]], [False] * 5)
    assert arena(result).bytes == arena(result).bound == (32 + 64) * 4


def test_a_result_may_take_over_its_input() -> None:
    result = program([64, 64, 64], [[0], [0], [1]], [False, True, True])
    plan = arena(result)
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
    result = program(sizes, reads(count), [False] * count)
    plan = arena(result)
    assert plan.bound <= plan.bytes <= 1.25 * plan.bound


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40)
)
@settings(max_examples=100, deadline=None)
def test_neighbors_are_what_lives_beside(spans: list[tuple[int, int, int]]) -> None:
    results = [Span(f"s{i}", size, first, first + more) for i, (size, first, more) in enumerate(spans)]
    neighbors = _list_neighbors(results)
    for span in results:
        found = neighbors[span.name]
        assert sorted(found) == sorted(o.name for o in results if o is not span and o.overlaps(span))
    assert _overlapping_pairs(results) == sum(map(len, neighbors.values())) / 2


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40)
)
@settings(max_examples=100, deadline=None)
def test_plans_of_sweeps_keep_living_buffers_apart(spans: list[tuple[int, int, int]]) -> None:
    results = [Span(f"s{i}", size, first, first + more) for i, (size, first, more) in enumerate(spans)]
    for plan in _sweeps(results, lower_bound(results)):
        for i, a in enumerate(results):
            for b in results[:i]:
                apart = plan[a.name] + a.size <= plan[b.name] or plan[b.name] + b.size <= plan[a.name]
                assert apart or not a.overlaps(b)


def random_spans(seed: int) -> list[Span]:
    chosen = random.Random(seed)
    count = chosen.choice((5, 9, 14, 25))
    spans = []
    for i in range(count):
        first = chosen.randrange(count)
        last = min(count - 1, first + chosen.choice((0, 1, 1, 2, 3, count)))
        spans.append(Span(f"t{i}", 64 * chosen.randint(1, 40), first, last))
    return spans


def fit_naively(order: Sequence[Span]) -> dict[str, int]:
    """The lowest offset of each in turn that is free of all that live beside it; sizes are multiples of 64."""
    placed: dict[str, int] = {}
    for span in order:
        beside = [(placed[s.name], s.size) for s in order if s.name in placed and s.overlaps(span)]
        offsets = (64 * i for i in range(10_000))
        placed[span.name] = next(
            o for o in offsets if all(o + span.size <= start or start + size <= o for start, size in beside)
        )
    return placed


@pytest.mark.parametrize("seed", range(24))
def test_plans_reach_the_lower_bound(seed: int) -> None:
    """They do for these programs; a worse order, sweep or shuffle misses it."""
    spans = random_spans(seed)
    result = arrange(spans)
    live = [sum(s.size for s in spans if s.first <= step <= s.last) for step in range(25)]
    assert result.bytes == result.bound == max(live)
    neighbors = _list_neighbors(spans)
    assert _fit(spans, neighbors) == fit_naively(spans)
    shuffled = random.Random(seed).sample(spans, len(spans))
    assert _fit(shuffled, neighbors) == fit_naively(shuffled)
    assert _overlapping_pairs(spans) == sum(a.overlaps(b) for a, b in combinations(spans, 2))


@pytest.mark.parametrize(
    ("seed", "heights"),
    [
        (9, [112, 112, 112, 120, 116, 114, 112, 112, 112, 112]),
        (12, [168, 168, 168, 168, 168, 172, 172, 170, 172, 168]),
        (17, [174, 187, 183, 186, 191, 174, 177, 197, 191, 178]),
        (22, [97, 99, 84, 92, 103, 103, 84, 97, 84, 97]),
        (23, [137, 155, 140, 161, 137, 139, 137, 137, 137, 143]),
    ],
)
def test_orders_sweeps_and_shuffles_are_the_same_every_time(seed: int, heights: list[int]) -> None:
    """The fixed order's plan, three sweeps, six shuffles, in units of 64 bytes: two builds give the same bytes."""
    spans = random_spans(seed)
    neighbors = _list_neighbors(spans)
    plan, order = _fit_fixed_orders(spans, neighbors)
    shuffled = islice(_shuffles(order, neighbors, _height(spans, plan), 9), 6)
    plans = [plan, *_sweeps(spans, lower_bound(spans)), *shuffled]
    assert [_height(spans, p) // 64 for p in plans] == heights


def test_the_effort_of_shuffling_is_bounded() -> None:
    counts = ((0, 0), (1, 0), (205, 0), (1000, 10), (1000, 100_000), (20_000, 1_500_000))
    assert [_attempts(count, pairs) for count, pairs in counts] == [400, 400, 399, 26, 16, 0]
    assert [_effort(count, pairs) for count, pairs in ((0, 0), (1, 0), (3, 7))] == [1, 40, 127]
    spans = random_spans(0)
    assert len(list(_shuffles(spans, _list_neighbors(spans), 0, 3))) == 3


def test_no_program_takes_no_memory() -> None:
    assert arrange([]) == Arena({}, 0, 0)
    assert arrange([Span("a", 64, 0, 0)]) == Arena({"a": 0}, 64, 64)


def test_gaps_are_cut_and_joined() -> None:
    gaps = [(0, 10), (20, 50)]
    assert (_take(gaps, 10, 0), gaps) == (0, [(20, 50)])
    assert (_take(gaps, 5, 40), gaps) == (35, [(20, 35), (40, 50)])
    assert (_take(gaps, 15, 0), gaps) == (20, [(40, 50)])
    assert (_take(gaps, 5, 44), gaps) == (40, [(45, 50)])
    for start, end, joined in ((0, 5, [(0, 5), (45, 50)]), (40, 45, [(0, 5), (40, 50)]), (5, 40, [(0, 50)])):
        _release(gaps, start, end)
        assert gaps == joined
    _release(gaps, 60, 70)
    assert gaps == [(0, 50), (60, 70)]


def test_a_result_that_nothing_reads_frees_its_bytes_at_once() -> None:
    """Only the first call uses the first result, so it shares no moment with the second and the third."""
    plan = arena(program([64, 64, 64], [[0], [3], [1]], [False] * 3))
    assert plan.offsets == {"t0": 0, "t1": 256}
    result = program([64, 64, 64], [[0], [0], [1]], [False] * 3)
    first = replace(result.calls[1], reads=("x",))
    alone = arena(replace(result, calls=(result.calls[0], first, result.calls[2])))
    assert (alone.offsets, alone.bytes) == ({"t0": 0, "t1": 0}, 256)


def test_steps_are_made_at_their_levels() -> None:
    step = Touch(("a",), ("b",))
    assert (step.inplace, step.is_made_at("cpu", "l1"), step.is_made_at("", "")) == (False, True, True)
    step = replace(step, levels=("l1", "l2"), target="cpu")
    asked = (("cpu", "l1"), ("cpu", "l2"), ("cpu", "l3"), ("npu", "l3"), ("", ""))
    assert [step.is_made_at(*pair) for pair in asked] == [True, True, False, True, True]


def plan_in_turn(
    monkeypatch: pytest.MonkeyPatch, fixed: list[int], sweeps: list[int], enough: int
) -> tuple[dict[str, int], list[str]]:
    """The best of plans of two buffers of 64 bytes, the second at these offsets; and which were asked for."""
    asked: list[str] = []
    spans = [Span("a", 64, 0, 0), Span("b", 64, 0, 0)]

    def tell(name: str, offsets: list[int]) -> Iterator[dict[str, int]]:
        for offset in offsets:
            asked.append(f"{name} {offset}")
            yield {"a": 0, "b": offset, "mark": len(asked)}

    def fit(spans: Sequence[Span], neighbors: object) -> tuple[dict[str, int], Sequence[Span]]:
        return next(tell("fixed", fixed)), spans

    monkeypatch.setattr(memory, "_fit_fixed_orders", fit)
    monkeypatch.setattr(memory, "_sweeps", lambda spans, bound: tell("sweep", sweeps))
    monkeypatch.setattr(
        memory, "_shuffles", lambda order, neighbors, height, attempts: tell("shuffle", [height - 64])
    )
    return _best(spans, enough, 128), asked


def test_the_first_of_equal_plans_is_taken_and_the_search_ends_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best, asked = plan_in_turn(monkeypatch, [192], [128, 128, 192], 128)
    assert (best["b"], best["mark"]) == (128, 2)
    assert asked == ["fixed 192", "sweep 128", "sweep 128", "sweep 192", "shuffle 192"]
    best, asked = plan_in_turn(monkeypatch, [192], [64, 0], 128)
    assert (best["b"], asked) == (64, ["fixed 192", "sweep 64"])


def test_the_search_ends_at_what_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    best, asked = plan_in_turn(monkeypatch, [192], [128, 64], 192)
    assert (best["b"], asked) == (128, ["fixed 192", "sweep 128"])


@pytest.mark.parametrize("limit", [512, 767, 768, 1024])
def test_a_program_fits_where_its_arena_does(limit: int) -> None:
    four = program([64, 64, 64, 64], [[0], [0], [0, 1], [2]], [False] * 4)
    plan = arena(four)
    assert plan.bytes == plan.bound == 768
    assert fits(four, limit) == (limit >= plan.bytes)


def test_no_plan_is_looked_for_below_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plan was looked for")

    monkeypatch.setattr(memory, "arrange", refuse)
    assert not fits(program([64, 64, 64, 64], [[0], [0], [0, 1], [2]], [False] * 4), 767)


def test_more_pairs_than_the_maximum_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.MAX_PAIRS == 1_500_000
    monkeypatch.setattr(memory, "MAX_PAIRS", 1)
    assert plan_in_turn(monkeypatch, [192], [128], 0)[1][0] == "fixed 192"
    monkeypatch.setattr(memory, "MAX_PAIRS", 0)
    assert plan_in_turn(monkeypatch, [192], [128], 0)[1] == ["sweep 128"]


def test_a_gap_below_the_ceiling_may_be_filled_exactly() -> None:
    gaps = [(0, 100)]
    assert (_take(gaps, 40, 40), gaps) == (0, [(40, 100)])
    gaps = [(0, 100)]
    assert (_take(gaps, 41, 40), gaps) == (0, [(41, 100)])
    gaps = [(0, 10), (30, 100)]
    assert (_take(gaps, 20, 60), gaps) == (40, [(0, 10), (30, 40), (60, 100)])
