"""Write the image networks that peers.py measures, with random weights: `uv run python benchmarks/imagenet.py FOLDER`.

MobileNetV1 and V2, SqueezeNet 1.1, ResNet-18 and -50 at 224 x 224, and the MobileNetV1 of a quarter of the
channels at 96 x 96 that MLPerf Tiny calls visual wake words; the layers are those of the papers, batch
normalization folded. Each is written in float (NAME.onnx) and quantized by ONNX Runtime to eight bits
(NAME_int8.onnx, QDQ, a scale for each filter, ranges of random images), and both also as TensorFlow Lite, made
from the ONNX file by our frontend and writer, with the signed activations that LiteRT wants. A file that
exists is kept: a seed makes it the same again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from mace_core.deployment import Model
from mace_core.ir import Array
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.transforms import run_phases
from mace_tflite_writer import write_tflite
from mace_tflite_writer.rewrites import activations_to_int8, legalize

SEED = 7
OPSET = 17
CALIBRATION_IMAGES = 4
RELU, RELU6, LINEAR = "Relu", "Clip", ""


class Network:
    """Collects the nodes of an ONNX model; every method returns the name of its result."""

    def __init__(self, size: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(SEED)
        self.size = size
        self.channels = {"image": 3}

    def add(self, op: str, inputs: list[str], channels: int, **attributes: object) -> str:
        """Add a node of one result with so many channels."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.channels[name] = channels
        return name

    def constant(self, array: Array) -> str:
        """Add a constant."""
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, channels: int, kernel: int = 1, stride: int = 1, **options: object) -> str:
        """Add a convolution with its activation.

        options: activation; padding, half the kernel by default; groups; gain, a factor of the weights.
        """
        activation, padding = options.get("activation", RELU), options.get("padding", kernel // 2)
        groups, gain = int(str(options.get("groups", 1))), float(str(options.get("gain", 1.0)))
        depth = self.channels[x] // groups
        # He's rule keeps the spread of values from layer to layer, so that int8 ranges are those of real nets.
        spread = gain * np.sqrt(2 / (depth * kernel * kernel))
        weights = spread * self.random.standard_normal((channels, depth, kernel, kernel))
        bias = 0.1 * self.random.standard_normal(channels)
        constants = [self.constant(array.astype(np.float32)) for array in (weights, bias)]
        attributes = {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
        result = self.add("Conv", [x, *constants], channels, kernel_shape=[kernel] * 2, **attributes)
        if activation == RELU6:
            limits = [self.constant(np.array(limit, np.float32)) for limit in (0, 6)]
            return self.add("Clip", [result, *limits], channels)
        return self.add("Relu", [result], channels) if activation == RELU else result

    def max_pool(self, x: str, padding: int) -> str:
        """Add a maximum over 3 x 3 with stride 2."""
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [padding] * 4}
        return self.add("MaxPool", [x], self.channels[x], **attributes)

    def classify(self, x: str, classes: int) -> str:
        """Add the mean over the image and a fully connected layer."""
        flat = self.add("Flatten", [self.average(x)], self.channels[x])
        scale = np.sqrt(1 / self.channels[x])
        weights = scale * self.random.standard_normal((classes, self.channels[x]))
        bias = np.zeros(classes)
        constants = [self.constant(array.astype(np.float32)) for array in (weights, bias)]
        return self.add("Gemm", [flat, *constants], classes, transB=1)

    def average(self, x: str) -> str:
        """Add the mean over the image."""
        return self.add("GlobalAveragePool", [x], self.channels[x])

    def model(self, result: str) -> onnx.ModelProto:
        """Return the whole model, whose one output is a row of classes."""
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, self.size, self.size])
        scores = helper.make_tensor_value_info(result, TensorProto.FLOAT, [1, self.channels[result]])
        graph = helper.make_graph(self.nodes, "network", [image], [scores], self.weights)
        opset = helper.make_opsetid("", OPSET)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[opset], ir_version=8)
        )


def mobilenet_v1(size: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
    """Return MobileNetV1: depthwise and pointwise convolutions in turn."""
    net = Network(size)
    x = net.conv("image", int(32 * width), 3, 2, activation=RELU6)
    blocks = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]
    for channels, stride in blocks:
        before = net.channels[x]
        x = net.conv(x, before, 3, stride, groups=before, activation=RELU6)
        x = net.conv(x, int(channels * width), activation=RELU6)
    return net.model(net.classify(x, classes))


def vww() -> onnx.ModelProto:
    """Return the network of MLPerf Tiny's visual wake words."""
    return mobilenet_v1(96, 0.25, 2)


