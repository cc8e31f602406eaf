"""The contract that every frontend keeps."""

import json
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_keras import Keras


def config(x: str, y: str) -> dict[str, object]:
    """A dense layer y of an input x, as Keras describes it."""
    entry = {"name": x, "batch_input_shape": [None, 3], "dtype": "float32"}
    dense = {"name": y, "units": 2, "activation": "relu", "use_bias": True}
    layers = [{"class_name": "InputLayer", "config": entry}, {"class_name": "Dense", "config": dense}]
    return {"class_name": "Sequential", "config": {"name": "sample", "layers": layers}}


KERNEL, BIAS = np.arange(6, dtype=np.float32).reshape(3, 2) - 2, np.array([1, -1], np.float32)


class TestKeras(FrontendContract):
    frontend = Keras()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "x", "y")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        file = folder / "sample.h5"
        with h5py.File(file, "w") as made:
            made.attrs["model_config"] = json.dumps(config(x, y))
            made.attrs["keras_version"] = "2.11.0"
            weights = made.require_group("model_weights")
            weights.attrs["layer_names"] = [x.encode(), y.encode()]
            weights.require_group(x).attrs["weight_names"] = []
            group = weights.require_group(y)
            group.attrs["weight_names"] = [b"y/kernel:0", b"y/bias:0"]
            group["y/kernel:0"], group["y/bias:0"] = KERNEL, BIAS
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"] @ KERNEL + BIAS, 0)}
