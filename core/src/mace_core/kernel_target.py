"""Targets that compute by calling C kernels: lowering of a region to a program, node by node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from mace_core.api import BuildConfig, Region, Target
from mace_core.attributes import Attributes
from mace_core.call_fusion import fuse_calls, fuse_where
from mace_core.candidates import Candidate, Chooser, lower_by_choice
from mace_core.compact_weights import AS_STORED, Compacted, WideningKernels, compact_weights
from mace_core.ir import DType, Graph, Node, Tensor
from mace_core.joint_results import join_results
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.memory import arena, fits
from mace_core.numerics import Numerics
from mace_core.ops import core_ops
from mace_core.ops.cast import CastAttributes
from mace_core.part import CallsBody, Part, PartFigures
from mace_core.program import Call, Program
from mace_core.quantization import dequantize
from mace_core.refusal import Refusal
from mace_core.tuning import NO_TUNING, Tuning, tuning_of

MAX_DIMENSION = (1 << 31) - 1
"""Maximum dimension of a tensor, because `mace_tensor` of mace.h has int32_t."""


class _TargetLowering(Lowering):
    """A lowering with the rules by which candidates are chosen."""

    def __init__(self, graph: Graph, chooser: Chooser) -> None:
        super().__init__(graph, chooser.parameters(None))
        self.chooser = chooser


class KernelTarget(Target):
    """A target whose regions become programs of kernel calls.

    lowerings: by op, for nodes without quantized tensors.
    quantized: by op, for nodes with a quantized tensor; at least Quantize and Dequantize.
    fixed_point: by op, the same for graphs whose numerics are Numerics.FIXED_POINT; {} for a target that
    cannot round so.
    halves: by op, for nodes whose tensors are all of half precision. What it lacks or refuses is computed in
    floats, between conversions.
    cost_unit: the unit of candidates' costs, such as "multiply-adds" or "estimated cycles".
    calls_c: whether its kernels are C that core compiles, so that portable lowerings of ops can be called.
    If a table has several candidates for an op, the cheapest is taken at each level, or the one that a tuning
    file names. A node is taken if a candidate without bound levels takes it.
    """

    lowerings: Mapping[str, Lower | Sequence[Candidate]]
    quantized: Mapping[str, Lower | Sequence[Candidate]] = MappingProxyType({})
    fixed_point: Mapping[str, Lower | Sequence[Candidate]] = MappingProxyType({})
    halves: Mapping[str, Lower] = MappingProxyType({})
    cost_unit: str = ""
    calls_c: ClassVar[bool] = True

    @abstractmethod
    def levels(self, abi: str) -> tuple[Level, ...]:
        """Return the levels of a library for this ABI: the best first, one for every processor last."""

    def variants(self, abi: str) -> tuple[Level, ...]:
        """Return the levels among which candidates are chosen: those that core compiles kernels for.

        A target whose kernels core does not compile has no `levels`, and overrides this.
        """
        return self.levels(abi)

    def parameters(self, level: Level | None) -> Hashable:
        """Return the value that lowerings read as `Lowering.parameters`, such as tile sizes.

        Core never reads the value.
        level: that of the calls; None in a trial lowering, which runs before an ABI is chosen. Any valid
        value will do then, because whether a node is refused must not depend on it.
        """
        return None

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Return a call that computes two, the second on the result of the first; None if no kernel does.

        The bits must stay those of the two calls. See `fuse_calls`, which asks for pairs that may be one.
        """
        return None

    def place(self, call: Call, joint: Call, program: Program) -> Call | None:
        """Return a call that writes its result where another one would join it to others; None if none can.

        See `join_results`.
        """
        return None

    def widening_kernels(self) -> WideningKernels | None:
        """Return the kernels that restore weights from compact storage; None if the target has none.

        Without them, `weights: as-stored` of a deployment file is refused.
        """
        return None

    def widens_weights(self) -> bool:
        """Tell whether the target has kernels that restore weights."""
        return self.widening_kernels() is not None

    def can_round(self, numerics: Numerics) -> bool:
        """Tell whether the target has lowerings for the rule."""
        return numerics is Numerics.SINGLE_ROUNDING or (
            numerics is Numerics.FIXED_POINT and bool(self.fixed_point)
        )

    def varies(self, call: Call) -> str | None:
        """Return why a call may have other bits at another level; None if it has the same at all.

        Asked for models with `numerics: reproducible` alone.
        """
        return f"nobody has shown that kernel {call.kernel.name} has the same bits everywhere"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """Return the refusal of a trial lowering, or None if it succeeds."""
        # A trial instead of a table of supported nodes, so that refusals and lowerings cannot disagree. Each
        # result is made an output of the model, the harder case: it must not share bytes with another tensor.
        try:
            self._lower(
                node, _TargetLowering(replace(graph, nodes=(node,), outputs=node.outputs), self._chooser(()))
            )
        except Refused as refused:
            return refused.refusal
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the region's kernel calls, with weights in the form that the deployment file asks for."""
        compacted = Compacted(self.lower(region.graph, config.abi, tuning_of(config.model, config.abi)), {})
        kernels = self.widening_kernels()
        if kernels and config.model.keys.get("weights") == AS_STORED:
            compacted = compact_weights(compacted.program, kernels)
        inputs, outputs = region.ports()
        body = CallsBody(compacted.program, self.levels(config.abi))
        nodes = tuple(node.name for node in region.graph.nodes)
        details = {"weights_as_stored": dict(compacted.figures)} if compacted.figures else {}
        figures = PartFigures(details=details)
        return Part(region.name, self.name, inputs, outputs, body, nodes=nodes, figures=figures)

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        """Return the program of a region whose nodes were all accepted, for the levels of an ABI.

        tuning: which candidates are taken; wrong names in it are found when all regions are lowered, see
        `check_tuning`.
        """
        lowering = _TargetLowering(graph, self._chooser(self.variants(abi), tuning))
        for node in graph.nodes:
            self._lower(node, lowering)
        return self._combine(lowering.finish())

    def _combine(self, program: Program) -> Program:
        """Return the program with fewer calls, as far as that takes no more memory.

        A call that does the work of two reads its other operand until it ends, so its result cannot take that
        operand's place.
        """
        combined = self._join(fuse_calls(program, self.fuse))
        if len(combined.calls) == len(program.calls):
            return combined
        most_bytes = arena(program).bytes
        fused = fuse_where(program, self.fuse, lambda fewer: fits(self._join(fewer), most_bytes))
        merged = self._join(fused)
        if fits(merged, most_bytes):
            return merged
        # Joined results alone take more memory, whatever is fused.
        return fuse_where(program, self.fuse, lambda fewer: fits(fewer, most_bytes))

    def _join(self, program: Program) -> Program:
        return join_results(program, self.place)

    def _chooser(self, levels: tuple[Level, ...], tuning: Tuning = NO_TUNING) -> Chooser:
        return Chooser(self.name, levels, self.parameters, self.cost_unit, tuning)

    def _lower(self, node: Node, lowering: _TargetLowering) -> None:
        count = len(lowering.calls)
        self._lower_by_rule(node, lowering)
        if lowering.numerics is not Numerics.REPRODUCIBLE:
            return
        for call in lowering.calls[count:]:
            if reason := self.varies(call):
                rule = f"numerics: {lowering.numerics.value}"
                raise Refused(f"{rule}: {reason}", code="other", remedy=f"leave {rule} out")

    def _lower_by_rule(self, node: Node, lowering: _TargetLowering) -> None:
        tensors = [lowering.tensors[t] for t in (*node.inputs, *node.outputs) if t]
        # Before any kernel is looked for: the reason is the tensor, and not that one kernel counts in 32
        # bits.
        for tensor in tensors:
            _need_describable(tensor)
        if not any(_is_compressed(t) for t in tensors):
            self._plain(node, lowering)
            return
        if lowering.numerics is Numerics.FIXED_POINT and any(t.quant for t in tensors):
            # No floats in its place: they would round otherwise than the rule that the user asked for.
            self._as_stored(node, tensors, lowering)
            return
        # Integers first: a kernel on stored integers is faster, and keeps the one rounding of the reference.
        calls = len(lowering.calls)
        try:
            self._as_stored(node, tensors, lowering)
        except Refused:
            del lowering.calls[calls:]  # calls that were appended before the refusal
            self._through_floats(node, lowering)

    def _as_stored(self, node: Node, tensors: Sequence[Tensor], lowering: _TargetLowering) -> None:
        """Compute a node on operands as they are stored; raises Refused if no kernel does."""
        # An op that only moves elements needs no arithmetic: if all storages are equal, the kernel of plain
        # elements moves integers too.
        storages = {t.storage for t in tensors if t.quant}
        moved = (
            node.op.moves
            and len(storages) == 1
            and all(t.quant for t in tensors if t.name in (node.inputs[0], *node.outputs[:1]))
        )
        is_fixed = lowering.numerics is Numerics.FIXED_POINT
        table = self.fixed_point if is_fixed else self.quantized
        if node.op.name in table and storages:
            lower_by_choice(table[node.op.name], node, lowering, lowering.chooser)
        elif node.op.name in self.halves and all(_is_half(t) for t in tensors):
            lower_by_choice(self.halves[node.op.name], node, lowering, lowering.chooser)
        elif moved or not storages:
            self._plain(node, lowering)
        else:
            kernel = f"kernel for {node.op.name}"
            rule = f" by numerics: {lowering.numerics.value}" if is_fixed else ""
            raise Refused(f"{self.name} has no integer {kernel}{rule}", code="quantization")

    def _plain(self, node: Node, lowering: _TargetLowering) -> None:
        lower = self.lowerings.get(node.op.name) or (node.op.lower if self.calls_c else None)
        if lower is None:
            raise Refused(f"{self.name} has no kernel for {node.op.name}", code="unsupported-op")
        lower_by_choice(lower, node, lowering, lowering.chooser)

    def _through_floats(self, node: Node, lowering: _TargetLowering) -> None:
        """Compute a node in floats, between conversions, if no kernel takes its operands as stored."""
        # Every op works on every storage this way; an integer kernel is an optimization, not a requirement.
        real_inputs = {
            name: self._real(node, name, lowering)
            for name in dict.fromkeys(filter(None, node.inputs))
            if _is_compressed(lowering.tensors[name])
        }
        real_outputs = {
            name: lowering.temporary(_floats(lowering.tensors[name]))
            for name in node.outputs
            if name and _is_compressed(lowering.tensors[name])
        }
        if not real_inputs and not real_outputs:
            raise Refused(f"{self.name} has no kernel for {node.op.name}", code="unsupported-op")
        inputs, outputs = (
            tuple(by.get(t, t) for t in names)
            for by, names in ((real_inputs, node.inputs), (real_outputs, node.outputs))
        )
        self._plain(replace(node, inputs=inputs, outputs=outputs), lowering)
        for quantized, real in real_outputs.items():
            self._convert(node, (real, quantized), lowering)

    def _real(self, node: Node, name: str, lowering: _TargetLowering) -> str:
        """Return a tensor of floats with the real numbers of a quantized or half-precision one."""
        tensor, array = lowering.tensors[name], lowering.constant(name)
        if array is not None:
            # Constants are converted at build time, once for all nodes that read them.
            real_array = dequantize(array, tensor.quant) if tensor.quant else array
            return lowering.once(
                (name, "floats"), lambda: lowering.add_folded(f"{name}.real", real_array.astype(np.float32))
            )
        real = lowering.temporary(_floats(tensor))
        self._convert(node, (name, real), lowering)
        return real

    def _convert(self, node: Node, pair: tuple[str, str], lowering: _TargetLowering) -> None:
        x, y = (lowering.tensors[name] for name in pair)
        if x.quant is None and y.quant is None:
            self._plain(conversion("Cast", node, pair, CastAttributes(y.dtype.value)), lowering)
            return
        op = "Quantize" if y.quant else "Dequantize"
        if op not in self.quantized:
            raise Refused(
                f"{self.name} has no kernels for quantized tensors",
                code="quantization",
                remedy="use the model in floats",
            )
        lower_by_choice(self.quantized[op], conversion(op, node, pair), lowering, lowering.chooser)


def _need_describable(tensor: Tensor) -> None:
    """Raise Refused for a tensor that `mace_tensor` of mace.h cannot describe."""
    longest = max(tensor.shape, default=0)
    if longest > MAX_DIMENSION:
        reason = f"{tensor.name} has a dimension of {longest}; libraries support at most {MAX_DIMENSION}"
        raise Refused(reason, code="too-large", remedy="state a smaller one under input_shapes")


def _is_compressed(tensor: Tensor) -> bool:
    """Tell whether a tensor stores real numbers in fewer bits than kernels compute with."""
    return tensor.quant is not None or _is_half(tensor)


def _is_half(tensor: Tensor) -> bool:
    return tensor.quant is None and tensor.dtype is DType.F16


def _floats(tensor: Tensor) -> Tensor:
    """Return the tensor with the element type in which kernels compute it."""
    return replace(tensor.real, dtype=DType.F32)


def conversion(op: str, node: Node, pair: tuple[str, str], attrs: Attributes | None = None) -> Node:
    """Return a node that converts one tensor to another, with the name and origin of the given node."""
    return replace(node, op=core_ops()[op], inputs=pair[:1], outputs=pair[1:], attrs=attrs or Attributes())
