"""Times a pruned MobileNetV1 in int8, made at random, with and without the channels that never change.

    uv run python benchmarks/dead_channels.py [--seconds 5] [--seed 0]

The network has the shape of MLPerf Tiny's visual wake words model (96 x 96 x 3, width 0.25), and like that one
four fifths of its weights are zero, whole filters among them. Both forms are models of one library and take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import CASES, generate_library, host
from mace_core.verify import verify
from mace_target_cpu import Cpu
from mace_transform_standard.quantize.remove_dead_channels import remove_dead_channels

BLOCKS = ((1, 16), (2, 32), (1, 32), (2, 64), (1, 64), (2, 128), *[(1, 128)] * 5, (2, 256), (1, 256))
"""Stride of the depthwise convolution, and channels of the 1x1 convolution behind it."""

ZERO_FILTERS = 0.36
"""The share of filters without any weight; of the others, weights are zero until four fifths of all are."""

ZERO_WEIGHTS = 0.69


class Network:
    """Convolutions with ReLU6 in TensorFlow Lite's quantization: int8, weights with a scale for each filter."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.new = Builder(f"mobilenet{seed}")

    def conv(self, x: str, size: int, results: int, stride: int, *, depthwise: bool = False) -> str:
        """Add a convolution, padded as SAME does."""
        image, channels = self.new.shape(x)[1], self.new.shape(x)[-1]
        total = max((-(-image // stride) - 1) * stride + size - image, 0)
        weights = self.rng.integers(-127, 128, (results, size, size, 1 if depthwise else channels))
        weights[self.rng.random(weights.shape) < ZERO_WEIGHTS] = 0
        weights[self.rng.random(results) < ZERO_FILTERS] = 0
        scales = tuple(self.rng.uniform(0.002, 0.006, results).tolist())
        w = self.new.weight("w", weights.astype(np.int8), Quant(scales, (0,) * results, 0))
        quant = self.new.tensors[x].quant
        assert quant is not None
        steps = tuple(quant.scale[0] * scale for scale in scales)
        bias = self.rng.normal(0.3, 1.0, results) / np.array(steps)
        b = self.new.weight("b", bias.astype(np.int32), Quant(steps, (0,) * results, 0))
        pads = ((total // 2,) * 2, (total - total // 2,) * 2)
        attrs = {"strides": (stride,) * 2, "pads_before": pads[0], "pads_after": pads[1], "dilations": (1, 1)}
        group = channels if depthwise else 1
        y = self.new.reserve_output("y", Storage(DType.I8, Quant.of(6 / 255, -128)))
        return self.new.add(
            "Conv", [x, w, b], {**attrs, "group": group, "low": 0.0, "high": 6.0}, outputs=[y]
        )[0]


def make_network(seed: int) -> Graph:
    """Return the network, before any transform."""
    net = Network(seed)
    x = net.conv(net.new.input("image", DType.I8, (1, 96, 96, 3), Quant.of(1 / 127.5, -1)), 3, 8, 2)
    for stride, channels in BLOCKS:
        x = net.conv(x, 3, net.new.shape(x)[-1], stride, depthwise=True)
        x = net.conv(x, 1, channels, 1)
    y = net.new.reserve_output("mean", net.new.tensors[x].storage)
    (x,) = net.new.add("ReduceMean", [x], {"axes": (1, 2)}, outputs=[y])
    return verify(net.new.finish([net.conv(x, 1, 2, 1)]))


def time_in_turns(
    models: Mapping[str, native.LoadedModel], inputs: Mapping[str, Array], seconds: float
) -> None:
    """Print the least and the median time of each model."""
    times: dict[str, list[float]] = {name: [] for name in models}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, model in models.items():
            start = time.perf_counter()
            model.run(inputs)
            times[name].append(time.perf_counter() - start)
    for name, values in times.items():
        least, median = 1e6 * min(values), 1e6 * float(np.median(values))
        sys.stdout.write(f"{name}: least {least:.1f} us, median {median:.1f} us\n")


def main() -> None:
    """Generate and compile the model with and without its dead channels, compare the results, time both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    before = make_network(options.seed)
    weights = np.concatenate([a.reshape(-1) for a in before.weights.values() if a.dtype == np.int8])
    sys.stdout.write(f"{weights.size} weights, {np.mean(weights == 0):.0%} of them zero\n")
    after = remove_dead_channels(before)
    sys.stdout.write(f"{after.notes[-1]}\n")
    graphs = [before.with_name("whole"), after.with_name("shrunk")]
    with tempfile.TemporaryDirectory() as folder:
        library = shared_library(generate_library([Cpu()], graphs), host(), Path(folder), ())
        models = native.load(library, CASES)
        rng = np.random.default_rng(options.seed)
        for _ in range(20):
            inputs = {"image": rng.integers(-128, 128, (1, 96, 96, 3), np.int8)}
            results = [next(iter(model.run(inputs).values())) for model in models.values()]
            assert np.array_equal(*results), "the two forms differ"
        time_in_turns(models, inputs, options.seconds)


if __name__ == "__main__":
    main()
