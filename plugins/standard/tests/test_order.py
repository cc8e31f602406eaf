"""Each constraint between the standard transforms has a network on which the other order does less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from expressions import Expressions

from mace_core import decompositions
from mace_core.attributes import Attribute, values_of
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Shape, Storage
from mace_core.transforms import PHASES
from mace_core.verify import verify
from mace_transform_standard import mace_transforms

TRANSFORMS = {transform.name: transform for transform in mace_transforms()}
PLAIN = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
Case = Callable[[Expressions], str | tuple[str, ...]]


def atrous(e: Expressions, between: Callable[[str], str]) -> str:
    def steps(made: decompositions.Steps, x: str) -> str:
        return decompositions.apply(made, x, lambda op, operands, attrs: e(op, *operands, **values_of(attrs)))

    # Channels first, so that there is a Transpose which layout moves.
    x = between(e("Transpose", e("Sin", e.input(1, 2, 4, 4)), perm=TO_LAST))
    blocks = between(steps(decompositions.space_to_batch((1, 4, 4, 2), (2, 2), [(0, 0)] * 2), x))
    y = between(e("Conv", blocks, e.constant(3, 1, 1, 2), **PLAIN))
    return e("Neg", steps(decompositions.batch_to_space(e.new.shape(y), (2, 2), [(0, 0)] * 2), y))


def group_norm(e: Expressions, between: Callable[[str], str]) -> str:
    apart = e("Reshape", e("Sin", e.input(2, 4, 3, 3)), shape=(2, 2, 18))
    norm = e("InstanceNorm", between(e("Transpose", apart, perm=(0, 2, 1))), e.constant(2), e.constant(2))
    return e("Neg", e("Reshape", e("Transpose", norm, perm=(0, 2, 1)), shape=(2, 4, 3, 3)))


def nothing(e: Expressions) -> Callable[[str], str]:
    return lambda x: str(e("Identity", x))


def neutral(e: Expressions, x: str) -> str:
    return e("Mul", x, e.array([1.0]))


def conv(e: Expressions, x: str, **attrs: Attribute) -> str:
    return e("Conv", x, e.constant(4, 1, 1, e.new.shape(x)[-1]), **{**PLAIN, **attrs})


def part(e: Expressions, x: str, first: int, size: int) -> str:
    return e("Slice", x, starts=(first, 0), sizes=(size, 3), steps=(1, 1))


def merge_slices_first(e: Expressions) -> str:
    x = e("Sin", e.input(6, 3))
    return e("Sub", e("Neg", part(e, part(e, x, 1, 4), 1, 2)), e("Neg", part(e, x, 2, 2)))


def merge_casts_first(e: Expressions) -> str:
    x = e.input(2, 3)
    wide = e("Cast", e("Cast", x, to="f64"), to="i32")
    return e("Sub", e("Neg", wide), e("Neg", e("Cast", x, to="i32")))


def cancel_splits_first(e: Expressions) -> str:
    x = e("Sin", e.input(6, 3))
    pieces = e.new.add("Split", [x], {"axis": 0, "sizes": (2, 4)}, outputs=2)
    return e("Sub", e("Neg", e("Concat", *pieces, axis=0)), e("Neg", x))


def merge_pads_first(e: Expressions) -> str:
    x, pad = e("Sin", e.input(6, 3)), {"before": (1, 0), "after": (0, 0), "mode": "constant", "value": 0.0}
    one = e("Pad", e("Pad", x, **pad), **pad)
    two = e("Pad", e("Pad", x, **pad), before=(0, 0), after=(1, 0), mode="constant", value=0.0)
    return e("Sub", one, two)


def remove_expands_first(e: Expressions) -> str:
    x, y = e("Sin", e.input(4, 3)), e("Sin", e.input(3))
    return e("Sub", e("Neg", e("Sub", x, e("Expand", y, shape=(4, 3)))), e("Neg", e("Sub", x, y)))


def merge_concats_first(e: Expressions) -> tuple[str, ...]:
    a, b, c = (e("Sin", e.input(n, 3)) for n in (2, 3, 4))
    joined = e("Concat", e("Concat", a, b, axis=0), c, axis=0)
    pieces = e.new.add("Split", [joined], {"axis": 0, "sizes": (2, 3, 4)}, outputs=3)
    return tuple(e("Neg", piece) for piece in pieces)


def expanded_exponent(e: Expressions) -> str:
    # So large that the Builder does not compute it when the graph is made.
    shape = (513, 513)
    return e("Pow", e("Sin", e.input(*shape)), e("Expand", e.array(2.0), shape=shape))


def root_of_two_readers(e: Expressions) -> tuple[str, str]:
    x = e("Exp", e.input(4, 3))
    return e("Reciprocal", e("Sqrt", x)), e("Neg", e("Sqrt", x))


def layer_norm(e: Expressions) -> str:
    x = e("Sin", e.input(4, 6))
    centered = e("Sub", x, e("ReduceMean", x, axes=(1,), keepdims=True))
    variance = e("ReduceMean", e("Mul", centered, centered), axes=(1,), keepdims=True)
    norm = e("Div", centered, e("Sqrt", e("Add", variance, e.array(1e-3))))
    return e("Mul", norm, e.constant(6))


def spelled_sigmoid(e: Expressions) -> str:
    x = e("Reshape", conv(e, e.input(1, 3, 3, 2)), shape=(9, 4))
    return e("Reciprocal", e("Add", e.array(1.0), e("Exp", e("Mul", x, e.array(-1.0)))))


def limited_reshape(e: Expressions) -> str:
    x = e("Reshape", conv(e, e.input(1, 3, 3, 2)), shape=(9, 4))
    return e("Clip", e("Add", e("Mul", x, e.array(0.2)), e.array(0.5)), min=0.0, max=1.0)


def batch_norm(e: Expressions) -> str:
    vectors = [e.constant(4, positive=True) for _ in range(4)]
    return e("BatchNorm", conv(e, e.input(1, 3, 3, 2)), *vectors, epsilon=1e-3)


def reordered_convs(e: Expressions) -> str:
    # Many channels of few, so that one Conv is less work than two.
    wide = e("Conv", e("Sin", e.input(1, 4, 4, 1)), e.constant(4, 1, 1, 1), **PLAIN)
    turned = e("Gather", wide, e.array([2, 0, 3, 1], "i4"), axis=3)
    return e("Conv", turned, e.constant(2, 1, 1, 4), **PLAIN)


def scaled_input(e: Expressions) -> str:
    x = e("Add", e("Mul", e("Sin", e.input(1, 4, 4, 2)), e.constant(2)), e.constant(2))
    return conv(e, str(x))


def two_transposes(e: Expressions) -> str:
    x = e("Sin", e.input(2, 3, 4, 5))
    turned = e("Reshape", e("Transpose", x, perm=(0, 2, 3, 1)), shape=(2, 20, 3))
    return e("MatMul", e("Reshape", e("Transpose", turned, perm=(0, 2, 1)), shape=(2, 60)), e.constant(60, 2))


def meeting_transposes(e: Expressions) -> str:
    """The two vanish together, but not once one of them has turned a matrix or become a Reshape."""
    x = e("Transpose", e("Sin", e.input(1, 3, 4, 5)), perm=(0, 2, 3, 1))
    return e(
        "MatMul",
        e("Reshape", e("Transpose", e("Neg", x), perm=TO_FIRST), shape=(1, 60)),
        e.constant(60, 2),
    )


def transposed_product(e: Expressions) -> str:
    x = e("Transpose", e("Sin", e.input(2, 3, 4, 5)), perm=(0, 3, 2, 1))
    return e("MatMul", e("Transpose", e("Reshape", x, shape=(2, 20, 3)), perm=(0, 2, 1)), e.constant(20, 2))


def view_before_transpose(e: Expressions) -> str:
    x = e("Transpose", e("Sin", e.input(1, 3, 4, 1)), perm=TO_FIRST)
    return e("Neg", e("Transpose", e("Neg", x), perm=(0, 1, 3, 2)))


def view_before_matrix(e: Expressions) -> str:
    x = e("Transpose", e("Sin", e.input(2, 1, 4, 5)), perm=(0, 2, 3, 1))
    return e("MatMul", e("Reshape", x, shape=(2, 20)), e.constant(20, 2))


def limited_channels(e: Expressions) -> str:
    """Eight of sixteen channels are below the limit for every value that eight bits store."""
    storage = Storage(DType.I8, Quant.of(0.05))

    def stored(x: str) -> str:
        return e("Dequantize", e("Quantize", x, storage=storage))

    def weights(*shape: int) -> str:
        integers = e.rng.integers(1, 127, shape).astype(np.int8)
        return e("Dequantize", e.new.weight("w", integers, Quant.of(0.01)))

    bias = e.array(np.repeat([0.0, -1000.0], 8))
    x = e("Conv", stored(e.input(1, 3, 3, 2)), weights(16, 1, 1, 2), bias, **PLAIN, low=0.0)
    return stored(str(e("Conv", stored(x), weights(4, 1, 1, 16), **PLAIN)))


CASES: dict[tuple[str, str], Case] = {
    ("remove-identity", "flatten-atrous"): lambda e: atrous(e, nothing(e)),
    ("remove-identity", "fuse-group-norm"): lambda e: group_norm(e, nothing(e)),
    ("flatten-atrous", "layout"): lambda e: atrous(e, lambda x: x),
    ("fuse-group-norm", "layout"): lambda e: group_norm(e, lambda x: x),
    ("remove-identity", "remove-neutral"): lambda e: e(
        "Add", e("Sin", e.input(4, 3)), e("Identity", e.array([0.0]))
    ),
    ("remove-neutral", "merge-casts"): lambda e: e(
        "Cast", neutral(e, e("Cast", e.input(2, 3), to="f32")), to="i32"
    ),
    ("remove-neutral", "merge-concats"): lambda e: e(
        "Concat", neutral(e, e("Concat", e.input(2, 3), e.input(1, 3), axis=0)), e.input(4, 3), axis=0
    ),
    ("remove-neutral", "merge-pads"): lambda e: e(
        "Pad", neutral(e, e("Pad", e.input(2, 3), before=(1, 0), after=(0, 0))), before=(0, 1), after=(0, 0)
    ),
    ("remove-neutral", "merge-slices"): lambda e: part(e, neutral(e, part(e, e.input(6, 3), 1, 4)), 1, 2),
    ("remove-neutral", "remove-expands"): lambda e: e(
        "Sub", e.input(4, 3), neutral(e, e("Expand", e.input(3), shape=(4, 3)))
    ),
    ("merge-concats", "cancel-splits"): merge_concats_first,
    ("merge-casts", "remove-duplicates"): merge_casts_first,
    ("merge-slices", "remove-duplicates"): merge_slices_first,
    ("cancel-splits", "remove-duplicates"): cancel_splits_first,
    ("merge-pads", "remove-duplicates"): merge_pads_first,
    ("remove-expands", "remove-duplicates"): remove_expands_first,
    ("remove-expands", "reduce-strength"): expanded_exponent,
    ("remove-duplicates", "reduce-strength"): root_of_two_readers,
    ("fuse-norm", "fuse-affine"): layer_norm,
    ("fuse-pad", "fuse-crop"): lambda e: e(
        "Slice",
        conv(
            e,
            e(
                "Pad",
                e("Sin", e.input(1, 3, 3, 2)),
                before=(0, 1, 1, 0),
                after=(0, 1, 1, 0),
                mode="constant",
                value=0.0,
            ),
        ),
        starts=(0, 1, 0, 0),
        sizes=(1, 4, 5, 4),
        steps=(1, 1, 1, 1),
    ),
    ("fuse-gates", "sink-reshapes"): spelled_sigmoid,
    ("sink-reshapes", "fuse-hard"): limited_reshape,
    ("fuse-quantize", "remove-dead-channels"): limited_channels,
    ("fold-batch-norm", "fold-scale"): batch_norm,
    ("fold-scale", "fuse-bias"): lambda e: e(
        "Add", e("Mul", conv(e, e.input(1, 3, 3, 2)), e.constant(4)), e.constant(4)
    ),
    ("fold-input", "fold-conv-conv"): reordered_convs,
    ("fold-input", "fuse-scale-shift"): scaled_input,
    ("remove-limits", "fuse-activation"): lambda e: e(
        "Clip", e("Relu", e("Exp", e.input(4, 3))), min=0.5, max=2.0
    ),
    ("layout", "merge-transposes"): two_transposes,
    ("layout", "transposes-to-weights"): meeting_transposes,
    ("layout", "transposes-to-views"): view_before_transpose,
    ("merge-transposes", "transposes-to-weights"): transposed_product,
    ("merge-transposes", "transposes-to-views"): two_transposes,
    ("transposes-to-weights", "transposes-to-views"): view_before_matrix,
    ("transposes-to-views", "remove-identity"): view_before_matrix,
}
"""(the transform that runs first, the other) -> a network that shows why."""

FOLLOWING = {("sink-reshapes", "fuse-hard"): ("fold-scale", "fuse-bias", "fuse-activation")}
"""What takes in the nodes that the right order leaves to it."""


def constraints() -> set[tuple[str, str]]:
    """All that the transforms state, in their own phases and where they repeat."""
    stated = set()
    for transform in TRANSFORMS.values():
        for place in (transform, *transform.repeats):
            stated |= {(name, transform.name) for name in place.after} | {
                (transform.name, name) for name in place.before
            }
    return stated


def test_every_constraint_has_its_case() -> None:
    assert set(CASES) == constraints()


def result(graph: Graph, *names: str) -> list[tuple[str, tuple[str, ...], list[Shape]]]:
    """Each node's op, what it was made of, and the shapes of its results."""
    for name in names:
        graph = verify(TRANSFORMS[name].apply(graph))
    return [
        (node.op.name, node.sources, [graph.tensors[name].shape for name in node.outputs])
        for node in graph.nodes
    ]


