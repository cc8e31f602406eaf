"""Does a built model compute what it should, and where it does not, which layer is the first to be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Tensor
from mace_core.registry import Registry
from mace_core.report import ModelReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.flash import flash_bytes
from mace_core.run.framework import Framework
from mace_core.run.results import Validation
from mace_core.run.samples import fit_inputs, stored
from mace_core.run.similarity import Similarity, accuracy, numbers
from mace_core.run.steps import STEPS, carried_states, run_steps

LEAST_COSINE = 0.9999
LARGEST_ERROR = 1e-3
"""Of the range of the expected output.

What a model of floats must keep unless its deployment file asks for less.
"""

RANDOM_SAMPLES = 3
ROUNDS = 20


@dataclass(frozen=True)
class ValidationJob:
    """What to validate: a model of a built library; threads: workers that compute.

    labels, least: the accuracy it must reach.
    """

    built: BuiltLibrary
    model: Model
    registry: Registry
    threads: int = 1
    labels: Array | None = None
    least: float = 0.0


def validate(job: ValidationJob) -> Validation:
    """Figures of a model: similarity to the stored outputs, else to its framework's.

    accuracy, latency, sizes; whether it passed.
    """
    built, model = job.built, job.model
    ports = built.model(model.name)
    found, expected, source = outcomes(job)
    described = {t.name: t for t in ports["outputs"]}
    absent = [name for name in found if name not in expected]
    if absent:
        raise MaceError(
            f"model {model.name!r}",
            f"nothing to compare {', '.join(absent)} with",
            "name files for every output",
        )
    alike = Similarity.worst(_alike(a, expected[n], described[n]) for n, a in found.items())
    share = accuracy(next(iter(found.values())), job.labels) if job.labels is not None else None
    times = built.time(model.name, job.threads, ROUNDS)
    figures = built.figures(model.name)
    return Validation(
        model=model.name,
        target=built.programs.name,
        similarity=alike,
        accuracy=share,
        latency_ns=times.median,
        timing=times.timing,
        arena_bytes=figures.arena_bytes,
        library_bytes=_shipped_bytes(built, model),
        compared_with=source,
        passed=_passed(model, alike, _quantized(figures)) and (share is None or share >= job.least),
    )


def outcomes(job: ValidationJob) -> tuple[Mapping[str, Array], Mapping[str, Array], str]:
    """Return what the library and what the framework give, by output, each with a leading axis of samples.

    And what gave the latter.

    The samples of a model with states are steps in a row, whether the session or the application keeps these.
    States that the deployment file names data for are inputs like others.
    """
    model, ports = job.model, job.built.model(job.model.name)
    samples = stored(model.inputs, ports["inputs"])
    pairs = carried_states(model, ports["inputs"], ports["outputs"])
    is_carried = bool(pairs) and not any(state in samples for state in pairs)
    is_kept = bool(job.built.figures(model.name).states) and not any(port.data for port in model.outputs)
    if is_carried or is_kept:
        inputs = [tensor for tensor in ports["inputs"] if tensor.name not in pairs]
        steps = samples or random_samples(model, inputs, STEPS)
        return run_steps(job, steps)
    wanted = expectation(job)
    return job.built.run(model.name, wanted.samples, job.threads), wanted.outputs, wanted.source


@dataclass(frozen=True)
class Expectation:
    """What a model is given and what it should give, by name, each with a leading axis of samples.

    source: where the outputs come from, in words.
    """

    samples: Mapping[str, Array]
    outputs: Mapping[str, Array]
    source: str


def expectation(job: ValidationJob) -> Expectation:
    """Samples and expected outputs: those that the deployment file names, else random ones and the framework's outputs."""
    model, ports = job.model, job.built.model(job.model.name)
    samples = stored(model.inputs, ports["inputs"])
    expected = stored(model.outputs, ports["outputs"], "output")
    if samples and expected:
        return Expectation(samples, expected, "stored outputs")
    if expected:
        problem = "validation_outputs_data is there, and no validation_inputs_data"
        raise MaceError(f"model {model.name!r}", problem, "name the inputs that belong to the outputs")
    count = len(next(iter(samples.values()))) if samples else RANDOM_SAMPLES
    others = random_samples(model, [t for t in ports["inputs"] if t.name not in samples])
    samples = fit_inputs(
        ports["inputs"], {**{n: np.resize(a, (count, *a.shape[1:])) for n, a in others.items()}, **samples}
    )
    framework = Framework.of(model, job.registry)
    reference = framework.reference()
    each = [framework.run(reference, {n: a[i] for n, a in samples.items()}) for i in range(count)]
    return Expectation(samples, {n: np.stack([e[n] for e in each]) for n in each[0]}, reference.runtime)


