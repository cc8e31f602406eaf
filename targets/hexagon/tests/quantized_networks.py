"""Random networks of bytes: what the int8 models of phones consist of."""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage

MAX_CHANNELS = 70


class _QuantizedNetwork:
    """Grows a network from one image; each step takes the last tensor."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = Builder(f"network{seed}")
        self.dtype = DType.I8 if self.rng.integers(2) else DType.U8
        self.count = 0

    def grow(self, steps: int) -> Graph:
        """Return a network of so many steps."""
        size = int(self.rng.integers(4, 10))
        shape = (1, size, int(self.rng.integers(4, 10)), int(self.rng.integers(1, MAX_CHANNELS)))
        storage = self._storage(0.05)
        x = self.builder.input("x", storage.dtype, shape, storage.quant)
        choices = (
            self._convolve,
            self._convolve,
            self._convolve_depthwise,
            self._add,
            self._pool,
            self._bend,
        )
        for _ in range(steps):
            x = choices[int(self.rng.integers(len(choices)))](x)
        return self.builder.finish([x])

    def _storage(self, scale: float) -> Storage:
        zero = int(self.rng.integers(-100, 100)) + (128 if self.dtype is DType.U8 else 0)
        return Storage(self.dtype, Quant.of(float(scale * self.rng.uniform(0.5, 2.0)), zero))

    def _reserve(self, scale: float) -> str:
        self.count += 1
        return self.builder.reserve_output(f"t{self.count}", self._storage(scale))

    def _shape(self, x: str) -> tuple[int, ...]:
        return self.builder.tensors[x].shape

    def _weigh(self, x: str, filters: tuple[int, ...], group: int) -> str:
        """Convolve with random weights of the network's kind, with strides or without."""
        rng, count = self.rng, filters[0]
        quant = self.builder.tensors[x].quant
        assert quant is not None
        if self.dtype is DType.U8:
            scales: tuple[float, ...] = (float(rng.uniform(0.002, 0.02)),) * count
            weights = rng.integers(0, 256, filters).astype(np.uint8)
            weight_quant = Quant.of(scales[0], int(rng.integers(90, 160)))
        else:
            scales = tuple(rng.uniform(0.002, 0.02, count).tolist())
            weights = rng.integers(-127, 128, filters).astype(np.int8)
            weight_quant = Quant(scales, (0,) * count, 0)
        bias_quant = Quant(tuple(s * quant.scale[0] for s in scales), (0,) * count, 0)
        self.count += 1
        w = self.builder.weight(f"w{self.count}", weights, weight_quant)
        b = self.builder.weight(f"b{self.count}", rng.integers(-999, 999, count).astype(np.int32), bias_quant)
        pad = filters[1] // 2
        stride = int(rng.integers(1, 3)) if min(self._shape(x)[1:3]) > 3 else 1
        attrs = {
            "strides": (stride, stride),
            "pads_before": (pad, pad),
            "pads_after": (pad, pad),
            "dilations": (1, 1),
            "group": group,
        }
        return self.builder.add("Conv", [x, w, b], attrs, outputs=[self._reserve(0.5)])[0]

    def _convolve(self, x: str) -> str:
        size = int(self.rng.choice([1, 1, 3, 3, 5]))
        return self._weigh(x, (int(self.rng.integers(1, MAX_CHANNELS)), size, size, self._shape(x)[-1]), 1)

    def _convolve_depthwise(self, x: str) -> str:
        channels, size = self._shape(x)[-1], int(self.rng.choice([3, 3, 5]))
        return self._weigh(x, (channels, size, size, 1), channels)

    def _add(self, x: str) -> str:
        other = self._bend(x)
        return self.builder.add("Add", [x, other], {}, outputs=[self._reserve(0.3)])[0]

    def _pool(self, x: str) -> str:
        op = "MaxPool" if self.rng.integers(2) else "AveragePool"
        attrs = {
            "kernel": (3, 3),
            "strides": (1, 1),
            "pads_before": (1, 1),
            "pads_after": (1, 1),
            "dilations": (1, 1),
        }
        tensor = self.builder.tensors[x]
        self.count += 1
        storage = Storage(tensor.dtype, tensor.quant) if op == "MaxPool" else self._storage(0.1)
        name = self.builder.reserve_output(f"t{self.count}", storage)
        return self.builder.add(op, [x], attrs, outputs=[name])[0]

    def _bend(self, x: str) -> str:
        op = str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "HardSwish"]))
        return self.builder.add(op, [x], {}, outputs=[self._reserve(0.05)])[0]


def random_network(seed: int, steps: int = 4) -> Graph:
    """Return a network of bytes; equal seeds give equal networks."""
    return _QuantizedNetwork(seed).grow(steps)
