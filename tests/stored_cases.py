"""The cases of `compare_outputs.py`: deployments of the real models and of the vendor's networks, and the inputs of their models.

Only `store` imports this module: it may use this version's Python interfaces.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "targets/max78000/tests")]

from manifest import MODELS, Entry, entries  # noqa: E402  # the path is set above
from references import Reference, references  # noqa: E402

from mace_frontend_ai8x.checkpoint.state import CheckpointState  # noqa: E402
from mace_frontend_ai8x.checkpoint.write import write_state  # noqa: E402

Arrays = dict[str, np.ndarray[Any, Any]]

ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in entries()}
MAX_SAMPLES = 4

EMULATED = ("model_onnx", "kws_int8_tflite", "trained_lstm_int8_tflite", "det2_caffemodel")
"""Small models of all kinds, for the levels of other processors."""

TOGETHER = ("model_onnx", "ic_int8_tflite", "ad_fp32_tflite", "trained_lstm_fp32_tflite")
"""Models of one library, which share kernels."""

AS_STORED = "version_rfb_320_onnx"
"""A model with `weights: as-stored`."""

AUTOMATIC = ("digits", "ic_int8_tflite", "kws_int8_tflite", "ad_int8_tflite")
"""Models that the MAX7800x targets lay out by themselves."""

UNITS = 48
"""So many of the vendor's small networks, spread evenly over all by name."""

OPTIONS: Sequence[Mapping[str, object]] = (
    {"table_driven": True},
    {"softmax": True, "timer": 0},
    {"riscv": True},
    {"no_mexpress": True, "avg_pool_rounding": True},
    {"compact_weights": True},
)
"""Options of the first of the vendor's networks, one project each."""


def write_cases(folder: Path, pattern: str) -> Iterator[Path]:
    """Write each case's deployment file and description; its folder."""
    (folder / "files").mkdir(exist_ok=True)
    for path in (*ROOT.glob("models/digits/*.npy"), ROOT / "models/digits/digits.onnx"):
        shutil.copy(path, folder / "files")
    for name, kind, target, deployment in _all_cases(folder):
        if not fnmatch.fnmatch(name, pattern):
            continue
        case = folder / name
        case.mkdir(exist_ok=True)
        (case / "deployment.yml").write_text(yaml.safe_dump(deployment, sort_keys=False))
        description = {"kind": kind, "target": target, "models": [*deployment["models"]]}
        (case / "case.json").write_text(json.dumps(description))
        yield case


Described = tuple[str, str, str, dict[str, Any]]


def _all_cases(folder: Path) -> Iterator[Described]:
    for name in ("digits", *ENTRIES):
        yield name, "library", "host", _deployment(name)
    for abi in ("arm64-v8a", "armeabi-v7a"):
        for name in ("digits", *EMULATED):
            yield f"{name}-{abi}", "library", abi, _deployment(name)
    yield "together", "library", "host", _deployment(*TOGETHER)
    as_stored = _deployment(AS_STORED)
    as_stored["models"][AS_STORED]["weights"] = "as-stored"
    yield f"{AS_STORED}-as_stored", "library", "host", as_stored
    for device in ("max78000", "max78002"):
        for name in AUTOMATIC:
            yield f"{name}-{device}", "project", f"cortex-m4+{device}", _automatic(folder, name, device)
    yield from _vendor_cases(folder)


def _deployment(*names: str) -> dict[str, Any]:
    models = {}
    for name in names:
        models[name] = _digits() if name == "digits" else yaml.safe_load(ENTRIES[name].yaml())[name]
    return {"library_name": "compared", "models": models}


def _digits() -> dict[str, Any]:
    """The shipped example; `store` copies its files, so that a later version compares with the same."""
    model: dict[str, Any] = yaml.safe_load((ROOT / "models/digits/digits.yml").read_text())["models"][
        "digits"
    ]
    (graph,) = model["subgraphs"]
    graph |= {key: f"../files/{graph[key]}" for key in ("validation_inputs_data", "validation_outputs_data")}
    return {**model, "model_file_path": "../files/digits.onnx"}


