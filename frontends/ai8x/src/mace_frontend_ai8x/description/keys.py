"""Defines the keys of the description language, and reads a file of them into frozen objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from mace_core.deployment.faults import Faults
from mace_core.deployment.source import Written, read_source
from mace_frontend_ai8x.checkpoint import Form
from mace_frontend_ai8x.description import values as v
from mace_frontend_ai8x.description.values import Pair
from mace_frontend_ai8x.network import Eltwise, LayerActivation, Operation, Origin, Section

MAX_NUMBER = 1 << 12
"""Larger than any size of the hardware, so that a number beyond its limits is reported as that."""


class NamedOperation(NamedTuple):
    """What `operation` names: a main operation, and an element-wise one before it."""

    operation: Operation
    eltwise: Eltwise | None = None


_PASS = Operation.PASSTHROUGH
ELTWISE: Mapping[str, Eltwise] = {
    "add": Eltwise.ADD,
    "sub": Eltwise.SUB,
    "xor": Eltwise.XOR,
    "bitwisexor": Eltwise.XOR,
    "bitwise_xor": Eltwise.XOR,
    "or": Eltwise.OR,
    "bitwiseor": Eltwise.OR,
    "bitwise_or": Eltwise.OR,
}
OPERATIONS: Mapping[str, NamedOperation] = {
    "conv1d": NamedOperation(Operation.CONV1D),
    "conv2d": NamedOperation(Operation.CONV2D),
    "convtranspose2d": NamedOperation(Operation.CONV_TRANSPOSE2D),
    "none": NamedOperation(_PASS),
    "passthrough": NamedOperation(_PASS),
    "linear": NamedOperation(Operation.LINEAR),
    "fc": NamedOperation(Operation.LINEAR),
    "mlp": NamedOperation(Operation.LINEAR),
    **{word: NamedOperation(_PASS, operation) for word, operation in ELTWISE.items()},
}
ACTIVATIONS: Mapping[str, LayerActivation] = {
    a.value: a for a in (LayerActivation.RELU, LayerActivation.ABS, LayerActivation.NONE)
} | {"": LayerActivation.NONE}
BINARY = 0
"""Value of `quantization` for one bit that stands for -1 and +1."""


@dataclass(frozen=True)
class LayerDescription:
    """One layer as the file states it; None where a default depends on other keys or on the model.

    line: where it begins.  lines: where each of its fields stands.  The other fields are keys of the
    language, whose meaning is that of the vendor's reference.
    """

    line: int
    lines: Mapping[str, int]
    name: str | None = None
    sequence: int = -1
    next_sequence: int | str | None = None
    processors: int = 0
    output_processors: int | None = None
    out_offset: int = 0
    in_offset: int | None = None
    wide: bool = False
    chw: bool = False
    named_operation: NamedOperation | None = None
    eltwise: Eltwise | None = None
    dilation: Pair = (1,)
    groups: int = 1
    pool_first: bool = True
    operands: int | None = None
    activation: LayerActivation = LayerActivation.NONE
    quantization: int | None = None
    output_shift: int | None = None
    kernel_size: Pair | None = None
    stride: Pair = (1,)
    pad: Pair | None = None
    max_pool: Pair | None = None
    avg_pool: Pair | None = None
    pool_dilation: Pair = (1,)
    pool_stride: Pair = (1,)
    in_channels: int | None = None
    in_dim: Pair | None = None
    in_crop: Pair = (0, 0)
    in_sequences: tuple[int | str, ...] | None = None
    out_channels: int | None = None
    streaming: bool = False
    flatten: bool = False
    write_gap: int = 0
    read_gap: int = 0
    bias_group: tuple[int, ...] | None = None
    output: bool = False
    weight_source: int | str | None = None
    buffer_shift: int = 0
    buffer_insert: int = 0
    bypass: bool = False
    output_pad: int | None = None
    read_ahead: bool = False
    calcx4: bool = False
    tcalc: bool | None = None
    snoop_sequence: int | str | None = None
    simulated_sequence: int | str | None = None

    @property
    def label(self) -> str:
        """The name of the layer; without one, a name from its sequence number."""
        return self.name or f"layer{self.sequence}"

    @property
    def title(self) -> str:
        """The layer in messages: its sequence number, and its name if it has one."""
        return f"layer {self.sequence} ({self.name})" if self.name else f"layer {self.sequence}"

    @property
    def operation(self) -> Operation:
        """The main operation; Conv2d where none is named."""
        return self.named_operation.operation if self.named_operation else Operation.CONV2D

    @property
    def weighted(self) -> bool:
        """Whether the parameters hold weights of its own."""
        return self.operation is not Operation.PASSTHROUGH and not self.bypass and self.weight_source is None

    def form(self) -> Form:
        """Return what the layer needs of weights."""
        axes = {Operation.CONV1D: 3, Operation.LINEAR: 2}.get(self.operation, 4)
        bits = self.quantization or (1 if self.quantization == BINARY else 8)
        stated = None if self.quantization is None else bits
        return Form(
            axes, bits, self.quantization == BINARY, self.operation is Operation.CONV_TRANSPOSE2D, stated
        )


@dataclass(frozen=True)
class AreaDescription:
    """A part of data memory: results to unload, or a buffer that keeps its data (which has a name)."""

    line: int
    lines: Mapping[str, int]
    processors: int = 0
    channels: int = 0
    dim: Pair = (1,)
    offset: int = 0
    width: int = 8
    write_gap: int = 0
    name: str = ""


@dataclass(frozen=True)
class Description:
    """A description file.

    layers: in the order of their sequence numbers.
    bias, weights: file names of the arrays of the vendor's tests, which the caller reads.
    """

    path: Path
    line: int = 1
    lines: Mapping[str, int] = field(default_factory=dict)
    arch: str = ""
    dataset: str = ""
    bias: str | None = None
    weights: str | None = None
    output_map: int | None = None
    unload: tuple[AreaDescription, ...] = ()
    data_buffer: tuple[AreaDescription, ...] = ()
    snoop: tuple[int, ...] = ()
    layers: tuple[LayerDescription, ...] = ()

    def forms(self) -> tuple[Form, ...]:
        """Return what the layers with weights need of them, in their order."""
        return tuple(layer.form() for layer in self.layers if layer.weighted)


class Key(NamedTuple):
    """A key: the field that it sets, and the function that reads its value."""

    field: str
    read: v.Reader
    mandatory: bool = False


_OPERATION = Key("named_operation", v.choice(OPERATIONS))
_ACTIVATION = Key("activation", v.choice(ACTIVATIONS))
_POOL = v.pair(1, MAX_NUMBER)
_COUNT = v.integer(1, MAX_NUMBER)

# The vendor's tool accepts several spellings of a key; a description may use any one of them.
LAYER_KEYS: Mapping[str, Key] = {
    "processors": Key("processors", v.mask, mandatory=True),
    "output_processors": Key("output_processors", v.mask),
    "operation": _OPERATION,
    "op": _OPERATION,
    "operator": _OPERATION,
    "convolution": _OPERATION,
    "eltwise": Key("eltwise", v.choice(ELTWISE)),
    "activate": _ACTIVATION,
    "activation": _ACTIVATION,
    "data_format": Key("chw", v.choice({"hwc": False, "little": False, "chw": True, "big": True})),
    "quantization": Key(
        "quantization", v.choice({"1": 1, "2": 2, "4": 4, "8": 8, "bin": BINARY, "binary": BINARY})
    ),
    "output_width": Key("wide", v.choice({"8": False, "32": True})),
    "output_shift": Key("output_shift", v.integer(-MAX_NUMBER, MAX_NUMBER)),
    "kernel_size": Key("kernel_size", v.pair(1, MAX_NUMBER)),
    "stride": Key("stride", v.pair(1, MAX_NUMBER)),
    "pad": Key("pad", v.pair(0, MAX_NUMBER)),
    "dilation": Key("dilation", v.pair(1, MAX_NUMBER)),
    "max_pool": Key("max_pool", _POOL),
    "avg_pool": Key("avg_pool", _POOL),
    "pool_dilation": Key("pool_dilation", _POOL),
    "pool_stride": Key("pool_stride", _POOL),
    "in_dim": Key("in_dim", v.pair(1, MAX_NUMBER)),
    "in_crop": Key("in_crop", v.pair(0, MAX_NUMBER)),
    "in_sequences": Key("in_sequences", v.references),
    "next_sequence": Key("next_sequence", v.reference),
    "snoop_sequence": Key("snoop_sequence", v.reference),
    "simulated_sequence": Key("simulated_sequence", v.reference),
    "weight_source": Key("weight_source", v.reference),
    "bias_group": Key("bias_group", v.groups),
    "bias_quadrant": Key("bias_group", v.groups),
    "name": Key("name", v.text),
    "sequence": Key("sequence", v.integer(0, MAX_NUMBER)),
    "in_offset": Key("in_offset", v.offset),
    "out_offset": Key("out_offset", v.offset),
    "in_channels": Key("in_channels", _COUNT),
    "out_channels": Key("out_channels", _COUNT),
    "groups": Key("groups", _COUNT),
    "conv_groups": Key("groups", _COUNT),
    "operands": Key("operands", v.integer(2, 16)),
    "write_gap": Key("write_gap", v.integer(0, MAX_NUMBER)),
    "read_gap": Key("read_gap", v.integer(0, MAX_NUMBER)),
    "in_skip": Key("read_gap", v.integer(0, MAX_NUMBER)),
    "output_pad": Key("output_pad", v.integer(0, MAX_NUMBER)),
    "buffer_shift": Key("buffer_shift", _COUNT),
    "buffer_insert": Key("buffer_insert", _COUNT),
    "pool_first": Key("pool_first", v.flag),
    "streaming": Key("streaming", v.flag),
    "flatten": Key("flatten", v.flag),
    "output": Key("output", v.flag),
    "bypass": Key("bypass", v.flag),
    "readahead": Key("read_ahead", v.flag),
    "calcx4": Key("calcx4", v.flag),
    "tcalc": Key("tcalc", v.flag),
}

AREA_KEYS: Mapping[str, Key] = {
    "processors": Key("processors", v.mask, mandatory=True),
    "channels": Key("channels", _COUNT, mandatory=True),
    "dim": Key("dim", v.pair(1, MAX_NUMBER), mandatory=True),
    "offset": Key("offset", v.offset, mandatory=True),
}
UNLOAD_KEYS: Mapping[str, Key] = {
    **AREA_KEYS,
    "width": Key("width", v.choice({"8": 8, "32": 32})),
    "write_gap": Key("write_gap", v.integer(0, MAX_NUMBER)),
}
BUFFER_KEYS: Mapping[str, Key] = {**AREA_KEYS, "name": Key("name", v.text, mandatory=True)}

GLOBAL_KEYS: Mapping[str, Key] = {
    "arch": Key("arch", v.text, mandatory=True),
    "dataset": Key("dataset", v.text, mandatory=True),
    "layers": Key("layers", v.items, mandatory=True),
    "bias": Key("bias", v.text),
    "weights": Key("weights", v.text),
    "output_map": Key("output_map", v.mask),
    "unload": Key("unload", v.items),
    "data_buffer": Key("data_buffer", v.items),
    "snoop": Key("snoop", v.words),
}


def parse(path: Path, skipped: int = 0) -> tuple[Description, Faults]:
    """Read a description file; return also the faults of its keys and values.

    skipped: how many of the first layers are not read; the others keep their sequence numbers.
    MaceError if the file cannot be read, is no YAML, or is too large or too deep.
    """
    faults = Faults(path)
    global_fields = _fields(read_source(path, faults), GLOBAL_KEYS, "", faults)
    items = list(enumerate(global_fields.pop("layers", ())))
    if skipped and skipped >= len(items):
        faults.add(
            1,
            f"layers: there are {len(items)}, the first {skipped} are to be skipped",
            "lower skip-yaml-layers",
        )
    layers = [_layer(item, number, faults) for number, item in items[skipped:]]
    for name, keys in (("unload", UNLOAD_KEYS), ("data_buffer", BUFFER_KEYS)):
        areas = global_fields.pop(name, ())
        global_fields[name] = tuple(
            AreaDescription(**_fields(item, keys, f"{name} {n}: ", faults)) for n, item in enumerate(areas)
        )
    description = Description(path=path, layers=_in_sequence(layers, skipped, faults), **global_fields)
    if not description.layers and "layers" in description.lines:
        faults.add(description.lines["layers"], "layers: the list is empty", "describe at least one layer")
    return description, faults


def origin(description: Description) -> Origin:
    """Return where a description states its layers; every spelling of a key leads to its line."""
    layers = {}
    for layer in description.layers:
        written = {
            word: layer.lines[key.field] for word, key in LAYER_KEYS.items() if key.field in layer.lines
        }
        layers[layer.label] = Section(layer.title, layer.line, written)
    areas = {f"unload {number}": area.line for number, area in enumerate(description.unload)}
    return Origin(description.path, layers, {**description.lines, **areas})


def _layer(item: Written, number: int, faults: Faults) -> LayerDescription:
    where = f"layer {number}: "
    if (
        isinstance(item.content, Mapping)
        and "name" in item.content
        and isinstance(item.content["name"].content, str)
    ):
        where = f"layer {number} ({item.content['name'].content}): "
    return LayerDescription(**_fields(item, LAYER_KEYS, where, faults))


def _fields(section: Written, keys: Mapping[str, Key], where: str, faults: Faults) -> dict[str, Any]:
    """Return the fields of one mapping with their lines; its faults are added to `faults`."""
    content = section.content if isinstance(section.content, Mapping) else {}
    if not isinstance(section.content, Mapping):
        faults.add(
            section.line, f"{where}holds no keys", f"write 'key: value' lines; keys are {', '.join(keys)}"
        )
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, value in content.items():
        if name not in keys:
            close = get_close_matches(name.lower(), keys, 1)
            remedy = f"did you mean {close[0]}?" if close else f"keys are {', '.join(keys)}"
            faults.add(value.line, f"{where}unknown key {name!r}", remedy)
            continue
        key = keys[name]
        if key.field in lines:
            faults.add(
                value.line,
                f"{where}{name}: states again what line {lines[key.field]} states",
                "keep one of them",
            )
            continue
        lines[key.field] = value.line
        try:
            fields[key.field] = key.read(value)
        except v.UnreadError as error:
            faults.add(
                value.line, f"{where}{name}: {_show(value)} is not {error}", _remedy(value, str(error))
            )
    for name, key in keys.items():
        if key.mandatory and key.field not in lines:
            faults.add(section.line, f"{where}{name}: is missing", f"write {name}: ...")
    return {"line": section.line, "lines": lines, **fields}


def _show(value: Written) -> str:
    if isinstance(value.content, str):
        return repr(value.content[:60])
    return "a list" if isinstance(value.content, tuple) else "a mapping"


def _remedy(value: Written, expected: str) -> str:
    """Return the most similar of the expected words as the remedy, else a general one."""
    words = expected.removeprefix("one of ").split(", ") if expected.startswith("one of ") else []
    close = get_close_matches(value.content.lower(), words, 1) if isinstance(value.content, str) else []
    return f"did you mean {close[0]}?" if close else "correct the value"


def _in_sequence(
    layers: Sequence[LayerDescription], following: int, faults: Faults
) -> tuple[LayerDescription, ...]:
    """Return the layers in the order of their sequence numbers, each with its number.

    A layer without a number follows the one before it in the file.
    following: the number of the first layer, if it has none of its own.
    """
    numbered: dict[int, LayerDescription] = {}
    for layer in layers:
        number = following if layer.sequence < 0 else layer.sequence
        if number in numbered:
            problem = f"sequence: {number} belongs to the layer in line {numbered[number].line}"
            faults.add(layer.lines.get("sequence", layer.line), problem, "give each layer its own number")
        else:
            numbered[number] = replace(layer, sequence=number)
        following = number + 1
    return tuple(numbered[number] for number in sorted(numbered))
