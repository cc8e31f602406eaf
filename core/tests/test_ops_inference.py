"""Shape and type inference of the core's operators: what each takes, up to its limits, and every refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mace_core.attributes import AttributeValues, fields_of
from mace_core.ir import DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.op import OpError

TABLE = Path(__file__).with_suffix(".txt")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")


def read_attributes(text: str) -> AttributeValues:
    return eval(f"dict({text})", {"inf": float("inf"), "dict": dict})  # type: ignore[no-any-return]


def read_tensor(name: str, text: str) -> Tensor | None:
    if text == "-":
        return None
    result = TENSOR.fullmatch(text)
    assert result, f"{text!r} is no tensor"
    return Tensor(name, DType(result[1]), tuple(int(size) for size in result[2].split(",") if size))


def read_table() -> dict[str, list[tuple[str, str]]]:
    """Return for each section the row's inputs and attributes, and their outcome: "-> " or "!! " and a text."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            given, arrow, outcome = re.split(r" +(->|!!) ?", line, maxsplit=1)
            rows.append((given, f"{arrow} {outcome}"))
    return sections


def infer(name: str, inputs: str, values: AttributeValues) -> str:
    op = core_ops()[name]
    names = [*op.inputs, *[op.inputs[-1]] * 9]
    tensors = [read_tensor(n.rstrip("?*"), text) for n, text in zip(names, inputs.split(), strict=False)]
    try:
        specs = op.infer(tensors, op.complete(values))
    except OpError as error:
        return f"!! {error}"
    return "-> " + " ".join(f"{dtype.value}[{','.join(map(str, shape))}]" for dtype, shape in specs)


SECTIONS = read_table()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition(" ")[0][:40])
def test_inference_of(section: str) -> None:
    names, _, text = section.partition(" ")
    for op in names.split(","):
        outcomes = []
        for row, _ in SECTIONS[section]:
            inputs, _, changed = row.partition(";")
            outcomes.append((row, infer(op, inputs, {**read_attributes(text), **read_attributes(changed)})))
        assert outcomes == SECTIONS[section], op


def test_every_operator_has_a_row_that_is_taken_and_one_that_is_refused() -> None:
    every: dict[str, set[str]] = {"->": set(), "!!": set()}
    for section, rows in SECTIONS.items():
        for _, outcome in rows:
            every[outcome[:2]].update(section.partition(" ")[0].split(","))
    ops = set(core_ops())
    assert (ops - every["->"], ops - every["!!"]) == (set(), {"Identity"})


DEFAULTS = """
ArgMax,ArgMin | keepdims=True, last=False
BatchNorm,InstanceNorm,GroupNorm | epsilon=1e-05
Mod | fmod=False
BitShift | left=True
Conv,ConvTranspose | low=-inf, high=inf, group=1
CumSum,CumProd | exclusive=False, reverse=False
DepthToSpace | mode='DCR'
DFT | axis=-2, inverse=False, onesided=False
Gather,GatherElements | axis=0
GatherND | batch_dims=0
GridSample | mode='linear', padding='zeros', align_corners=False
GRU | direction='forward', activations=(), alphas=(), betas=(), clip=0.0, linear_before_reset=False
LRN | alpha=0.0001, beta=0.75, bias=1.0
LSTM | direction='forward', activations=(), alphas=(), betas=(), clip=0.0, coupled=False, cell_clip=0.0
MatMul | low=-inf, high=inf
DecodeBoxes | variances=(1.0, 1.0, 1.0, 1.0)
NonMaxSuppression | iou_threshold=0.0, score_threshold=-inf, center=False
CombinedNonMaxSuppression | iou_threshold=0.5, score_threshold=-inf, candidates=0
LayerNorm,RMSNorm | axis=-1, epsilon=1e-05
OneHot,Softmax,LogSoftmax,Hardmax | axis=-1
Pad | mode='constant', value=0.0
DeformIm2Col | groups=1
MaxPoolIndices,MaxPool | ceil=False
AveragePool | ceil=False, count_pad=False
LpPool | ceil=False, p=2
ReduceSum,ReduceMean,ReduceMax,ReduceMin,ReduceProd,ReduceL1,ReduceL2,ReduceLogSum,ReduceLogSumExp,ReduceSumSquare | keepdims=True
Resize | mode='nearest', coordinates='half_pixel', nearest='round_prefer_floor', cubic_a=-0.75, exclude_outside=False, extrapolation=0.0, roi=()
ReverseSequence | batch_axis=1, time_axis=0
RNN | direction='forward', activations=(), alphas=(), betas=(), clip=0.0
RoiAlign | scale=1.0, samples=0, mode='avg', half_pixel=True
RoiMaxPool | scale=1.0
ScatterElements | axis=0, reduction='none'
ScatterND | reduction='none'
LpNorm | axis=-1, p=2
TopK | axis=-1, largest=True
TreeEnsemble | aggregate='sum'
Trilu | k=0, upper=True
Elu,Celu,ThresholdedRelu,Swish | alpha=1.0
Selu | alpha=1.6732631921768188, gamma=1.0507010221481323
LeakyRelu | alpha=0.01
HardSigmoid | alpha=0.2, beta=0.5
Shrink | bias=0.0, lambd=0.5
Gelu | approximate='none'
Clip | min=-inf, max=inf
IsInf | negative=True, positive=True
"""  # noqa: E501
"""Attributes of ops that need not be stated: the defaults of the ONNX operators of these names where there are such."""


def test_defaults_of_attributes() -> None:
    stated: dict[str, str] = {}
    for line in DEFAULTS.strip().splitlines():
        names, _, text = line.partition(" | ")
        stated.update(dict.fromkeys(names.split(","), text))
    results = {}
    for op in core_ops().values():
        optional = [field for field in fields_of(op.attrs).values() if not field.is_required]
        if optional:
            results[op.name] = ", ".join(f"{field.name}={field.default!r}" for field in optional)
    assert results == stated


def test_an_op_is_clamped_by_either_limit() -> None:
    inf = float("inf")
    limits = [(-inf, inf), (0.0, inf), (-inf, 6.0), (0.0, 6.0)]
    assert [ClampAttributes(low, high).is_clamped for low, high in limits] == [False, True, True, True]
