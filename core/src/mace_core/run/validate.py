"""Does a built model compute what it should, and where it does not, which layer is the first to be wrong."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mace_core.api import Frontend, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Tensor
from mace_core.pipeline import load, normalise
from mace_core.ports import from_framework, to_framework
from mace_core.registry import Registry
from mace_core.run.built import Built
from mace_core.run.files import read_samples
from mace_core.run.flash import flash_bytes
from mace_core.run.reference import execute
from mace_core.run.similarity import Similarity, accuracy, numbers
from mace_core.run.steps import STEPS, public_pairs, run_steps

Row = dict[str, Any]

LEAST_COSINE = 0.9999
LARGEST_ERROR = 1e-3
"""Of the range of the expected output; what a model of floats must keep unless its deployment file asks for less."""

RANDOM_SAMPLES = 3
ROUNDS = 20


@dataclass(frozen=True)
class Question:
    """What to validate: a model of a built library; threads: workers that compute; labels, least: the accuracy it must reach."""

    built: Built
    model: Model
    registry: Registry
    threads: int = 1
    labels: Array | None = None
    least: float = 0.0


def validate(question: Question) -> Row:
    """Figures of a model: similarity to the stored outputs, else to its framework's; accuracy, latency, sizes; whether it passed."""
    built, model = question.built, question.model
    ports = built.model(model.name)
    found, expected = outcomes(question)
    described = {t.name: t for t in ports["outputs"]}
    alike = Similarity.worst(Similarity.of(numbers(a, described[n]), _numbers(expected[n], described[n], a)) for n, a in found.items())
    share = accuracy(next(iter(found.values())), question.labels) if question.labels is not None else None
    times = built.time(model.name, question.threads, ROUNDS)["ns"]
    assert isinstance(times, list)
    figures = built.report["models"][model.name]  # type: ignore[index]  # the report's shape is emit's
    return {
        "model": model.name,
        **asdict(alike),
        "accuracy": share,
        "latency_ns": statistics.median(times),
        "timing": built.runner.timing,
        "arena_bytes": figures["arena_bytes"],
        "library_bytes": _shipped_bytes(built, model),
        "passed": _passed(model, alike, _quantized(figures)) and (share is None or share >= question.least),
    }


def outcomes(question: Question) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what the library and what the framework give, by output, each with a leading axis of samples.

    States that the deployment file names no data for are carried from sample to sample, which are then steps in a row.
    """
    model, ports = question.model, question.built.model(question.model.name)
    samples = stored(model.inputs, ports["inputs"])
    pairs = public_pairs(model)
    if pairs and not any(state in samples for state in pairs):
        inputs = [tensor for tensor in ports["inputs"] if tensor.name not in pairs]
        steps = samples or random_samples(model, inputs, STEPS)
        return run_steps(question, steps, question.registry.frontend(model))
    samples, expected = expectation(question)
    return question.built.run(model.name, samples, question.threads), expected


def expectation(question: Question) -> tuple[dict[str, Array], dict[str, Array]]:
    """Samples and expected outputs by name: those that the deployment file names, else random ones and the framework's outputs."""
    model, ports = question.model, question.built.model(question.model.name)
    samples = stored(model.inputs, ports["inputs"])
    expected = stored(model.outputs, ports["outputs"])
    if samples and expected:
        return samples, expected
    samples = samples or random_samples(model, ports["inputs"])
    frontend, run = framework(model, question.registry)
    count = len(next(iter(samples.values()))) if samples else 1
    each = [_by_framework(run, {n: a[i] for n, a in samples.items()}, model, frontend) for i in range(count)]
    return samples, {n: np.stack([e[n] for e in each]) for n in each[0]}


def stored(ports: tuple[Port, ...], tensors: list[Tensor]) -> dict[str, Array]:
    """The validation data that the deployment file names, by tensor."""
    given = {(p.alias or p.name): p.data for p in ports}
    return {t.name: np.concatenate([read_samples(f) for f in given[t.name]]) for t in tensors if given.get(t.name)}


def framework(model: Model, registry: Registry) -> tuple[Frontend, Reference]:
    """A model's frontend and its own framework; MaceError where that is not installed."""
    frontend = registry.frontend(model)
    run = frontend.reference(model.files, model)
    if run is None:
        raise MaceError(
            f"model {model.name!r}",
            f"no stored outputs, and the framework behind {frontend.name!r} is not installed",
            "name files under validation_inputs_data and validation_outputs_data, or install the framework",
        )
    return frontend, run


def layers(question: Question) -> list[Row]:
    """A row for every tensor that can be compared, in order: first as it was read, beside its framework; then as it was computed.

    stage: "read" for the graph as the frontend made it, computed by the ops' references, against the framework;
    "computed" for the built library's layers against the references.
    """
    model, built = question.model, question.built
    samples, _ = expectation(question)
    sample = {n: a[:1].reshape(t.shape) for t in built.model(model.name)["inputs"] for n, a in samples.items() if n == t.name}
    graph = load(model, question.registry)
    normal = normalise(graph, question.registry)
    rows = _named(model, [*_as_read(question, graph, sample), *_as_computed(normal, sample, built.layers(model.name, sample))])
    least = _least(model, any(t.quant for t in normal.tensors.values()))
    return [{**row, "passed": row["cosine"] >= least} for row in rows]


