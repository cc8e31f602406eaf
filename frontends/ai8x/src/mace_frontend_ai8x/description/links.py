"""Resolves the names and sequence numbers by which layers refer to other layers."""

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
    """The layers that a layer refers to, by index.

    inputs: as `Layer.inputs`.  following: as `LayerPlacement.next`.
    weights: the layer whose parameters are used: this one or an earlier one.
    conditional: as `LayerPlacement.conditional_next`.
    simulated: the layer that follows when the sample runs, `STOP` for none.
    """

    inputs: tuple[int, ...]
    following: int | None
    weights: int
    conditional: int | None = None
    simulated: int | None = None


def link(description: Description, faults: Faults) -> tuple[Links, ...]:
    """Return the references of every layer; unknown and repeated names are added to `faults`."""
    linker = _Linker(
        description,
        faults,
        _index_names(description, faults),
        {d.sequence: i for i, d in enumerate(description.layers)},
    )
    return tuple(linker.link(index, layer) for index, layer in enumerate(description.layers))


def _index_names(description: Description, faults: Faults) -> dict[str, int]:
    """Return the indexes of layers by name."""
    indexes: dict[str, int] = {}
    for index, layer in enumerate(description.layers):
        line = layer.lines.get("name", layer.line)
        if layer.name is None:
            continue
        if layer.name.lower() in RESERVED:
            faults.add(line, f"name: {layer.name!r} is reserved", "choose another name")
        elif layer.name in indexes:
            faults.add(
                line,
                f"name: {layer.name!r} is the name of another layer as well",
                "give each layer its own name",
            )
        else:
            indexes[layer.name] = index
    return indexes


@dataclass(frozen=True)
class _Linker:
    description: Description
    faults: Faults
    names: Mapping[str, int]
    numbers: Mapping[int, int]

    def link(self, index: int, layer: LayerDescription) -> Links:
        """Return the references of one layer, with the defaults where it states none."""
        inputs = []
        for reference in layer.in_sequences or ():
            source = self._index(index, layer, "in_sequences", reference)
            if source is not None:
                inputs.append(source)
        previous = index - 1 if index else INPUT
        following = self._optional_index(index, layer, "next_sequence", layer.next_sequence)
        weights = self._optional_index(index, layer, "weight_source", layer.weight_source)
        return Links(
            # The default of the vendor's tool: each layer reads the one before it.
            inputs=tuple(inputs) or (previous,),
            # Only a jump needs a register; the layer after this one follows by itself.
            following=None if following == index + 1 else following,
            weights=index if weights is None else weights,
            conditional=self._optional_index(index, layer, "snoop_sequence", layer.snoop_sequence),
            simulated=self._optional_index(index, layer, "simulated_sequence", layer.simulated_sequence),
        )

    def _optional_index(
        self, index: int, layer: LayerDescription, key: str, reference: int | str | None
    ) -> int | None:
        return None if reference is None else self._index(index, layer, key, reference)

    def _index(self, index: int, layer: LayerDescription, key: str, reference: int | str) -> int | None:
        """Return the index of the layer that a key refers to; None, with a fault, for a wrong reference."""
        line = layer.lines[key]
        target = self._find(key, reference)
        if target is None:
            close = get_close_matches(str(reference), self.names, 1)
            remedy = (
                f"did you mean {close[0]}?"
                if close
                else f"name a layer's name or sequence number; there are {self._list_layers()}"
            )
            self.faults.add(line, f"{layer.title}: {key}: there is no layer {reference!r}", remedy)
        elif key not in FORWARD and target >= index:
            self.faults.add(
                line,
                f"{layer.title}: {key}: {reference!r} does not come before this layer",
                "name an earlier layer",
            )
        elif key in FORWARD and target != STOP and target <= index:
            self.faults.add(
                line,
                f"{layer.title}: {key}: {reference!r} does not come after this layer",
                "name a later layer, or stop",
            )
        else:
            return target
        return None

    def _find(self, key: str, reference: int | str) -> int | None:
        if isinstance(reference, int):
            # The vendor's descriptions write -1 for the network's input as well as the word.
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

    def _list_layers(self) -> str:
        return ", ".join(layer.name or str(layer.sequence) for layer in self.description.layers)
