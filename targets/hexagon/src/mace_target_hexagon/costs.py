"""Estimates whether a DSP computes a region faster than the processor, with the remote call and its copies.

Packets are counted, see docs/hexagon.md; the rest is what vendors publish of phones of the middle class, and
nothing here was timed on one. A deployment file overrides every number.
"""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.ir import Graph, Node

HYSTERESIS = 0.8
"""The share of the processor's time at which a region goes to the DSP.

Estimates are rough, and a region that goes back and forth with each change of a model would move its time.
"""


@dataclass(frozen=True)
class DspCosts:
    """What the estimate assumes.

    call_us: of one remote call, without its data: two interrupts, and the caches of both sides.
    packets_per_us: that one thread of the DSP executes, which is its clock in MHz at one packet a cycle.
    macs_per_packet: multiply-adds of integers in a packet; a packet with two `vrmpy` has 256,
    of which the loops of products reach 80 %.
    float_packets: packets for one multiply-add of floats, which v66 computes one by one.
    bytes_per_packet: that other operators read and write.
    cpu_gmacs, cpu_float_gmacs: 10^9 multiply-adds a second of the processor, of integers and of floats.
    cpu_gb_s, copy_gb_s: 10^9 bytes a second that kernels of the processor read and write, and copies move.
    """

    call_us: float = 300.0
    packets_per_us: float = 800.0
    macs_per_packet: float = 200.0
    float_packets: float = 4.0
    bytes_per_packet: float = 32.0
    cpu_gmacs: float = 60.0
    cpu_float_gmacs: float = 30.0
    cpu_gb_s: float = 8.0
    copy_gb_s: float = 4.0

    def estimate_cpu_us(self, graph: Graph) -> float:
        """Return the microseconds of the processor for a region."""
        return sum(self._cpu_us(node, graph) for node in graph.nodes)

    def estimate_dsp_us(self, graph: Graph) -> float:
        """Return the microseconds of the DSP for a region, with the call and the copies to shared memory."""
        copied = sum(graph.tensors[name].bytes for name in (*graph.inputs, *graph.outputs))
        packets = sum(self._packets(node, graph) for node in graph.nodes)
        return self.call_us + packets / self.packets_per_us + copied / self.copy_gb_s / 1e3

    def is_worth(self, graph: Graph) -> bool:
        """Tell whether the DSP is clearly faster."""
        return self.estimate_dsp_us(graph) < HYSTERESIS * self.estimate_cpu_us(graph)

    def _cpu_us(self, node: Node, graph: Graph) -> float:
        rate = self.cpu_gmacs if _is_integer(node, graph) else self.cpu_float_gmacs
        return _count_macs(node, graph) / rate / 1e3 + _count_bytes(node, graph) / self.cpu_gb_s / 1e3

    def _packets(self, node: Node, graph: Graph) -> float:
        macs, moved = _count_macs(node, graph), _count_bytes(node, graph)
        if _is_integer(node, graph):
            return macs / self.macs_per_packet + moved / self.bytes_per_packet
        # Without vectors every element of four bytes costs about what a multiply-add does.
        return (macs + moved / 4) * self.float_packets


def _count_macs(node: Node, graph: Graph) -> int:
    from mace_core.run.operators import multiply_adds  # not needed where no region is weighed

    return multiply_adds(node, graph)


def _is_integer(node: Node, graph: Graph) -> bool:
    """Tell whether a node computes integers: the kernels for these use the DSP's vectors."""
    return not any(graph.tensors[name].dtype.is_float for name in (*node.inputs, *node.outputs) if name)


def _count_bytes(node: Node, graph: Graph) -> int:
    """Count the bytes that a node reads and writes, weights included."""
    return sum(graph.tensors[name].bytes for name in (*node.inputs, *node.outputs) if name)
