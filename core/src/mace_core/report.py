"""Reports what a build knows of its models, typed and as JSON, for validation and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from types import MappingProxyType

from mace_core.ir import DType, Quant, Tensor
from mace_core.json_types import Json, JsonObject, JsonValue
from mace_core.part import Part, PartFigures
from mace_core.plan import Plan, Transfer
from mace_core.refusal import NodeRefusal, Refusal
from mace_core.selection import Selection


def tensor_json(tensor: Tensor) -> Json:
    """Describe a tensor; scale and zero point only where one pair serves all of it."""
    quant = tensor.quant
    quantization = (
        {"scale": quant.scale[0], "zero_point": quant.zero_point[0]} if quant and quant.axis is None else {}
    )
    return {"name": tensor.name, "dtype": tensor.dtype.value, "shape": list(tensor.shape), **quantization}


def tensor_of(described: JsonObject) -> Tensor:
    """Return the tensor that `tensor_json` described."""
    quant = None
    if "scale" in described:
        quant = Quant.of(described.number("scale"), described.integer("zero_point"))
    dtype = DType(described.string("dtype"))
    return Tensor(described.string("name"), dtype, described.integers("shape"), quant)


@dataclass(frozen=True)
class LayerReport:
    """One step whose result can be read: a kernel call, or a layer of a device.

    sources: the nodes of the model's own file that it computes.
    levels: the only instruction-set levels that make the call; () for all.  proof: that of the call.
    """

    node: str
    result: Tensor
    kernel: str = ""
    sources: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    proof: str = ""

    def as_json(self) -> Json:
        """Return it as JSON has it: the result's description beside the names."""
        levels = {"levels": list(self.levels)} if self.levels else {}
        proof = {"proof": self.proof} if self.proof else {}
        return {
            "node": self.node,
            "kernel": self.kernel,
            "sources": list(self.sources),
            **levels,
            **proof,
            **tensor_json(self.result),
        }

    @classmethod
    def of_json(cls, described: JsonObject) -> LayerReport:
        """Read what `as_json` wrote."""
        levels = described.strings("levels") if "levels" in described else ()
        return cls(
            described.string("node"),
            tensor_of(described),
            described.string("kernel"),
            described.strings("sources"),
            levels,
            described.string("proof") if "proof" in described else "",
        )


@dataclass(frozen=True)
class PartReport:
    """One part: its target, its nodes, and the driver that runs it ("" for the processor itself)."""

    name: str
    target: str
    nodes: tuple[str, ...]
    driver: str = ""

    @classmethod
    def of_json(cls, described: JsonObject) -> PartReport:
        """Read what `asdict` made of it."""
        name, target, driver = (described.string(key) for key in ("name", "target", "driver"))
        return cls(name, target, described.strings("nodes"), driver)


@dataclass(frozen=True)
class StateReport:
    """One state that sessions keep; start: its value before the first run, in words."""

    tensor: Tensor
    start: str

    def as_json(self) -> Json:
        """Return it as JSON has it."""
        return {**tensor_json(self.tensor), "start": self.start}


