"""Models of TensorFlow and graphs of single operations, for tests of what is refused and of damaged files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow_cases import floats

from mace_frontend_tensorflow.messages import GraphDef

FLOAT, INT32, INT64 = 1, 3, 9


def written(tf: Any, make: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    """A frozen graph as a message."""
    graph = tf.Graph()
    with graph.as_default():
        result = make(
            tf, *(tf.compat.v1.placeholder(tf.float32, shape, f"x{i}") for i, shape in enumerate(shapes))
        )
        for i, tensor in enumerate(tf.nest.flatten(result)):
            tf.identity(tensor, name=f"y{i}")
    return GraphDef.FromString(graph.as_graph_def().SerializeToString())


def convolution(tf: Any, x: Any) -> Any:
    x = tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0)
    x = tf.nn.conv2d(
        x, tf.quantization.fake_quant_with_min_max_vars(floats(3, 3, 3, 4), -1.0, 1.0), 2, "SAME"
    ) + floats(4)
    x = tf.compat.v1.nn.fused_batch_norm(x, *(np.ones(4, np.float32),) * 4, is_training=False)[0]
    x = tf.nn.depthwise_conv2d(tf.nn.relu6(x), floats(3, 3, 4, 2), [1] * 4, "VALID")
    x = tf.nn.conv2d_transpose(x, floats(2, 2, 3, 8), (1, 8, 8, 3), 2, "VALID" if x.shape[1] == 4 else "SAME")
    x = tf.compat.v1.image.resize_bilinear(tf.nn.max_pool2d(x, 2, 2, "SAME"), (7, 5), align_corners=True)
    return tf.nn.softmax(tf.reduce_mean(tf.nn.local_response_normalization(x), [1, 2]) @ floats(3, 5))


def movement(tf: Any, x: Any) -> Any:
    a = tf.tile(tf.pad(x[:, 1:, ::-1], [[0, 0], [1, 0], [0, 2]]), [1, 2, 1])
    b = tf.gather(tf.reshape(a, [2, -1]), [0, 3, 5], axis=1)
    c = tf.concat([b, tf.fill([2, 3], 2.0), tf.one_hot([1, 2], 3)], 1)
    d = tf.transpose(tf.stack(tf.split(c, 3, 1)), [1, 2, 0])
    e = tf.space_to_batch(tf.reshape(d, [2, 3, 3, 1]), [2, 2], [[0, 1], [1, 0]])
    f = tf.tensor_scatter_nd_update(c, [[1], [0]], c) * tf.linspace(0.0, 1.0, 9) + tf.cumsum(c, 1)
    g = (
        tf.einsum("ij,kj->ik", f, c)
        + tf.cast(tf.argmax(c, 1), tf.float32)
        + tf.math.unsorted_segment_sum(tf.ones((4, 2)), [0, 1, 0, 3], 2)
    )
    h = tf.image.non_max_suppression_padded(tf.ones((5, 4)), x[0, 0, :5], 3)[0]
    i = tf.image.crop_and_resize(tf.reshape(x, (1, 4, 5, 2)), [[0.0, 0.1, 1.0, 0.9]], [0], (3, 2))
    return [
        e,
        g,
        tf.math.top_k(f, 2),
        h,
        i,
        tf.roll(x, [1], [0]),
        tf.reverse_sequence(x, [2, 3], 1),
        tf.range(0, 9, 2),
    ]


def control(tf: Any, x: Any) -> Any:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.nn.relu(x) + 1.0

    x = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, inner(v)), [tf.constant(0), x])[1]
    x = tf.cond(tf.constant(True), lambda: x * 2.0, lambda: inner(x))
    y = tf.cond(x[0, 0] > 0, lambda: x - 2.0, lambda: inner(x))
    return [y, tf.switch_case(tf.constant(1), [lambda: x, lambda: inner(y)]), tf.nn.dropout(x, 0.5)]


def recurrent(tf: Any, x: Any) -> Any:
    given, made = (
        tf.TensorArray(tf.float32, 5).unstack(x),
        tf.TensorArray(tf.float32, 5, element_shape=(2, 4)),
    )

    def body(i: Any, h: Any, c: Any, made: Any) -> Any:
        a, j, f, o = tf.split(tf.concat([given.read(i), h], 1) @ floats(7, 16), 4, 1)
        c = c * tf.sigmoid(f) + tf.sigmoid(a) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return i + 1, h, c, made.write(i, h)

    zeros = tf.zeros((2, 4))
    _, h, c, made = tf.while_loop(lambda i, *_: i < 5, body, [tf.constant(0), zeros, zeros, made])
    cell = tf.raw_ops.LSTMBlockCell(
        x=h, cs_prev=c, h_prev=h, w=floats(8, 16), wci=floats(4), wcf=floats(4), wco=floats(4), b=floats(16)
    )
    return [made.stack(), cell.cs, cell.h]


def old_loop(tf: Any, x: Any) -> Any:
    tf.compat.v1.disable_control_flow_v2()
    try:
        record = tf.compat.v1.TensorArray(tf.float32, 4)
        body = lambda i, v, r: (i + 1, tf.tanh(v @ floats(3, 3)), r.write(i, v))  # noqa: E731
        _, last, record = tf.compat.v1.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), x, record])
        told = tf.raw_ops.Switch(data=last, pred=tf.constant(True))
        return [record.stack(), tf.raw_ops.Merge(inputs=[told.output_false, told.output_true]).output]
    finally:
        tf.compat.v1.enable_control_flow_v2()


GRAPHS = (
    (convolution, (1, 8, 8, 3)),
    (movement, (2, 4, 5)),
    (control, (2, 3)),
    (recurrent, (5, 2, 3)),
    (old_loop, (2, 3)),
)


def saved(tf: Any, folder: Path) -> dict[str, bytes]:
    """The files of a SavedModel."""
    module = tf.Module()
    module.weights = [tf.Variable(floats(4, 4, seed=i)) for i in range(3)]

    @tf.function(input_signature=[tf.TensorSpec([1, 4], tf.float32, "x")])
    def serve(x: Any) -> Any:
        for weights in module.weights:
            x = tf.nn.relu(x @ weights)
        return {"y": x}

    module.serve = serve
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own making
        tf.saved_model.save(module, str(folder), signatures=serve)
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.name != "fingerprint.pb"
    }


def graph_of(*nodes: tuple[Any, ...]) -> Any:
    """A graph of placeholder x [2, 3], and of nodes told by name, operator and operands.

    An array is a constant.
    """
    graph = GraphDef()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = FLOAT
    for size in (2, 3):
        x.attr["shape"].shape.dim.add(size=size)
    for name, op, *inputs in nodes:
        if op == "Const":
            add_constant(graph.node.add(name=name, op=op), *inputs)
        else:
            graph.node.add(name=name, op=op, input=inputs)
    return graph


def add_constant(node: Any, array: Any, shape: tuple[int, ...] | None = None) -> None:
    values = np.asarray(array)
    tensor = node.attr["value"].tensor
    tensor.dtype = {"f4": FLOAT, "i4": INT32, "i8": INT64}[values.dtype.str[1:]]
    if shape is None:
        tensor.tensor_content = values.tobytes()
    else:
        tensor.float_val.extend(values.reshape(-1).tolist())
    for size in values.shape if shape is None else shape:
        tensor.tensor_shape.dim.add(size=size)


def make_graph(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A graph of one operation whose operands are constants."""
    graph = GraphDef()
    names = []
    for i, array in enumerate(inputs):
        names.append(f"c{i}")
        add_constant(graph.node.add(name=names[-1], op="Const"), array)
    node = graph.node.add(name="y", op=op, input=names)
    for key, value in attrs.items():
        set_attribute(node.attr[key], value)
    graph.node.add(name="result", op="Identity", input=["y"])
    return graph


def set_attribute(attribute: Any, value: Any) -> None:
    if isinstance(value, list) and isinstance(value[0], str):
        attribute.list.s.extend(text.encode() for text in value)
    elif isinstance(value, list):
        attribute.list.i.extend(value)
    elif isinstance(value, str):
        attribute.s = value.encode()
    elif isinstance(value, bool):
        attribute.b = value
    else:
        attribute.i = value
