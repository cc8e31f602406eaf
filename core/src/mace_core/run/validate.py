"""Validates a built model against stored outputs or against its own framework."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Tensor
from mace_core.report import ModelReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.flash import flash_bytes
from mace_core.run.framework import Framework
from mace_core.run.results import Validation
from mace_core.run.samples import fit_inputs, stored_samples
from mace_core.run.similarity import Similarity, accuracy, numbers
from mace_core.run.steps import STEPS, carried_states, run_steps
from mace_core.run.validation_job import ValidationJob

MIN_COSINE = 0.9999
"""Smallest cosine of a passing model of floats, unless its deployment file asks for less."""

MAX_ERROR = 1e-3
"""Largest error of such a model, as a share of the range of the expected output.

A cosine alone would pass an output with a wrong sign bit in one small element.
"""

RANDOM_SAMPLES = 3
ROUNDS = 20


def validate(job: ValidationJob) -> Validation:
    """Measure a model: similarity to stored outputs or to its framework's, accuracy, latency and sizes."""
    built, model = job.built, job.model
    ports = built.model(model.name)
    outputs, expected, source = outcomes(job)
    described = {t.name: t for t in ports["outputs"]}
    if absent := [name for name in outputs if name not in expected]:
        problem = f"there are no expected values for {', '.join(absent)}"
        raise MaceError(f"model {model.name!r}", problem, "name a file for every output")
    similarity = Similarity.worst(_compare(a, expected[n], described[n]) for n, a in outputs.items())
    share = accuracy(next(iter(outputs.values())), job.labels) if job.labels is not None else None
    times = built.time(model.name, job.threads, ROUNDS)
    figures = built.figures(model.name)
    return Validation(
        model=model.name,
        target=built.programs.name,
        similarity=similarity,
        accuracy=share,
        latency_ns=times.median,
        timing=times.timing,
        arena_bytes=figures.arena_bytes,
        library_bytes=_shipped_bytes(built, model),
        compared_with=source,
        devices=times.devices,
        passed=_is_passed(model, similarity, _is_quantized(figures))
        and (share is None or share >= job.min_accuracy),
    )


def outcomes(job: ValidationJob) -> tuple[Mapping[str, Array], Mapping[str, Array], str]:
    """Return the library's outputs, the expected outputs, and where the latter come from.

    Outputs are by name, each with a leading axis of samples.

    The samples of a model with states are consecutive steps, no matter whether the session or the application
    keeps the states. States with data in the deployment file count as ordinary inputs.
    """
    model, ports = job.model, job.built.model(job.model.name)
    samples = stored_samples(model.inputs, ports["inputs"])
    pairs = carried_states(model, ports["inputs"], ports["outputs"])
    is_carried = bool(pairs) and not any(state in samples for state in pairs)
    is_kept = bool(job.built.figures(model.name).states) and not any(port.data for port in model.outputs)
    if is_carried or is_kept:
        inputs = [tensor for tensor in ports["inputs"] if tensor.name not in pairs]
        steps = samples or random_samples(model, inputs, STEPS)
        return run_steps(job, steps)
    expected = expectation(job)
    return job.built.run(model.name, expected.samples, job.threads), expected.outputs, expected.source


@dataclass(frozen=True)
class Expectation:
    """Samples and the outputs expected for them, by name, each with a leading axis of samples.

    source: where the outputs come from, in words.
    """

    samples: Mapping[str, Array]
    outputs: Mapping[str, Array]
    source: str


