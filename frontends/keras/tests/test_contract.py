"""The contract that every frontend keeps."""

import json
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_keras import Keras

MODEL = {
    "class_name": "Sequential",
    "config": {
        "name": "sample",
        "layers": [
            {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 3], "dtype": "float32"}},
            {"class_name": "Dense", "config": {"name": "y", "units": 2, "activation": "relu", "use_bias": True}},
        ],
    },
}
KERNEL, BIAS = np.arange(6, dtype=np.float32).reshape(3, 2) - 2, np.array([1, -1], np.float32)


class TestKeras(FrontendContract):
    frontend = Keras()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        file = folder / "sample.h5"
        with h5py.File(file, "w") as made:
            made.attrs["model_config"] = json.dumps(MODEL)
            made.attrs["keras_version"] = "2.11.0"
            weights = made.create_group("model_weights")
            weights.attrs["layer_names"] = [b"x", b"y"]
            weights.create_group("x").attrs["weight_names"] = []
            group = weights.create_group("y")
            group.attrs["weight_names"] = [b"y/kernel:0", b"y/bias:0"]
            group["y/kernel:0"], group["y/bias:0"] = KERNEL, BIAS
        return (file,)

    def expected(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"] @ KERNEL + BIAS, 0)}