def mobilenet_v2() -> onnx.ModelProto:
    """Return MobileNetV2: narrow tensors between wide depthwise convolutions, sums of the narrow ones."""
    net = Network(224)
    x = net.conv("image", 32, 3, 2, activation=RELU6)
    table = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for factor, channels, count, first_stride in table:
        for stride in (first_stride, *[1] * (count - 1)):
            before, wide = x, net.channels[x] * factor
            x = net.conv(x, wide, activation=RELU6) if factor > 1 else x
            x = net.conv(x, wide, 3, stride, groups=wide, activation=RELU6)
            x = net.conv(x, channels, activation=LINEAR, gain=0.7)
            if stride == 1 and net.channels[before] == channels:
                x = net.add("Add", [before, x], channels)
    return net.model(net.classify(net.conv(x, 1280, activation=RELU6), 1000))


def squeezenet() -> onnx.ModelProto:
    """Return SqueezeNet 1.1: pairs of 1 x 1 and 3 x 3 convolutions, concatenated."""
    net = Network(224)
    x = net.max_pool(net.conv("image", 64, 3, 2, padding=0), 0)
    for number, (squeezed, wide) in enumerate(
        [(16, 64)] * 2 + [(32, 128)] * 2 + [(48, 192)] * 2 + [(64, 256)] * 2
    ):
        if number in (2, 4):
            x = net.max_pool(x, 0)
        narrow = net.conv(x, squeezed)
        pair = [net.conv(narrow, wide), net.conv(narrow, wide, 3)]
        x = net.add("Concat", pair, 2 * wide, axis=1)
    mean = net.average(net.conv(x, 1000))
    return net.model(net.add("Flatten", [mean], 1000))


def resnet(counts: tuple[int, ...], *, has_bottlenecks: bool) -> onnx.ModelProto:
    """Return a ResNet with so many blocks in each of its four stages."""
    net = Network(224)
    x = net.max_pool(net.conv("image", 64, 7, 2), 1)
    for stage, count in enumerate(counts):
        inner = 64 << stage
        channels = inner * 4 if has_bottlenecks else inner
        for number in range(count):
            stride = 2 if stage and not number else 1
            is_same = net.channels[x] == channels and stride == 1
            beside = x if is_same else net.conv(x, channels, 1, stride, activation=LINEAR)
            # The sums of the blocks would grow without normalization; a small gain holds them.
            if has_bottlenecks:
                y = net.conv(net.conv(x, inner), inner, 3, stride)
                y = net.conv(y, channels, activation=LINEAR, gain=0.4)
            else:
                y = net.conv(net.conv(x, inner, 3, stride), inner, 3, activation=LINEAR, gain=0.4)
            x = net.add("Relu", [net.add("Add", [y, beside], channels)], channels)
    return net.model(net.classify(x, 1000))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "squeezenet": squeezenet,
    "resnet18": lambda: resnet((2, 2, 2, 2), has_bottlenecks=False),
    "resnet50": lambda: resnet((3, 4, 6, 3), has_bottlenecks=True),
    "vww": vww,
}


class RandomImages(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime has no types
    """Gives ONNX Runtime's quantizer the images from which it takes the ranges of tensors."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(SEED)
        shape = (CALIBRATION_IMAGES, 1, 3, size, size)
        images = random.standard_normal(shape).astype(np.float32)
        self.images: Iterator[dict[str, Array]] = iter([{"image": image} for image in images])

    def get_next(self) -> dict[str, Array] | None:
        """Return the next image; None after the last."""
        return next(self.images, None)


def write_onnx(name: str, folder: Path) -> None:
    """Write NAME.onnx and NAME_int8.onnx."""
    plain, quantized = folder / f"{name}.onnx", folder / f"{name}_int8.onnx"
    if not plain.is_file():
        write_all(folder, {plain.name: NETWORKS[name]().SerializeToString()})
    if quantized.is_file():
        return
    size = onnx.load(str(plain)).graph.input[0].type.tensor_type.shape.dim[2].dim_value
    # Under another name first: a file that is there is taken for whole.
    unfinished = folder / f"{name}_unfinished.onnx"
    # Unsigned activations, because ONNX Runtime and OpenVINO compute signed ones three to ten times slower.
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(
        plain, unfinished, RandomImages(size), quant_format=QuantFormat.QDQ, per_channel=True, **types
    )
    unfinished.rename(quantized)


def write_tensorflow_lite(source: Path, file: Path) -> None:
    """Write the graph of an ONNX file, as our transforms leave it, as TensorFlow Lite; keep one that exists."""
    if file.is_file():
        return
    registry = Registry.load()
    graph = run_phases(load(Model(source.stem, (source,), "onnx"), registry), registry)
    write_all(file.parent, {file.name: write_tflite(legalize(activations_to_int8(graph)))})


def write_network(name: str, folder: Path) -> None:
    """Write the four files of a network into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_onnx(name, folder)
    for stem in (name, f"{name}_int8"):
        write_tensorflow_lite(folder / f"{stem}.onnx", folder / f"{stem}.tflite")


def main(arguments: list[str]) -> None:
    """Write all networks into the folder that the command line names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise SystemExit("usage: imagenet.py FOLDER")
    for name in NETWORKS:
        sys.stdout.write(f"{name}\n")
        write_network(name, Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
