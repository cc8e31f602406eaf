"""How many layers there may be, and in which order they may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_target_max78000.legal.site import Fault, Site


def order_faults(sites: Sequence[Site]) -> Iterator[Fault]:
    """Faults of the network as a list of layers."""
    device = sites[0].device
    if len(sites) > device.layers:
        remedy = "put pools and element-wise operations into the layer of the convolution that follows"
        yield Fault("", "layers", f"at most {device.layers} on the {device.name}", str(len(sites)), remedy)
    for site in sites:
        if site.place.next is not None and not device.pipelined:
            yield site.fault(
                "next_sequence",
                f"the next layer on the {device.name}",
                "another",
                "order the layers as they run",
            )
        source = site.place.weight_source
        if source is not None and source >= site.index:
            yield site.fault(
                "weight_source", "an earlier layer", sites[source].layer.name, "name an earlier layer"
            )