def _alike(found: Array, expected: Array, tensor: Tensor) -> Similarity:
    """How alike an output is to what was expected: numbers, or stored integers of the tensor's own type."""
    return Similarity.of(numbers(found, tensor), numbers(expected.reshape(found.shape), tensor))


def random_samples(model: Model, tensors: Sequence[Tensor], count: int = RANDOM_SAMPLES) -> dict[str, Array]:
    """So many samples by input, each with a leading axis: all that stored integers can be, else numbers within the stated ranges."""
    rng = np.random.default_rng(0)
    limits = {(p.alias or p.name): p.limits for p in model.inputs}
    samples = {}
    for tensor in tensors:
        shape = (count, *tensor.shape)
        least, most = limits.get(tensor.name, Port.limits)
        if tensor.dtype is DType.BOOL:
            samples[tensor.name] = rng.integers(0, 1, shape, endpoint=True).astype(bool)
        elif tensor.dtype.is_float:
            samples[tensor.name] = rng.uniform(least, most, shape).astype(tensor.dtype.numpy)
        else:
            samples[tensor.name] = rng.integers(*_whole(tensor, (least, most)), shape, endpoint=True).astype(
                tensor.dtype.numpy
            )
    return samples


def _whole(tensor: Tensor, limits: tuple[float, float]) -> tuple[int, int]:
    """The least and greatest integer of random data: the stated range, else all of a byte, and 0 and 1 of a wider type.

    Wider integers may count the rows of a table; stored integers stand for numbers of a range of their own,
    and take all values.
    """
    ends = np.iinfo(tensor.dtype.numpy)
    if tensor.quant or (limits == Port.limits and tensor.dtype.size == 1):
        return int(ends.min), int(ends.max)
    low = max(math.ceil(limits[0]), int(ends.min))
    high = min(math.floor(limits[1]), int(ends.max))
    return (max(low, 0), max(high, 0)) if limits == Port.limits else (low, max(low, high))


def _passed(model: Model, alike: Similarity, quantized: bool) -> bool:
    least = least_cosine(model, quantized)
    return alike.cosine > least and (alike.error < LARGEST_ERROR or least < LEAST_COSINE)


def least_cosine(model: Model, quantized: bool) -> float:
    """The cosine that the deployment file asks for: of quantized models, else of the model's runtime."""
    given = model.keys.get("validation_threshold")
    table = given if isinstance(given, Mapping) else {}
    return float(table.get("quantize" if quantized else model.runtimes[0], LEAST_COSINE))


def _quantized(figures: ModelReport) -> bool:
    return any(layer.result.quant for layer in figures.layers)


def _shipped_bytes(built: BuiltLibrary, model: Model) -> int:
    """How large what is shipped is: the shared library, or what of the model's own program lies in flash."""
    folder = built.programs.parents[1] / "lib" / built.programs.name
    if libraries := sorted(folder.glob("*.so")):
        return sum(library.stat().st_size for library in libraries)
    firmware = built.programs / f"{model.name}.elf"
    return flash_bytes(firmware) if firmware.is_file() else 0
