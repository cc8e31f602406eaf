"""Checks that the accelerator can compute a network: every fault, what is expected, and what to do.

Each module checks one family of limits: `shapes`, `operands`, `weights`, `features`, `processors`,
`data_flow`, `data_memory`, `streaming`. `context` describes one layer to all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mace_core.deployment.faults import Faults
from mace_frontend_ai8x.network import Network
from mace_target_max78000.check.context import Fault, LayerContext
from mace_target_max78000.check.data_flow import find_flow_faults
from mace_target_max78000.check.data_memory import (
    find_alignment_faults,
    find_extent_faults,
    find_overlap_faults,
    find_unload_faults,
)
from mace_target_max78000.check.features import (
    find_feature_faults,
    find_network_feature_faults,
    find_order_faults,
)
from mace_target_max78000.check.operands import find_operand_faults
from mace_target_max78000.check.processors import find_processor_faults, find_quadrant_faults
from mace_target_max78000.check.shapes import find_output_faults, find_size_faults, find_window_faults
from mace_target_max78000.check.streaming import find_buffer_faults, find_row_faults, find_streaming_faults
from mace_target_max78000.check.weights import find_value_faults, find_weight_faults
from mace_target_max78000.device import Chip
from mace_target_max78000.options import Options


def find_faults(
    network: Network, device: Chip, options: Options, unread: Collection[int] = ()
) -> list[Fault]:
    """Find all faults of a network, in the order of its layers.

    What follows from a fault is not reported again: sizes after a layer whose size is in doubt, offsets where
    processors are wrong, and overwritten data where anything else is.
    unread: layers that could not be read, because their description has faults of its own: nothing is
    reported of these, nor of what depends on them.
    """
    sites = [LayerContext(network, device, options, index) for index in range(len(network.layers))]
    faults: list[Fault] = []
    # Faults that follow from others would hide those that can be corrected.
    doubtful, misplaced = set(unread), set(unread)
    for site in sites:
        if site.index not in unread:
            faults += _find_layer_faults(site, unread, doubtful, misplaced)
    if unread:
        return faults
    faults += (
        *find_order_faults(sites),
        *find_network_feature_faults(sites),
        *find_quadrant_faults(sites),
        *find_streaming_faults(sites),
        *find_unload_faults(sites),
    )
    # Overlaps are computed word by word, which only makes sense where nothing else is wrong.
    return faults or [*find_overlap_faults(sites), *find_row_faults(sites)] or [*find_buffer_faults(sites)]


def _find_layer_faults(
    site: LayerContext, unread: Collection[int], doubtful: set[int], misplaced: set[int]
) -> Iterator[Fault]:
    """Find faults of one layer; add it to those whose size or processors are in doubt."""
    inputs = site.layer.inputs
    known = doubtful.isdisjoint(inputs)
    shape = find_window_faults(site)
    if known and not shape:
        shape = find_size_faults(site) or [*find_operand_faults(site), *find_weight_faults(site)]
    if known and not shape:
        shape = list(find_feature_faults(site))
    if shape or not known:
        doubtful.add(site.index)
    # Processors follow from the channels of the layer before, which its weights state in any case.
    counted = all(index not in unread or site.network.layers[index].weights is not None for index in inputs)
    processors = list(find_processor_faults(site)) if counted else []
    if processors or site.index in doubtful:
        misplaced.add(site.index)
    yield from (
        *shape,
        *find_output_faults(site),
        *find_value_faults(site),
        *processors,
        *find_alignment_faults(site),
    )
    if misplaced.isdisjoint((site.index, *inputs)):
        yield from (*find_flow_faults(site), *find_extent_faults(site))


def add_faults(listed: Faults, network: Network, faults: Iterable[Fault]) -> None:
    """Add what is wrong with a described network to the faults of its file, each by its line."""
    for fault in faults:
        line, title = network.origin.locate(fault.layer, fault.key) if network.origin else (1, fault.layer)
        listed.add(line, fault.describe(title), fault.remedy)


__all__ = ["Fault", "add_faults", "faults"]
