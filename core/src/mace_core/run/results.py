"""Holds what running a built library shows: times, similarity, and why a model could not be compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mace_core.api import MEASURED
from mace_core.ir import Array
from mace_core.json_types import Json, JsonObject
from mace_core.run.similarity import Similarity


@dataclass(frozen=True)
class SessionResult:
    """What a model computed in one session.

    outputs: by name, each with a leading axis of samples.  devices: what computed each part, in words of the
    library.
    """

    outputs: Mapping[str, Array]
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerTime:
    """The shortest time of one layer over all rounds, nanoseconds.

    number: of the layer in the report.  is_of_device: whether the device measured it; otherwise the
    processor did, with the launch and the copy of the result where another device computed it.
    """

    name: str
    kernel: str
    ns: int
    number: int = -1
    is_of_device: bool = False

    @classmethod
    def of_json(cls, printed: JsonObject) -> LayerTime:
        """Read a layer of what the program mace_benchmark printed."""
        number = printed.integer("number") if "number" in printed else -1
        is_of_device = "is_of_device" in printed and printed.flag("is_of_device")
        return cls(
            printed.string("name"), printed.string("kernel"), printed.integer("ns"), number, is_of_device
        )


@dataclass(frozen=True)
class Timing:
    """The times of one model, nanoseconds of each round.

    timing: what the times are, see `Runner.timing`.
    framework, framework_ns: the model's own framework and its times on the same inputs; empty where it was
    not asked for.
    device: what computed the first part, in words of the library; "" if unknown.
    devices: what computed each part.  units: of the device of each part, 0 where unknown.
    """

    model: str
    ns: tuple[float, ...]
    threads: int = 1
    layers: tuple[LayerTime, ...] = ()
    timing: str = MEASURED
    target: str = ""
    framework: str = ""
    framework_ns: tuple[float, ...] = ()
    device: str = ""
    devices: tuple[str, ...] = ()
    units: tuple[int, ...] = ()

    @property
    def median(self) -> float:
        """Nanoseconds of the round in the middle."""
        return statistics.median(self.ns)

    @property
    def ratio(self) -> float | None:
        """Our median over the framework's; below 1 we are faster. None where the framework was not timed."""
        return self.median / statistics.median(self.framework_ns) if self.framework_ns else None

    @classmethod
    def of_json(cls, printed: JsonObject, timing: str, target: str) -> Timing:
        """Read what the program mace_benchmark printed."""
        layers = tuple(map(LayerTime.of_json, printed.objects("layers") if "layers" in printed else ()))
        model, rounds, threads = printed.string("model"), printed.numbers("ns"), printed.integer("threads")
        device = printed.string("device") if "device" in printed else ""
        devices = printed.strings("devices") if "devices" in printed else ()
        units = printed.integers("units") if "units" in printed else ()
        return cls(
            model, rounds, threads, layers, timing, target, device=device, devices=devices, units=units
        )


@dataclass(frozen=True)
class Validation:
    """The validation of one model of a built library.

    similarity: the worst over all outputs and samples.  accuracy: the share of right labels; None where there
    are none.
    latency_ns: the median of some rounds.  library_bytes: what is shipped.  compared_with: where the expected
    outputs come from.  devices: what computed each part, in words of the library.
    """

    model: str
    target: str
    similarity: Similarity
    accuracy: float | None
    latency_ns: float
    timing: str
    arena_bytes: int
    library_bytes: int
    compared_with: str
    passed: bool
    devices: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return it as one flat object."""
        fields = asdict(self)
        return {**{k: v for k, v in fields.items() if k != "similarity"}, **fields["similarity"]}

    @classmethod
    def of_json(cls, described: JsonObject) -> Validation:
        """Read what `as_json` wrote."""
        has_accuracy = described.values.get("accuracy") is not None
        return cls(
            model=described.string("model"),
            target=described.string("target"),
            similarity=Similarity(*(described.number(key) for key in ("cosine", "sqnr", "error", "pixels"))),
            accuracy=described.number("accuracy") if has_accuracy else None,
            latency_ns=described.number("latency_ns"),
            timing=described.string("timing"),
            arena_bytes=described.integer("arena_bytes"),
            library_bytes=described.integer("library_bytes"),
            compared_with=described.string("compared_with"),
            passed=described.flag("passed"),
            devices=described.strings("devices") if "devices" in described else (),
        )


@dataclass(frozen=True)
class LayerComparison:
    """The comparison of one tensor with the other side.

    stage: "read" for the graph as the frontend made it, computed by the references of the ops, against the
    framework; "computed" for the built library's layers against the references.
    chain: all layers from the model's input to this one.  layer_alone: only this layer, on the operands of
    the other side.
    passed: whether the latter is similar enough.
    """

    model: str
    target: str
    stage: str
    tensor: str
    op: str
    chain: Similarity
    layer_alone: Similarity
    passed: bool = False

    def as_json(self) -> Json:
        """Return it as one flat object; figures of the layer alone begin with fed_."""
        named = {key: getattr(self, key) for key in ("model", "target", "stage", "tensor", "op", "passed")}
        return {
            **named,
            **asdict(self.chain),
            **{f"fed_{key}": value for key, value in asdict(self.layer_alone).items()},
        }


@dataclass(frozen=True)
class Failure:
    """The reason why a model could not be compared."""

    model: str
    target: str
    problem: str
    passed: bool = False

    def as_json(self) -> Json:
        """Return it as one flat object."""
        return asdict(self)


def result_of(described: JsonObject) -> Validation | Failure:
    """Read what `as_json` of a validation or of a failure wrote."""
    if "problem" not in described:
        return Validation.of_json(described)
    model, target, problem = (described.string(key) for key in ("model", "target", "problem"))
    return Failure(model, target, problem, described.flag("passed"))
