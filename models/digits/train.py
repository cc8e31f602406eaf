"""Train the digits model and write everything that its deployment needs: `uv run python models/digits/train.py`.

A small convolutional network on scikit-learn's bundled digits (1,797 pictures of 8 x 8), trained in plain
numpy with Adam and a fixed seed; a fifth of the pictures is held out for the test. Writes digits.onnx,
test_inputs.npy, test_outputs.npy (onnxruntime's) and test_labels.npy, and says the accuracy on the held-out
pictures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Array = np.ndarray
HERE = Path(__file__).parent
SEED, EPOCHS, BATCH, RATE = 0, 60, 64, 2e-3
CHANNELS = (1, 16, 32)
CLASSES = 10


def patches(x: Array) -> Array:
    """Every 3 x 3 neighbourhood of [N, C, H, W] with zeros around, as [N, H, W, C * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], -1)


def forward(p: dict[str, Array], x: Array) -> tuple[Array, list[Array]]:
    """Scores of pictures [N, 1, 8, 8], and what the way back needs."""
    kept = []
    for layer in ("1", "2"):
        columns = patches(x)
        y = np.maximum(
            columns @ p[f"w{layer}"].reshape(len(p[f"w{layer}"]), -1).T + p[f"b{layer}"], 0
        ).transpose(0, 3, 1, 2)
        n, c, h, w = y.shape
        pooled = y.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
        kept += [columns, y, pooled]
        x = pooled
    flat = x.reshape(len(x), -1)
    return flat @ p["w3"] + p["b3"], [*kept, flat]


def backward(p: dict[str, Array], kept: list[Array], slope: Array) -> dict[str, Array]:
    """Gradients from the slope of the scores."""
    *kept, flat = kept
    gradients = {"w3": flat.T @ slope, "b3": slope.sum(0)}
    slope = (slope @ p["w3"].T).reshape(kept[5].shape)
    for layer in ("2", "1"):
        columns, y, pooled = kept[-3:]
        kept = kept[:-3]
        wide = (
            np.repeat(np.repeat(slope, 2, 2), 2, 3)
            * (y == np.repeat(np.repeat(pooled, 2, 2), 2, 3))
            * (y > 0)
        )
        rows = wide.transpose(0, 2, 3, 1)
        weight = p[f"w{layer}"]
        gradients[f"w{layer}"] = np.einsum("nhwo,nhwk->ok", rows, columns).reshape(weight.shape)
        gradients[f"b{layer}"] = rows.sum((0, 1, 2))
        if layer == "2":
            turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3).reshape(weight.shape[1], -1)
            slope = (patches(wide) @ turned.T).transpose(0, 3, 1, 2)
    return gradients


def train(x: Array, labels: Array) -> dict[str, Array]:
    """Parameters after EPOCHS of Adam on the cross entropy."""
    rng = np.random.default_rng(SEED)
    shapes = {
        "w1": (CHANNELS[1], 1, 3, 3),
        "w2": (CHANNELS[2], CHANNELS[1], 3, 3),
        "w3": (CHANNELS[2] * 4, CLASSES),
    }
    p = {
        n: rng.standard_normal(s) * np.sqrt(2 / (s[0] if n == "w3" else np.prod(s[1:])))
        for n, s in shapes.items()
    }
    p |= {"b1": np.zeros(CHANNELS[1]), "b2": np.zeros(CHANNELS[2]), "b3": np.zeros(CLASSES)}
    mean, square, step = {n: 0.0 * v for n, v in p.items()}, {n: 0.0 * v for n, v in p.items()}, 0
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(x)), len(x) // BATCH):
            scores, kept = forward(p, x[batch])
            likely = np.exp(scores - scores.max(1, keepdims=True))
            likely /= likely.sum(1, keepdims=True)
            likely[np.arange(len(batch)), labels[batch]] -= 1
            step += 1
            for name, g in backward(p, kept, likely / len(batch)).items():
                mean[name] = 0.9 * mean[name] + 0.1 * g
                square[name] = 0.999 * square[name] + 0.001 * g * g
                p[name] = p[name] - RATE * (mean[name] / (1 - 0.9**step)) / (
                    np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8
                )
    return {n: v.astype(np.float32) for n, v in p.items()}


def to_onnx(p: dict[str, Array]) -> onnx.ModelProto:
    """The network with a softmax at its end, for one picture."""
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "conv1", **conv),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", **pool),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], "conv2", **conv),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["p2"], "pool2", **pool),
        helper.make_node("Flatten", ["p2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], "dense"),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax", axis=1),
    ]
    ports = [("image", [1, 1, 8, 8]), ("probabilities", [1, CLASSES])]
    image, probabilities = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports)
    weights = [numpy_helper.from_array(v, n) for n, v in sorted(p.items())]
    graph = helper.make_graph(nodes, "digits", [image], [probabilities], weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="mace"
    )


def main() -> None:
    """Train, export, run onnxruntime on the held-out pictures, write the files."""
    digits = load_digits()
    pictures = (digits.images / 16).astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    model = to_onnx(train(train_x, train_y))
    onnx.checker.check_model(model)
    onnx.save(model, HERE / "digits.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = np.stack([session.run(None, {"image": x[None]})[0] for x in test_x])
    np.save(HERE / "test_inputs.npy", test_x[:, None])
    np.save(HERE / "test_outputs.npy", outputs)
    np.save(HERE / "test_labels.npy", test_y)
    print(f"accuracy on {len(test_y)} held-out pictures: {(outputs[:, 0].argmax(1) == test_y).mean():.4f}")  # noqa: T201


if __name__ == "__main__":
    main()
