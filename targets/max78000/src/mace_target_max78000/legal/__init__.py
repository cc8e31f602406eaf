"""What a network must keep to, so that the accelerator computes it: every fault with its layer, what is expected, and what to do."""

from __future__ import annotations

from mace_target_max78000.device import Device
from mace_target_max78000.legal.buffers import buffer_faults
from mace_target_max78000.legal.features import feature_faults, network_feature_faults
from mace_target_max78000.legal.flow import flow_faults
from mace_target_max78000.legal.memory import alignment_faults, extent_faults, overlap_faults, unload_faults
from mace_target_max78000.legal.operands import operand_faults
from mace_target_max78000.legal.order import order_faults
from mace_target_max78000.legal.processors import network_processor_faults, processor_faults
from mace_target_max78000.legal.rows import row_faults
from mace_target_max78000.legal.shapes import form_faults, output_faults, size_faults
from mace_target_max78000.legal.site import Fault, Site
from mace_target_max78000.legal.streaming import streaming_faults
from mace_target_max78000.legal.weights import value_faults, weight_faults
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options


def faults(network: Network, device: Device, options: Options) -> list[Fault]:
    """All faults of a network, in the order of its layers.

    What follows from a fault is not told again: sizes after a layer whose size is in doubt, offsets where processors are wrong,
    and data written over where anything else is.
    """
    sites = [Site(network, device, options, index) for index in range(len(network.layers))]
    found: list[Fault] = []
    doubtful: set[int] = set()
    misplaced: set[int] = set()
    for site in sites:
        inputs = site.layer.inputs
        known = doubtful.isdisjoint(inputs)
        shape = form_faults(site)
        if known and not shape:
            shape = size_faults(site) or [*operand_faults(site), *weight_faults(site)]
        if known and not shape:
            shape = list(feature_faults(site))
        if shape or not known:
            doubtful.add(site.index)
        processors = list(processor_faults(site))
        if processors or site.index in doubtful:
            misplaced.add(site.index)
        found += (*shape, *output_faults(site), *value_faults(site), *processors, *alignment_faults(site))
        if misplaced.isdisjoint((site.index, *inputs)):
            found += (*flow_faults(site), *extent_faults(site))
    found += (
        *order_faults(sites),
        *network_feature_faults(sites),
        *network_processor_faults(sites),
        *streaming_faults(sites),
        *unload_faults(sites),
    )
    return found or [*overlap_faults(sites), *row_faults(sites)] or [*buffer_faults(sites)]


__all__ = ["Fault", "faults"]
