"""Branches, loops, functions, random numbers: what nothing is left of in the graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, check, f32, floats, freeze

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow
from mace_target_cpu import Cpu


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


def switched(tf: Any, x: Any) -> Any:
    """A branch as TensorFlow 1 wrote it: both sides, of which one comes through."""
    told = tf.raw_ops.Switch(data=x, pred=tf.constant(True))
    yes, no = told.output_true * 2.0, tf.raw_ops.Softmax(logits=told.output_false)
    return list(tf.raw_ops.Merge(inputs=[no, yes]))


def behind_control(tf: Any, x: Any) -> Any:
    """A constant that exists only on the side that is taken."""
    taken = tf.raw_ops.Switch(data=tf.constant(False), pred=tf.constant(False))
    with tf.control_dependencies([tf.identity(taken.output_false)]):
        here = tf.constant(floats(3))
    with tf.control_dependencies([tf.identity(taken.output_true)]):
        there = tf.constant(floats(3, seed=1))
    return x + tf.raw_ops.Merge(inputs=[here, there]).output


def test_a_branch_of_tensorflow_1_is_the_side_that_is_taken(tmp_path: Path, tf: Any) -> None:
    assert set(ops(check(Case("switch", switched, [f32(2, 3)]), tmp_path, tf))) <= {"Mul", "Identity"}
    assert set(ops(check(Case("control", behind_control, [f32(2, 3)]), tmp_path, tf))) == {"Add"}


def test_a_branch_that_is_chosen_at_run_time_is_refused(tmp_path: Path, tf: Any) -> None:
    def make(tf: Any, x: Any) -> Any:
        told = tf.raw_ops.Switch(data=x, pred=x[0] > 0)
        return tf.raw_ops.Merge(inputs=[told.output_true, -told.output_false]).output

    with pytest.raises(MaceError, match=r"node 'Switch'.*at run time"):
        freeze(Case("switch", make, [f32(3)]), tmp_path, tf).graph()


def test_nobody_trains(tmp_path: Path, tf: Any) -> None:
    """A truth value that the deployment file does not name is false."""
    v1, file = tf.compat.v1, tmp_path / "model.pb"
    with tf.Graph().as_default() as graph:
        training, x = (
            v1.placeholder(tf.bool, name="phase_train"),
            v1.placeholder(tf.float32, (1, 4, 4, 3), "x"),
        )
        told = [tf.raw_ops.Switch(data=x, pred=training) for _ in range(2)]
        sides = [
            tf.raw_ops.FusedBatchNormV3(
                x=side, scale=floats(3), offset=floats(3), mean=mean, variance=mean, is_training=not len(mean)
            ).y
            for side, mean in (
                (told[0].output_false, np.ones(3, np.float32)),
                (told[1].output_true, np.zeros(0, np.float32)),
            )
        ]
        tf.raw_ops.Merge(inputs=sides, name="y")
    file.write_bytes(graph.as_graph_def().SerializeToString())
    model = Model("m", (file,), inputs=(Port("x", (1, 4, 4, 3)),), outputs=(Port("y"),))
    made, run = verify(TensorFlow().load((file,), model, core_ops())), TensorFlow().reference((file,), model)
    assert run is not None
    image = {"x": floats(1, 4, 4, 3)}
    assert made.inputs == ("x",)
    np.testing.assert_allclose(execute(made, image)["y"], run(image)["y"], atol=1e-6)


def v1_loop(tf: Any, x: Any) -> Any:
    """x = tanh(x W) four times, and a record of it, in frames of TensorFlow 1."""
    weights = tf.constant(floats(3, 3))
    record = tf.compat.v1.TensorArray(tf.float32, 4)

    def body(i: Any, value: Any, record: Any) -> Any:
        value = tf.tanh(value @ weights)
        return i + 1, value, record.write(i, value)

    _, last, record = tf.compat.v1.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), x, record])
    return [last, record.stack()]


def nested_v1_loop(tf: Any, x: Any) -> Any:
    def inner(i: Any, value: Any) -> Any:
        return tf.compat.v1.while_loop(
            lambda j, _: j < i, lambda j, v: [j + 1, v * 1.5 + 1.0], [tf.constant(0), value]
        )[1]

    return tf.compat.v1.while_loop(
        lambda i, _: i < 4, lambda i, v: [i + 1, inner(i, v)], [tf.constant(0), x]
    )[1]


def sequence(tf: Any, x: Any) -> Any:
    """What dynamic_rnn writes: a sequence apart in an array, a cell once a step."""
    weights = tf.constant(floats(5, 3))
    steps = tf.compat.v1.TensorArray(tf.float32, 6).unstack(tf.transpose(x, (1, 0, 2)))
    made = tf.compat.v1.TensorArray(tf.float32, 6)

    def body(i: Any, state: Any, made: Any) -> Any:
        state = tf.tanh(tf.concat([steps.read(i), state], 1) @ weights)
        return i + 1, state, made.write(i, state)

    done = tf.compat.v1.while_loop(lambda i, *_: i < 6, body, [tf.constant(0), tf.zeros((2, 3)), made])
    return [done[1], done[2].stack(), done[2].size()]


V1 = (
    Case("loop", v1_loop, [f32(2, 3)]),
    Case("nested", nested_v1_loop, [f32(2, 3)]),
    Case("sequence", sequence, [f32(2, 6, 2)]),
)


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("case", V1, ids=lambda c: c.name)
def test_loops_of_tensorflow_1_are_written_out(case: Case, tmp_path: Path, tf: Any) -> None:
    tf.compat.v1.disable_control_flow_v2()
    try:
        graph = check(case, tmp_path, tf)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    assert "Tanh" not in ops(graph) or ops(graph)["Tanh"] in (4, 6)
    assert len([w for w in graph.weights.values() if w.shape in ((3, 3), (5, 3))]) <= 1, (
        "weights of a loop are there once"
    )
    check_graphs(Cpu(), [graph], tmp_path)


def v2_loop(tf: Any, x: Any) -> Any:
    weights, record = floats(3, 3), tf.TensorArray(tf.float32, 4, element_shape=(2, 3))

    def body(i: Any, value: Any, record: Any) -> Any:
        value = tf.tanh(value @ weights)
        return i + 1, value, record.write(i, value)

    _, last, record = tf.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), x, record])
    return [last, record.stack(), record.size()]


def branches(tf: Any, x: Any) -> Any:
    known = tf.cond(tf.constant(False), lambda: x * 2.0, lambda: x + 1.0)
    free = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.nn.relu(x), lambda: -x)
    return [known, free, tf.switch_case(tf.constant(1), [lambda: x, lambda: x * 3.0])]


def appended(tf: Any, x: Any) -> Any:
    """A list that grows, read in another order."""
    lists = tf.raw_ops
    made = lists.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=tf.float32)
    for row in tf.unstack(x):
        made = lists.TensorListPushBack(input_handle=made, tensor=row)
    popped = lists.TensorListPopBack(input_handle=made, element_shape=[2], element_dtype=tf.float32)
    rest = lists.TensorListGather(
        input_handle=popped.output_handle, indices=[1, 0], element_shape=[2], element_dtype=tf.float32
    )
    whole = lists.TensorListConcatV2(
        input_handle=made, element_shape=[2], leading_dims=np.zeros(0, np.int64), element_dtype=tf.float32
    )
    empty = lists.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=tf.float32)
    zeros = lists.TensorListStack(input_handle=empty, element_shape=[2], element_dtype=tf.float32)
    return [
        popped.tensor,
        rest,
        whole.tensor,
        whole.lengths,
        zeros,
        lists.TensorListLength(input_handle=made),
    ]


def test_functions_are_written_out(tmp_path: Path, tf: Any) -> None:
    @tf.function
    def inner(x: Any, y: Any) -> Any:
        values, places = tf.math.top_k(x, 2)
        return tf.cast(places, tf.float32), values * y

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x, 3.0), inner(x * 2.0, 4.0)

    graph = check(Case("functions", lambda tf, x: tf.nest.flatten(outer(x)), [f32(3, 5)]), tmp_path, tf)
    assert ops(graph)["TopK"] == 2


def test_loops_and_branches_of_tensorflow_2(tmp_path: Path, tf: Any) -> None:
    looped = check(Case("loop", v2_loop, [f32(2, 3)]), tmp_path, tf)
    assert ops(looped)["Tanh"] == 4
    assert len([w for w in looped.weights.values() if w.shape == (3, 3)]) == 1
    check(Case("branches", branches, [f32(2, 3)]), tmp_path, tf)
    check(Case("lists", appended, [f32(4, 2)]), tmp_path, tf)


def test_loops_that_end_at_run_time_are_refused(tmp_path: Path, tf: Any) -> None:
    case = Case(
        "loop",
        lambda tf, x: tf.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: [v * 2.0], [x]),
        [f32(3)],
    )
    with pytest.raises(
        MaceError, match=r"node 'while'.*when it ends is known at run time only; export the model"
    ):
        freeze(case, tmp_path, tf).graph()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_loops_without_end_are_refused(tmp_path: Path, tf: Any) -> None:
    case = Case(
        "loop",
        lambda tf, x: tf.while_loop(lambda i, v: i < 1, lambda i, v: [i, v], [tf.constant(0), x])[1],
        [f32(3)],
    )
    with pytest.raises(MaceError, match=r"it has more than 4096 iterations; shorten it"):
        freeze(case, tmp_path, tf).graph()


def test_dropout_is_removed(tmp_path: Path, tf: Any) -> None:
    """What it makes of a tensor is the tensor, in the mean over its random numbers."""

    def old(tf: Any, x: Any) -> Any:
        noise = tf.random.uniform([4, 5]) * (1.0 - 0.0) + 0.0
        return tf.math.divide(x, 0.75) * tf.floor(0.75 + noise)

    for make in (lambda tf, x: tf.nn.dropout(x, rate=0.25), old):
        frozen = freeze(Case("dropout", make, [f32(4, 5)]), tmp_path, tf)
        x = floats(4, 5)
        graph = frozen.graph()
        np.testing.assert_allclose(execute(graph, {"in0": x})["out0"], x, rtol=1e-6)
        assert set(ops(graph)) <= {"Mul", "Div"}


def test_random_numbers_for_another_purpose_are_refused(tmp_path: Path, tf: Any) -> None:
    for make in (lambda tf, x: x + tf.random.uniform([3]), lambda tf, x: x + tf.random.normal([3])):
        with pytest.raises(
            MaceError, match="random numbers for another purpose than dropout; export the model for inference"
        ):
            freeze(Case("noise", make, [f32(3)]), tmp_path, tf).graph()
