"""Holds what running a built library shows: times, similarity, and why a model could not be compared."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass

from mace_core.api import MEASURED
from mace_core.json_types import Json
from mace_core.run.similarity import Similarity


@dataclass(frozen=True)
class LayerTime:
    """The shortest time of one layer over all rounds, nanoseconds."""

    name: str
    kernel: str
    ns: int


@dataclass(frozen=True)
class Timing:
    """The times of one model, nanoseconds of each round.

    timing: what the times are, see `Runner.timing`.
    framework, framework_ns: the model's own framework and its times on the same inputs; empty where it was
    not asked for.
    """

    model: str
    ns: tuple[float, ...]
    threads: int = 1
    layers: tuple[LayerTime, ...] = ()
    timing: str = MEASURED
    target: str = ""
    framework: str = ""
    framework_ns: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Nanoseconds of the round in the middle."""
        return statistics.median(self.ns)

    @property
    def ratio(self) -> float | None:
        """Our median over the framework's; below 1 we are faster. None where the framework was not timed."""
        return self.median / statistics.median(self.framework_ns) if self.framework_ns else None

    @classmethod
    def of_json(cls, printed: Json, timing: str, target: str) -> Timing:
        """Read what the program mace_benchmark printed."""
        layers = tuple(LayerTime(**layer) for layer in printed.get("layers", ()))
        return cls(printed["model"], tuple(printed["ns"]), printed["threads"], layers, timing, target)


@dataclass(frozen=True)
class Validation:
    """The validation of one model of a built library.

    similarity: the worst over all outputs and samples.  accuracy: the share of right labels; None where there
    are none.
    latency_ns: the median of some rounds.  library_bytes: what is shipped.  compared_with: where the expected
    outputs come from.
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

    def as_json(self) -> Json:
        """Return it as one flat object."""
        fields = asdict(self)
        return {**{k: v for k, v in fields.items() if k != "similarity"}, **fields["similarity"]}

    @classmethod
    def of_json(cls, described: Json) -> Validation:
        """Read what `as_json` wrote."""
        figures = {key: described[key] for key in ("cosine", "sqnr", "error", "pixels")}
        others = {key: value for key, value in described.items() if key not in figures}
        return cls(similarity=Similarity(**figures), **others)


@dataclass(frozen=True)
class LayerComparison:
    """The comparison of one tensor with the other side.

    stage: "read" for the graph as the frontend made it, computed by the references of the ops, against the
    framework; "computed" for the built library's layers against the references.
    chain: from the model's input on.  alone: this layer alone, on the operands of the other side.  passed:
    whether that is right.
    """

    model: str
    target: str
    stage: str
    tensor: str
    op: str
    chain: Similarity
    alone: Similarity
    passed: bool = False

    def as_json(self) -> Json:
        """Return it as one flat object; figures of the layer alone begin with fed_."""
        named = {key: getattr(self, key) for key in ("model", "target", "stage", "tensor", "op", "passed")}
        return {
            **named,
            **asdict(self.chain),
            **{f"fed_{key}": value for key, value in asdict(self.alone).items()},
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


def result_of(described: Json) -> Validation | Failure:
    """Read what `as_json` of a validation or of a failure wrote."""
    return Failure(**described) if "problem" in described else Validation.of_json(described)
