"""Layers that name other layers: names and sequence numbers -> indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from mace_core.deployment.faults import Faults
from mace_frontend_ai8x.description.keys import Description, LayerDescription
from mace_frontend_ai8x.network import BUFFER, INPUT, STOP

RESERVED: Mapping[str, int] = {"input": INPUT, "stop": STOP}
FORWARD = ("next_sequence", "snoop_sequence", "simulated_sequence")
"""Keys that name a later layer."""


@dataclass(frozen=True)
class Links:
    """What a layer refers to, by index.

    inputs: as `Layer.inputs`.  following: as `Place.next`.  weights: the layer whose parameters are used,
    this one or an earlier one.
    conditional: as `Place.conditional_next`.  simulated: the layer that follows when the sample runs, `STOP`
    for none.
    """

    inputs: tuple[int, ...]
    following: int | None
    weights: int
    conditional: int | None = None
    simulated: int | None = None


def link(description: Description, faults: Faults) -> tuple[Links, ...]:
    """Every layer's references; what is wrong with names goes to the faults."""
    linker = _Linker(
        description,
        faults,
        _index_names(description, faults),
        {d.sequence: i for i, d in enumerate(description.layers)},
    )
    return tuple(linker.link(index, layer) for index, layer in enumerate(description.layers))


def _index_names(description: Description, faults: Faults) -> dict[str, int]:
    """Layers by name."""
    found: dict[str, int] = {}
    for index, layer in enumerate(description.layers):
        line = layer.lines.get("name", layer.line)
        if layer.name is None:
            continue
        if layer.name.lower() in RESERVED:
            faults.add(line, f"name: {layer.name!r} is reserved", "choose another name")
        elif layer.name in found:
            faults.add(
                line,
                f"name: {layer.name!r} is the name of another layer as well",
                "give each layer its own name",
            )
        else:
            found[layer.name] = index
    return found


@dataclass(frozen=True)
class _Linker:
    description: Description
    faults: Faults
    names: Mapping[str, int]
    numbers: Mapping[int, int]

    def link(self, index: int, layer: LayerDescription) -> Links:
        given = layer.in_sequences or ()
        inputs = [
            i
            for reference in given
            if (i := self._index(index, layer, "in_sequences", reference)) is not None
        ]
        previous = index - 1 if index else INPUT
        following = (
            None
            if layer.next_sequence is None
            else self._index(index, layer, "next_sequence", layer.next_sequence)
        )
        conditional, simulated = (
            None if reference is None else self._index(index, layer, key, reference)
            for key, reference in (
                ("snoop_sequence", layer.snoop_sequence),
                ("simulated_sequence", layer.simulated_sequence),
            )
        )
        source = (
            index
            if layer.weight_source is None
            else self._index(index, layer, "weight_source", layer.weight_source)
        )
        return Links(
            tuple(inputs) or (previous,),
            None if following == index + 1 else following,
            index if source is None else source,
            conditional,
            simulated,
        )

    def _index(self, index: int, layer: LayerDescription, key: str, reference: int | str) -> int | None:
        """The layer that is meant; None, and a fault, where there is none that this key may name."""
        line = layer.lines[key]
        found = self._find(key, reference)
        if found is None:
            close = get_close_matches(str(reference), self.names, 1)
            remedy = (
                f"did you mean {close[0]}?"
                if close
                else f"name a layer's name or sequence number; there are {self._known()}"
            )
            self.faults.add(line, f"{layer.title}: {key}: there is no layer {reference!r}", remedy)
        elif key not in FORWARD and found >= index:
            self.faults.add(
                line,
                f"{layer.title}: {key}: {reference!r} does not come before this layer",
                "name an earlier layer",
            )
        elif key in FORWARD and found != STOP and found <= index:
            self.faults.add(
                line,
                f"{layer.title}: {key}: {reference!r} does not come after this layer",
                "name a later layer, or stop",
            )
        else:
            return found
        return None

    def _find(self, key: str, reference: int | str) -> int | None:
        if isinstance(reference, int):
            return INPUT if reference == INPUT and key == "in_sequences" else self.numbers.get(reference)
        if reference.lower() == ("stop" if key in FORWARD else "input") and key not in (
            "weight_source",
            "snoop_sequence",
        ):
            return RESERVED[reference.lower()]
        buffers = [buffer.name for buffer in self.description.data_buffer]
        if key == "in_sequences" and reference in buffers:
            return BUFFER - buffers.index(reference)
        return self.names.get(reference)

    def _known(self) -> str:
        return ", ".join(layer.name or str(layer.sequence) for layer in self.description.layers)