def _named(model: Model, rows: list[Row]) -> list[Row]:
    """The rows of the tensors under `check_tensors`; all if it names none, MaceError for a name that no row has."""
    names = model.keys.get("check_tensors")
    if not isinstance(names, Sequence) or not names:
        return rows
    wanted = {str(name).removesuffix(":0") for name in names}
    found = [row for row in rows if row["tensor"].removesuffix(":0") in wanted]
    missing = wanted - {row["tensor"].removesuffix(":0") for row in found}
    if missing:
        problem = f"check_tensors: {', '.join(sorted(missing))}: no tensor of the built model or of its framework"
        raise MaceError(f"model {model.name!r}", problem, "`mace validate --layers` without it lists those that can be compared")
    return found


def _as_read(question: Question, graph: Graph, sample: Mapping[str, Array]) -> Iterator[Row]:
    model, values = question.model, execute(graph, sample)
    inner = [n for node in graph.nodes for n in node.outputs]
    frontend = question.registry.frontend(model)
    whole = Model(model.name, model.files, model.platform, inputs=model.inputs, outputs=tuple(Port(n) for n in inner))
    try:
        run = frontend.reference(model.files, whole)
        made = run(to_framework(sample, model, frontend.order)) if run else {}
    except MaceError:  # a framework that does not give its inner tensors
        return
    makers = {o: node for node in graph.nodes for o in node.outputs}
    for name in inner:
        if name in made and made[name].size == values[name].size and made[name].dtype.kind in "fiu":
            described = graph.tensors[name]
            alike = Similarity.of(numbers(values[name], described), _numbers(made[name], described, values[name]))
            yield {"stage": "read", "tensor": name, "op": makers[name].op.name, **asdict(alike)}


def _as_computed(graph: Graph, sample: Mapping[str, Array], found: Mapping[str, Array]) -> Iterator[Row]:
    values = execute(graph, sample)
    for node in graph.nodes:
        for name in node.outputs:
            if name in found and found[name].dtype.kind in "fiu":
                described = graph.tensors[name]
                alike = Similarity.of(numbers(found[name], described), numbers(values[name], described))
                yield {"stage": "computed", "tensor": name, "op": node.op.name, **asdict(alike)}


def _by_framework(run: Reference, sample: Mapping[str, Array], model: Model, frontend: Frontend) -> dict[str, Array]:
    return from_framework(run(to_framework(sample, model, frontend.order)), model, frontend.order)


def _numbers(expected: Array, tensor: Tensor, like: Array) -> Array:
    """Expected values as real numbers: stored ones if they are of the tensor's own type."""
    return numbers(expected.reshape(like.shape), tensor)


def random_samples(model: Model, tensors: Sequence[Tensor], count: int = RANDOM_SAMPLES) -> dict[str, Array]:
    """So many samples by input, each with a leading axis: all that stored integers can be, else numbers within the stated ranges."""
    rng = np.random.default_rng(0)
    limits = {(p.alias or p.name): p.limits for p in model.inputs}
    samples = {}
    for tensor in tensors:
        shape = (count, *tensor.shape)
        if tensor.quant:
            ends = np.iinfo(tensor.dtype.numpy)
            samples[tensor.name] = rng.integers(ends.min, ends.max, shape, endpoint=True).astype(tensor.dtype.numpy)
        else:
            samples[tensor.name] = rng.uniform(*limits.get(tensor.name, (-1.0, 1.0)), shape).astype(tensor.dtype.numpy)
    return samples


def _passed(model: Model, alike: Similarity, quantized: bool) -> bool:
    least = _least(model, quantized)
    return alike.cosine > least and (alike.error < LARGEST_ERROR or least < LEAST_COSINE)


def _least(model: Model, quantized: bool) -> float:
    """The cosine that the deployment file asks for: of quantized models, else of the model's runtime."""
    given = model.keys.get("validation_threshold")
    table = given if isinstance(given, Mapping) else {}
    return float(table.get("quantize" if quantized else model.runtimes[0], LEAST_COSINE))


def _quantized(figures: Mapping[str, Any]) -> bool:
    return any("scale" in layer for layer in figures["layers"])


def _shipped_bytes(built: Built, model: Model) -> int:
    """How large what is shipped is: the shared library, or what of the model's own program lies in flash."""
    folder = built.programs.parents[1] / "lib" / built.programs.name
    if libraries := sorted(folder.glob("*.so")):
        return sum(library.stat().st_size for library in libraries)
    firmware = built.programs / f"{model.name}.elf"
    return flash_bytes(firmware) if firmware.is_file() else 0