def _automatic(folder: Path, name: str, device: str) -> dict[str, Any]:
    """A model for a device, calibrated with its golden inputs."""
    deployment = _deployment(name)
    model = deployment["models"][name]
    model["runtime"] = device
    if name != "digits":
        samples = folder / f"files/samples_{name}.npy"
        np.save(samples, ENTRIES[name].golden["in_0_0"])
        model["subgraphs"] = [{**model["subgraphs"][0], "validation_inputs_data": str(samples)}]
    return deployment


def _vendor_cases(folder: Path) -> Iterator[Described]:
    networks = [r for r in references() if r.path.parent.parent.name != "unit"]
    units = [r for r in references() if r.path.parent.parent.name == "unit"]
    sampled = units[:: max(1, len(units) // UNITS)]
    # A checkpoint holds some.
    with_weights = [r for r in sampled if any(layer.weights for layer in r.network.layers)]
    for reference in (*networks, *with_weights):
        yield _vendor_case(folder, reference, reference.name, {})
    for options in OPTIONS:
        yield _vendor_case(folder, networks[0], "-".join((networks[0].name, *options)), options)


def _vendor_case(folder: Path, reference: Reference, name: str, options: Mapping[str, object]) -> Described:
    device = reference.device.name.lower()
    place, content = reference.path.parent, reference.content
    checkpoint = place / content["checkpoint"] if "checkpoint" in content else _checkpoint(folder, reference)
    fifo = {"fifo": True} if reference.options.fifo else {}
    model = {
        "platform": "ai8x",
        "model_file_path": str(place / content["network"]),
        "weight_file_path": str(checkpoint),
        "runtime": device,
        "target_options": {device: {**_options(content["options"]), **fifo, **options}},
        "subgraphs": [{"input_tensors": "input", "validation_inputs_data": str(place / content["sample"])}],
    }
    return name, "project", f"cortex-m4+{device}", {"library_name": "compared", "models": {"network": model}}


def _options(arguments: Sequence[str]) -> dict[str, object]:
    """Arguments of the vendor's command line as target options."""
    options: dict[str, object] = {}
    for argument in arguments:
        if argument.startswith("--"):
            key = argument[2:].replace("-", "_")
            options[key] = True
        else:
            options[key] = int(argument)
    return options


def _checkpoint(folder: Path, reference: Reference) -> Path:
    """The weights of a small network, which are arrays, as a checkpoint."""
    path = folder / f"files/{reference.name}.pth.tar"
    if path.exists():
        return path
    tensors = {}
    for number, layer in enumerate(reference.network.layers):
        if layer.weights is None:
            continue
        bits = layer.weights.bits
        tensors[f"layer{number}.op.weight"] = layer.weights.values.astype(np.float32)
        if layer.bias is not None:
            tensors[f"layer{number}.op.bias"] = (layer.bias * (1 << bits - 1)).astype(np.float32)
        tensors[f"layer{number}.weight_bits"] = np.array([bits], np.float32)
    write_state(CheckpointState(path, tensors), path)
    return path


def make_inputs(model: str, ports: Sequence[Mapping[str, Any]]) -> Arrays:
    """The golden inputs of a model, few samples of them; random numbers from a seed where there are none."""
    entry = ENTRIES.get(model)
    if entry is not None and entry.golden_file:
        inputs: Arrays = {}
        samples = [s for s in range(entry.samples) if _fits(entry, ports, s)][:MAX_SAMPLES]
        for i, port in enumerate(ports):
            inputs[port["name"]] = np.stack(
                [entry.golden[f"in_{i}_{s}"].reshape(port["shape"]) for s in samples]
            )
        return inputs
    return {port["name"]: _random(port, np.random.default_rng(i)) for i, port in enumerate(ports)}


def _fits(entry: Entry, ports: Sequence[Mapping[str, Any]], sample: int) -> bool:
    return all(
        entry.golden[f"in_{i}_{sample}"].size == np.prod(port["shape"]) for i, port in enumerate(ports)
    )


def _random(port: Mapping[str, Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype = np.dtype(NAMES.get(port["dtype"], port["dtype"]))
    shape = (2, *port["shape"])
    if dtype.kind == "f":
        return generator.uniform(-1, 1, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


NAMES = {
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    **{f"{sign}{bits}": f"{sign}{bits // 8}" for sign in "iu" for bits in (8, 16, 32, 64)},
}

__all__ = ["MODELS", "make_inputs", "write_cases"]