def expectation(job: ValidationJob) -> Expectation:
    """Return samples and outputs of the deployment file, else random samples and the framework's outputs."""
    model, ports = job.model, job.built.model(job.model.name)
    samples = stored_samples(model.inputs, ports["inputs"])
    expected = stored_samples(model.outputs, ports["outputs"], "output")
    if samples and expected:
        return Expectation(samples, expected, "stored outputs")
    if expected:
        problem = "has validation_outputs_data without validation_inputs_data"
        raise MaceError(f"model {model.name!r}", problem, "name the inputs of these outputs")
    count = len(next(iter(samples.values()))) if samples else RANDOM_SAMPLES
    others = random_samples(model, [t for t in ports["inputs"] if t.name not in samples])
    samples = fit_inputs(
        ports["inputs"], {**{n: np.resize(a, (count, *a.shape[1:])) for n, a in others.items()}, **samples}
    )
    framework = Framework.of(model, job.registry, job.processes)
    reference = framework.reference()
    each = [framework.run(reference, {n: a[i] for n, a in samples.items()}) for i in range(count)]
    return Expectation(samples, {n: np.stack([e[n] for e in each]) for n in each[0]}, reference.runtime)


def _compare(output: Array, expected: Array, tensor: Tensor) -> Similarity:
    """Compare an output with the expected values, in real numbers also if it is quantized."""
    return Similarity.of(numbers(output, tensor), numbers(expected.reshape(output.shape), tensor))


def random_samples(model: Model, tensors: Sequence[Tensor], count: int = RANDOM_SAMPLES) -> dict[str, Array]:
    """Return random samples by input, each with a leading axis.

    Floats lie within the ranges of the deployment file, quantized integers anywhere in their type.
    """
    rng = np.random.default_rng(0)
    limits = {(p.alias or p.name): p.limits for p in model.inputs}
    samples = {}
    for tensor in tensors:
        shape = (count, *tensor.shape)
        low, high = limits.get(tensor.name, Port.limits)
        if tensor.dtype is DType.BOOL:
            samples[tensor.name] = rng.integers(0, 1, shape, endpoint=True).astype(bool)
        elif tensor.dtype.is_float:
            samples[tensor.name] = rng.uniform(low, high, shape).astype(tensor.dtype.numpy)
        else:
            samples[tensor.name] = rng.integers(
                *_integer_range(tensor, (low, high)), shape, endpoint=True
            ).astype(tensor.dtype.numpy)
    return samples


def _integer_range(tensor: Tensor, limits: tuple[float, float]) -> tuple[int, int]:
    """Return the smallest and the largest integer of random data.

    That is the stated range, else all values of a byte, and 0 and 1 for a wider type: wider integers are
    often indices of rows, and larger ones would be out of range. Quantized integers take all values.
    """
    limits_of_type = np.iinfo(tensor.dtype.numpy)
    if tensor.quant or (limits == Port.limits and tensor.dtype.size == 1):
        return int(limits_of_type.min), int(limits_of_type.max)
    low = max(math.ceil(limits[0]), int(limits_of_type.min))
    high = min(math.floor(limits[1]), int(limits_of_type.max))
    return (max(low, 0), max(high, 0)) if limits == Port.limits else (low, max(low, high))


def _is_passed(model: Model, similarity: Similarity, quantized: bool) -> bool:
    minimum = min_cosine(model, quantized)
    # The limit of the error is for models of floats; who lowers the cosine expects larger errors, too.
    return similarity.cosine > minimum and (similarity.error < MAX_ERROR or minimum < MIN_COSINE)


def min_cosine(model: Model, quantized: bool) -> float:
    """Return the cosine that the deployment file asks for, under "quantize" or under the model's runtime."""
    stated = model.keys.get("validation_threshold")
    table = stated if isinstance(stated, Mapping) else {}
    return float(table.get("quantize" if quantized else model.runtimes[0], MIN_COSINE))


def _is_quantized(figures: ModelReport) -> bool:
    return any(layer.result.quant for layer in figures.layers)


def _shipped_bytes(built: BuiltLibrary, model: Model) -> int:
    """Return the size of what is shipped: the shared library, or the flash that the model's program needs."""
    folder = built.programs.parents[1] / "lib" / built.programs.name
    if libraries := sorted(folder.glob("*.so")):
        return sum(library.stat().st_size for library in libraries)
    firmware = built.programs / f"{model.name}.elf"
    return flash_bytes(firmware) if firmware.is_file() else 0
