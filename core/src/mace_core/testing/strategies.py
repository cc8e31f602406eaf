"""Random well-formed graphs of small networks, as the frontend of an NCHW framework would make them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def random_graph(seed: int, nodes: int = 8) -> Graph:
    """Return a network of about `nodes` layers over [1, C, H, W] with branches; equal for equal seeds."""
    return _Network(seed).grow(nodes)


class _Network:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = Builder(f"random{seed}")
        shape = (1, int(self.rng.integers(1, 5)), int(self.rng.integers(4, 9)), int(self.rng.integers(4, 9)))
        self.images = [self.builder.input("x", DType.F32, shape)]

    def grow(self, nodes: int) -> Graph:
        layers: tuple[Callable[[str], str], ...] = (
            self._conv,
            self._conv,
            self._pool,
            self._norm,
            self._activation,
            self._constant,
            self._meet,
            self._slice,
            self._gate,
            self._keep,
            self._hard_swish,
        )
        for _ in range(nodes):
            source = self.images[int(self.rng.integers(max(len(self.images) - 3, 0), len(self.images)))]
            self.images.append(layers[int(self.rng.integers(len(layers)))](source))
        outputs = list(dict.fromkeys([self.images[-1], self._head(self.images[len(self.images) // 2])]))
        return self.builder.finish(outputs)

    def _array(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def _weight(self, *shape: int) -> str:
        return self.builder.weight("w", self._array(*shape))

    def _last(self, x: str) -> str:
        return self.builder.one("Transpose", [x], {"perm": TO_LAST})

    def _first(self, x: str) -> str:
        return self.builder.one("Transpose", [x], {"perm": TO_FIRST})

    def _conv(self, x: str) -> str:
        channels, out, k = (
            self.builder.shape(x)[1],
            int(self.rng.integers(1, 6)),
            int(self.rng.choice([1, 3])),
        )
        pad = (k // 2, k // 2)
        attrs = {"strides": (1, 1), "pads_before": pad, "pads_after": pad, "dilations": (1, 1)}
        inputs = [self._last(x), self._weight(out, k, k, channels)]
        return self._first(
            self.builder.one("Conv", inputs + ([self._weight(out)] if self.rng.random() < 0.5 else []), attrs)
        )

    def _pool(self, x: str) -> str:
        op = str(self.rng.choice(["MaxPool", "AveragePool"]))
        attrs = {
            "kernel": (3, 3),
            "strides": (1, 1),
            "pads_before": (1, 1),
            "pads_after": (1, 1),
            "dilations": (1, 1),
        }
        return self._first(self.builder.one(op, [self._last(x)], attrs))

    def _norm(self, x: str) -> str:
        channels = self.builder.shape(x)[1]
        positive = self.builder.weight("v", np.abs(self._array(channels)) + np.float32(0.5))
        inputs = [self._last(x), *(self._weight(channels) for _ in range(3)), positive]
        return self._first(self.builder.one("BatchNorm", inputs))

    def _activation(self, x: str) -> str:
        op, attrs = (("Relu", {}), ("Clip", {"min": 0.0, "max": 6.0}), ("Tanh", {}), ("Clip", {"min": -1.0}))[
            int(self.rng.integers(4))
        ]
        return self.builder.one(op, [x], attrs)

    def _constant(self, x: str) -> str:
        shape = self.builder.shape(x)
        form = ((), (1,), (shape[1], 1, 1), (1, shape[1], 1, 1), shape)[int(self.rng.integers(5))]
        pair = [x, self._weight(*form)]
        op = str(self.rng.choice(["Add", "Sub", "Mul", "Div"]))
        return self.builder.one(op, pair if op == "Div" or self.rng.random() < 0.6 else pair[::-1])

    def _meet(self, x: str) -> str:
        others = [i for i in self.images if self.builder.shape(i)[2:] == self.builder.shape(x)[2:]]
        other = others[int(self.rng.integers(len(others)))]
        if self.builder.shape(other) == self.builder.shape(x) and self.rng.random() < 0.6:
            return self.builder.one("Add", [x, other])
        return self.builder.one("Concat", [x, other], {"axis": 1})

    def _slice(self, x: str) -> str:
        shape = self.builder.shape(x)
        keep = int(self.rng.integers(1, shape[1] + 1))
        return self.builder.one(
            "Slice", [x], {"starts": (0,) * 4, "sizes": (1, keep, *shape[2:]), "steps": (1,) * 4}
        )

    def _gate(self, x: str) -> str:
        """Scale each channel by a function of its mean (squeeze and excitation)."""
        pooled = self.builder.one("ReduceMean", [x], {"axes": (2, 3)})
        return self.builder.one("Mul", [x, self.builder.one("Sigmoid", [pooled])])

    def _keep(self, x: str) -> str:
        return self.builder.one(
            "Reshape", [self.builder.one("Identity", [x])], {"shape": self.builder.shape(x)}
        )

    def _hard_swish(self, x: str) -> str:
        ramp = self.builder.one("Add", [x, self.builder.weight("three", np.array(3, np.float32))])
        gated = self.builder.one("Mul", [x, self.builder.one("Clip", [ramp], {"min": 0.0, "max": 6.0})])
        return self.builder.one("Div", [gated, self.builder.weight("six", np.array(6, np.float32))])

    def _head(self, x: str) -> str:
        channels = self.builder.shape(x)[1]
        pooled = self.builder.one("ReduceMean", [x], {"axes": (2, 3)})
        flat = self.builder.one("Reshape", [pooled], {"shape": (1, channels)})
        scores = self.builder.one("MatMul", [flat, self._weight(channels, 3)])
        return self.builder.one("Softmax", [self.builder.one("Add", [scores, self._weight(3)])])
