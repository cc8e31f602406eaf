"""The arena: nothing that lives at one time overlaps, and no more is taken than must be."""

from importlib.resources import files

from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.ir import DType, Tensor
from mace_core.memory import ALIGNMENT, arena
from mace_core.program import Call, Kernel, Program

KERNEL = Kernel("k", files("mace_core") / "SConstruct")


def program(sizes: list[int], reads: list[list[int]], inplace: list[bool]) -> Program:
    """Call i makes tensor i, of so many elements, from earlier tensors; the last one is the output."""
    tensors = {f"t{i}": Tensor(f"t{i}", DType.F32, (n,)) for i, n in enumerate(sizes)} | {"x": Tensor("x", DType.F32, (1,))}
    calls = tuple(
        Call(KERNEL, {}, tuple(f"t{j % i}" for j in reads[i]) if i else ("x",), (f"t{i}",), inplace=inplace[i]) for i in range(len(sizes))
    )
    return Program("p", calls, tensors, {}, {}, ("x",), (f"t{len(sizes) - 1}",))


def lives(made: Program, name: str) -> range:
    touched = [i for i, c in enumerate(made.calls) if name in (*c.reads, *c.writes)]
    return range(min(touched), max(touched) + 1)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    count = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
    reads = draw(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=count, max_size=count))
    return program(sizes, reads, draw(st.lists(st.booleans(), min_size=count, max_size=count)))


@given(programs())
@settings(max_examples=200, deadline=None)
def test_live_tensors_never_overlap(made: Program) -> None:
    plan = arena(made)
    assert plan.bytes >= plan.bound
    names = sorted(plan.offsets)
    for i, a in enumerate(names):
        assert plan.offsets[a] % ALIGNMENT == 0
        for b in names[i + 1 :]:
            shared = set(lives(made, a)) & set(lives(made, b))
            apart = plan.offsets[a] + made.tensors[a].bytes <= plan.offsets[b] or plan.offsets[b] + made.tensors[b].bytes <= plan.offsets[a]
            handed_over = len(shared) == 1 and made.calls[min(shared)].inplace and {a, b} & set(made.calls[min(shared)].writes)
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