@pytest.mark.parametrize(("first", "second"), CASES, ids=[" then ".join(pair) for pair in CASES])
def test_the_other_order_gives_more_nodes_or_other_ones(first: str, second: str) -> None:
    e = Expressions(0)
    outputs = CASES[first, second](e)
    graph = e.graph(*([outputs] if isinstance(outputs, str) else outputs))
    following = FOLLOWING.get((first, second), ())
    right, wrong = result(graph, first, second, *following), result(graph, second, first, *following)
    assert right != wrong
    assert len(right) <= len(wrong)


def test_layout_repeats_for_what_constants_stopped() -> None:
    new = Builder("net")
    stored = new.weight("w", np.arange(32, dtype=np.int8).reshape(1, 4, 4, 2), Quant.of(0.1))
    last = new.one("Transpose", [new.input("x", DType.F32, (1, 2, 4, 4))], {"perm": TO_LAST})
    total = new.one("Add", [last, new.one("Dequantize", [stored])])
    graph = new.finish([new.one("Neg", [new.one("Transpose", [total], {"perm": TO_FIRST})])])
    assert [op for op, *_ in result(graph, "layout", "fuse-quantize")].count("Transpose") == 2
    assert [op for op, *_ in result(graph, "layout", "fuse-quantize", "layout")] == ["Add", "Neg"]


def test_a_factor_after_a_summand_needs_the_second_round() -> None:
    e = Expressions(0)
    graph = e.graph(e("Mul", e("Add", conv(e, e.input(1, 3, 3, 2)), e.constant(4)), e.constant(4)))
    (fold,) = (phase for phase in PHASES if phase.name == "fold")
    names = ["fold-batch-norm", "fold-scale", "fuse-bias"]
    assert [op for op, *_ in result(graph, *names)] == ["Conv", "Mul"]
    assert [op for op, *_ in result(graph, *names * fold.rounds)] == ["Conv"]
