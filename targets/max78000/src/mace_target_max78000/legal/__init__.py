"""What a network must keep to, so that the accelerator computes it: every fault with its layer, what is expected, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mace_core.deployment.faults import Faults
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


def faults(network: Network, device: Device, options: Options, unread: Collection[int] = ()) -> list[Fault]:
    """All faults of a network, in the order of its layers.

    What follows from a fault is not told again: sizes after a layer whose size is in doubt, offsets where
    processors are wrong, and data written over where anything else is.
    unread: layers that were not read as they are written, because their description has faults of its own:
    nothing is said of these, nor of what depends on them.
    """
    sites = [Site(network, device, options, index) for index in range(len(network.layers))]
    found: list[Fault] = []
    doubtful, misplaced = set(unread), set(unread)
    for site in sites:
        if site.index not in unread:
            found += _layer_faults(site, unread, doubtful, misplaced)
    if unread:
        return found
    found += (
        *order_faults(sites),
        *network_feature_faults(sites),
        *network_processor_faults(sites),
        *streaming_faults(sites),
        *unload_faults(sites),
    )
    return found or [*overlap_faults(sites), *row_faults(sites)] or [*buffer_faults(sites)]


def _layer_faults(
    site: Site, unread: Collection[int], doubtful: set[int], misplaced: set[int]
) -> Iterator[Fault]:
    """Faults of one layer; adds it to those whose size is in doubt, and to those whose processors are."""
    inputs = site.layer.inputs
    known = doubtful.isdisjoint(inputs)
    shape = form_faults(site)
    if known and not shape:
        shape = size_faults(site) or [*operand_faults(site), *weight_faults(site)]
    if known and not shape:
        shape = list(feature_faults(site))
    if shape or not known:
        doubtful.add(site.index)
    # Processors follow from the channels that a layer before it writes: those of weights are right whatever
    # else is not.
    counted = all(index not in unread or site.network.layers[index].weights is not None for index in inputs)
    processors = list(processor_faults(site)) if counted else []
    if processors or site.index in doubtful:
        misplaced.add(site.index)
    yield from (*shape, *output_faults(site), *value_faults(site), *processors, *alignment_faults(site))
    if misplaced.isdisjoint((site.index, *inputs)):
        yield from (*flow_faults(site), *extent_faults(site))


def add_faults(listed: Faults, network: Network, found: Iterable[Fault]) -> None:
    """Add what is wrong with a described network to the faults of its file, each by the line that it stands in."""
    for fault in found:
        line, title = network.origin.locate(fault.layer, fault.key) if network.origin else (1, fault.layer)
        listed.add(line, fault.describe(title), fault.remedy)


__all__ = ["Fault", "add_faults", "faults"]