@dataclass(frozen=True)
class ModelReport:
    """Sizes, interface, layers and decisions of one model.

    arena_bytes: of intermediate tensors; no plan can be smaller than arena_lower_bound.  worker_bytes: for
    each worker.
    spaces: bytes of the arenas on devices, by memory space.  transposes: nodes that only reorder axes.
    fallback_bytes: of the weights that the fallback for the CPU adds to the library.
    states: what sessions keep from run to run, which is neither among inputs nor among outputs.
    selections: nodes that several candidates could compute: what was chosen at each level, and why.
    summary: what targets tell people about a project, or about their parts; details: what they tell
    programs, plain data of their own.
    """

    arena_bytes: int
    arena_lower_bound: int
    worker_bytes: int
    weight_bytes: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layers: tuple[LayerReport, ...]
    parts: tuple[PartReport, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    spaces: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    refusals: tuple[NodeRefusal, ...] = ()
    notes: tuple[str, ...] = ()
    transposes: int = 0
    fallback_bytes: int = 0
    states: tuple[StateReport, ...] = ()
    selections: tuple[Selection, ...] = ()
    summary: str = ""
    details: Json = field(default_factory=dict)

    @classmethod
    def of_json(cls, described: JsonObject) -> ModelReport:
        """Read what `as_json` wrote."""
        spaces = described.object("spaces")
        candidates = described.objects("candidates") if "candidates" in described else ()
        return cls(
            arena_bytes=described.integer("arena_bytes"),
            arena_lower_bound=described.integer("arena_lower_bound"),
            worker_bytes=described.integer("worker_bytes"),
            weight_bytes=described.integer("weight_bytes"),
            transposes=described.integer("transposes"),
            fallback_bytes=described.integer("fallback_bytes"),
            inputs=tuple(map(tensor_of, described.objects("inputs"))),
            outputs=tuple(map(tensor_of, described.objects("outputs"))),
            layers=tuple(map(LayerReport.of_json, described.objects("layers"))),
            parts=tuple(map(PartReport.of_json, described.objects("parts"))),
            transfers=tuple(map(_transfer_of, described.objects("transfers"))),
            spaces={name: spaces.integer(name) for name in spaces.values},
            refusals=tuple(map(refusal_of, described.objects("refusals"))),
            notes=described.strings("notes"),
            states=tuple(
                StateReport(tensor_of(state), state.string("start")) for state in described.objects("states")
            ),
            selections=tuple(map(Selection.of_json, candidates)),
            summary=described.string("summary") if "summary" in described else "",
            details={key: value for key, value in described.values.items() if key not in OWN_KEYS},
        )

    def as_json(self) -> Json:
        """Return it as JSON has it, with the target's own data beside ours.

        No key of it stands for something of ours.
        """
        described: dict[str, JsonValue] = {
            "arena_bytes": self.arena_bytes,
            "arena_lower_bound": self.arena_lower_bound,
            "worker_bytes": self.worker_bytes,
            "weight_bytes": self.weight_bytes,
            "inputs": [tensor_json(t) for t in self.inputs],
            "outputs": [tensor_json(t) for t in self.outputs],
            "calls": sum(bool(layer.kernel) for layer in self.layers),
            "layers": [layer.as_json() for layer in self.layers],
            "parts": [asdict(part) for part in self.parts],
            "transfers": [asdict(transfer) for transfer in self.transfers],
            "spaces": dict(self.spaces),
            "refusals": [refusal_json(refusal) for refusal in self.refusals],
            "notes": list(self.notes),
            "transposes": self.transposes,
            "fallback_bytes": self.fallback_bytes,
            "states": [state.as_json() for state in self.states],
        }
        if self.summary:
            described["summary"] = self.summary
        if self.selections:
            described["candidates"] = [selection.as_json() for selection in self.selections]
        return {**self.details, **described}


def refusal_json(refusal: NodeRefusal) -> Json:
    """Describe one line of the ledger of refusals."""
    return {"node": refusal.node, "op": refusal.op, "target": refusal.target, **asdict(refusal.refusal)}


def refusal_of(described: JsonObject) -> NodeRefusal:
    """Return the refusal that `refusal_json` described."""
    refusal = Refusal(*(described.string(key) for key in ("code", "reason", "remedy")))
    return NodeRefusal(described.string("node"), described.string("op"), described.string("target"), refusal)


def _transfer_of(described: JsonObject) -> Transfer:
    source, destination = described.string("source"), described.string("destination")
    return Transfer(described.string("tensor"), source, destination, described.integer("size"))


OWN_KEYS = frozenset(field.name for field in fields(ModelReport)) | {"calls", "candidates"}
"""The keys of a model in the report file that are ours; others are a target's own."""


@dataclass(frozen=True)
class LibraryReport:
    """The reports of all models of a library by name, and the notes of the deployment file."""

    models: Mapping[str, ModelReport]
    notes: Sequence[str] = ()

    @classmethod
    def of_json(cls, described: JsonObject) -> LibraryReport:
        """Read what `as_json` wrote."""
        models = described.object("models")
        reports = {name: ModelReport.of_json(models.object(name)) for name in models.values}
        return cls(reports, described.strings("notes"))

    def as_json(self) -> Json:
        """Return it as the report file has it."""
        return {
            "models": {name: model.as_json() for name, model in self.models.items()},
            "notes": list(self.notes),
        }


def report_plan(plan: Plan) -> ModelReport:
    """Describe a plan: what is known of a model without the decisions that led to it."""
    program = plan.program
    parts = tuple(PartReport(part.name, part.target, part.nodes, part.driver) for part in plan.parts)
    project = next((part.figures for part in plan.parts if part.figures.layers), None)
    details = dict(chain.from_iterable(_list_details(part) for part in plan.parts))
    if project:
        return _report_project(project, parts, project.summary, details)
    summaries = [f"{part.name}: {part.figures.summary}" for part in plan.parts if part.figures.summary]
    layers = [
        LayerReport(c.node, program.tensors[c.writes[0]], c.kernel.name, c.sources, c.levels, c.proof)
        for c in program.calls
    ]
    for part in plan.parts:
        layers += [
            LayerReport(layer.node, layer.result, layer.kernel, layer.sources) for layer in part.layers
        ]
    return ModelReport(
        arena_bytes=plan.host.bytes,
        arena_lower_bound=plan.host.bound,
        worker_bytes=plan.worker_bytes,
        weight_bytes=plan.weight_bytes,
        fallback_bytes=plan.fallback.weight_bytes if plan.fallback else 0,
        inputs=tuple(program.tensors[name] for name in plan.inputs),
        outputs=tuple(program.tensors[name] for name in plan.outputs),
        layers=tuple(layers),
        parts=parts,
        transfers=plan.transfers,
        states=tuple(StateReport(program.tensors[state.input], state.start_text) for state in plan.states),
        spaces=_list_spaces(plan),
        selections=plan.selections,
        summary="; ".join(summaries),
        details=details,
    )


def _list_spaces(plan: Plan) -> dict[str, int]:
    """Return the bytes of the arenas besides host memory; "fast" stands for the fast memory of parts."""
    spaces = {name: arena.bytes for name, arena in plan.arenas.items() if name != "host"}
    return {**spaces, "fast": plan.fast.bytes} if plan.fast.bytes else spaces


def _list_details(part: Part) -> Iterable[tuple[str, JsonValue]]:
    """Return what a part tells; under its name where a driver runs it, as others tell the same."""
    details = part.figures.details
    return ((part.name, dict(details)),) if part.driver and details else details.items()


def _report_project(
    figures: PartFigures, parts: tuple[PartReport, ...], summary: str, details: Json
) -> ModelReport:
    return ModelReport(
        arena_bytes=figures.data_bytes,
        arena_lower_bound=figures.data_bytes,
        worker_bytes=0,
        weight_bytes=figures.weight_bytes,
        inputs=figures.inputs,
        outputs=figures.outputs,
        layers=tuple(LayerReport(tensor.name, tensor) for tensor in figures.layers),
        parts=parts,
        summary=summary,
        details=details,
    )


def arena_line(model: ModelReport) -> str:
    """Return the arenas' sizes and the copies between memory spaces, for the build's log."""
    bound = max(model.arena_lower_bound, 1)
    line = f"arena {model.arena_bytes} bytes ({model.arena_bytes / bound:.3f} x the largest live set)"
    for space, size in model.spaces.items():
        line += f", {size} bytes of {space!r} memory"
    if model.transfers:
        copied = sum(transfer.size for transfer in model.transfers)
        line += f", {len(model.transfers)} copies of {copied} bytes"
    return line


def stored_line(details: Json) -> str:
    """Return what `weights: as-stored` changed, for the build's log; "" where it was not asked for."""
    figures = details.get("weights_as_stored")
    if not isinstance(figures, Mapping):
        return ""
    sizes = f"{figures['stored_bytes']} bytes instead of {figures['packed_bytes']}"
    widened = figures["widened_bytes"]
    # Products that read integers need no floats of them in the arena.
    arena = f"widened into at most {widened} bytes of the arena for one call" if widened else "none widened"
    return f"{figures['weights']} weights as stored: {sizes}, {arena}"
