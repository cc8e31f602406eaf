"""Estimates whether a DSP computes a region faster than the processor, with the remote call and its copies.

Packets are fitted to counts of layers (`mace benchmark --layers`). Of five models that they were fitted
to, the estimate is between 0.73 and 1.27 of the count; of six others, between 0.47 and 1.09; of dense layers
alone, 0.22. The rest is what vendors publish of phones of the middle class, and was timed on none. A
deployment file overrides every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mace_core.ir import DType, Graph, Node
from mace_core.lowering import Refused
from mace_core.ops.resize import ResizeAttributes
from mace_target_hexagon.isa import PANEL

HYSTERESIS = 0.8
"""The share of the processor's time at which a region goes to the DSP.

Estimates are rough, and a region that goes back and forth with each change of a model would move its time.
"""


VECTORED = (
    *("Add", "Sub", "Neg", "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "HardSwish"),
    *("MaxPool", "Quantize", "Concat", "Split", "Reshape", "Transpose", "DepthToSpace", "SpaceToDepth"),
    *("AveragePool", "ReduceMean", "ReduceSum", "Mul", "Maximum", "Minimum"),
)
"""Ops besides products whose kernels compute or copy bytes by HVX."""


@dataclass(frozen=True)
class DspCosts:
    """What the estimate assumes.

    call_us: of one remote call, without its data: two interrupts, and the caches of both sides.
    packets_per_us: that one thread of the DSP executes, which is its clock in MHz at one packet a cycle.
    threads: that compute at a time, one for each vector unit of 128 bytes.
    macs_per_packet: multiply-adds of integers in a packet; a packet with two `vrmpy` has 256,
    of which the loops of products reach 80 %.
    packets_per_row, packets_per_panel, packets_per_tap: of a product, for each pixel or row of its result,
    for 32 columns of that, which are a register to be rounded, and for each tap of a window to gather.
    wide_macs_per_packet, packets_per_wide_row, packets_per_wide_tap: the same where the left factor has 16
    bits, or the right one is computed. packets_per_wide_panel: where the result has 16 bits.
    depthwise_macs_per_packet: multiply-adds of a convolution of each channel alone.
    packets_per_blend, packets_per_pick: of a resize, for each pixel of its result and 128 channels: where
    four pixels are blended by vectors, and where the nearest one is copied.
    packets_per_blended: for each element where plain C blends.
    float_packets: packets for one multiply-add of floats, which v66 computes one by one.
    vector_bytes_per_packet: that ops of VECTORED read and write.
    bytes_per_packet: that other operators read and write, nearly all in plain C.
    cpu_gmacs, cpu_float_gmacs: 10^9 multiply-adds a second of the processor, of integers and of floats.
    cpu_gb_s, copy_gb_s: 10^9 bytes a second that kernels of the processor read and write, and copies move.
    """

    call_us: float = 300.0
    packets_per_us: float = 800.0
    threads: float = 2.0
    macs_per_packet: float = 200.0
    packets_per_row: float = 40.0
    packets_per_panel: float = 10.0
    packets_per_tap: float = 10.0
    wide_macs_per_packet: float = 100.0
    packets_per_wide_row: float = 80.0
    packets_per_wide_panel: float = 48.0
    packets_per_wide_tap: float = 20.0
    depthwise_macs_per_packet: float = 9.0
    packets_per_blend: float = 45.0
    packets_per_pick: float = 12.0
    packets_per_blended: float = 19.0
    float_packets: float = 4.0
    vector_bytes_per_packet: float = 8.0
    bytes_per_packet: float = 0.8
    cpu_gmacs: float = 60.0
    cpu_float_gmacs: float = 30.0
    cpu_gb_s: float = 8.0
    copy_gb_s: float = 4.0

    def estimate_packets(self, graph: Graph) -> float:
        """Return the packets that the DSP executes for a region."""
        return sum(self._count_packets(node, graph) for node in graph.nodes)

    def estimate_cpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the processor for a region."""
        return sum(self._cpu_us(node, graph) for node in graph.nodes)

    def estimate_dsp_us(self, graph: Graph) -> float:
        """Return the microseconds of the DSP for a region, with the call and the copies to shared memory."""
        copied = sum(graph.tensors[name].bytes for name in (*graph.inputs, *graph.outputs))
        return (
            self.call_us
            + self.estimate_packets(graph) / self.packets_per_us / self.threads
            + copied / self.copy_gb_s / 1e3
        )

    def is_worth(self, graph: Graph) -> bool:
        """Tell whether the DSP is clearly faster."""
        return self.estimate_dsp_us(graph) < HYSTERESIS * self.estimate_cpu_us(graph)

    def _cpu_us(self, node: Node, graph: Graph) -> float:
        rate = self.cpu_gmacs if _is_integer(node, graph) else self.cpu_float_gmacs
        return _count_macs(node, graph) / rate / 1e3 + _count_bytes(node, graph) / self.cpu_gb_s / 1e3

    def _count_packets(self, node: Node, graph: Graph) -> float:
        macs, moved = _count_macs(node, graph), _count_bytes(node, graph)
        if not _is_integer(node, graph):
            # Without vectors every element of four bytes costs about what a multiply-add does.
            return (macs + moved / 4) * self.float_packets
        if _is_depthwise(node, graph):
            # One product for each weight and place: rounding and stores take longer than products.
            return macs / self.depthwise_macs_per_packet
        if node.op.name == "Resize":
            return self._count_packets_of_resize(node, graph)
        if macs:
            rate = self.wide_macs_per_packet if _is_wide(node, graph) else self.macs_per_packet
            return macs / rate + self._count_packets_of_rows(node, graph)
        return moved / (self.vector_bytes_per_packet if node.op.name in VECTORED else self.bytes_per_packet)

    def _count_packets_of_resize(self, node: Node, graph: Graph) -> float:
        from mace_target_hexagon.resize import ByteResize

        attrs = node.attributes(ResizeAttributes)
        x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        registers = math.ceil(y.shape[-1] / (4 * PANEL)) * y.elements / max(1, y.shape[-1])
        if attrs.mode == "nearest":
            return registers * self.packets_per_pick
        try:
            ByteResize.of(attrs, x.shape, y.shape)
        except Refused:
            return y.elements * self.packets_per_blended
        return registers * self.packets_per_blend

    def _count_packets_of_rows(self, node: Node, graph: Graph) -> float:
        """Return what a product executes besides its multiply-adds."""
        result, weights = graph.tensors[node.outputs[0]], graph.tensors[node.inputs[1]]
        columns = result.shape[-1]
        taps = math.prod(weights.shape[1:-1]) if node.op.name == "Conv" else 1
        # A window of one place is read where it lies.
        gathered = taps if taps > 1 else 0
        is_wide = _is_wide(node, graph)
        of_a_row = self.packets_per_wide_row if is_wide else self.packets_per_row
        of_a_tap = self.packets_per_wide_tap if is_wide else self.packets_per_tap
        of_a_panel = self.packets_per_wide_panel if result.dtype is DType.I16 else self.packets_per_panel
        panels = math.ceil(columns / PANEL)
        return (of_a_row + of_a_panel * panels + of_a_tap * gathered) * result.elements / columns


def _count_macs(node: Node, graph: Graph) -> int:
    from mace_core.run.operators import multiply_adds  # not needed where no region is weighed

    return multiply_adds(node, graph)


def _is_depthwise(node: Node, graph: Graph) -> bool:
    """Tell whether a node convolves each channel alone: filters [O, kernel, I / group] have one."""
    return node.op.name == "Conv" and graph.tensors[node.inputs[1]].shape[-1] == 1


def _is_wide(node: Node, graph: Graph) -> bool:
    """Tell whether a product multiplies elements of 16 bits, as those of two computed factors become."""
    is_computed = node.op.name == "MatMul" and node.inputs[1] not in graph.weights
    return is_computed or graph.tensors[node.inputs[0]].dtype is DType.I16


def _is_integer(node: Node, graph: Graph) -> bool:
    """Tell whether a node computes integers: the kernels for these use the DSP's vectors."""
    return not any(graph.tensors[name].dtype.is_float for name in (*node.inputs, *node.outputs) if name)


def _count_bytes(node: Node, graph: Graph) -> int:
    """Count the bytes that a node reads and writes, weights included."""
    return sum(graph.tensors[name].bytes for name in (*node.inputs, *node.outputs) if name)
