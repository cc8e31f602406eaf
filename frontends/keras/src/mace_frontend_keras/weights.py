"""Where a layer's weights lie, by the rule of each format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_keras.hdf5 import DAMAGED
from mace_frontend_keras.layer import Layer
from mace_frontend_keras.source import Source

OLD_FOLDER = "_layer_checkpoint_dependencies"
"""What `.keras` archives of TensorFlow 2.12 call `layers`."""


class Weights:
    """The weights of a model's layers.

    In an archive each lies at the path of attributes that leads to it, numbered in the order in which the
    layer made it. In the older form each layer of the outermost model has a group by its name, with a list of
    its weights: trained ones first, then the others, each in the order of the layers that a nested model or a
    wrapper is made of.
    """

    def __init__(self, source: Source, root: Layer) -> None:
        self.source, self.root = source, root

    def array(self, layer: Layer, name: str) -> Array | None:
        """A weight of a layer; None if the file does not hold it. MaceError if it cannot be read."""
        try:
            if self.source.legacy:
                path = self._listed.get((layer.name, name))
                return self.source.weights.array(path) if path else None
            return self._at(f"{layer.place}/vars/{layer.variables.index(name)}")
        except (*DAMAGED, OSError) as error:
            problem = f"{name} of layer {layer.name!r} cannot be read: {str(error).splitlines()[0] if str(error) else 'damaged'}"
            raise MaceError(self.source.file.name, problem, "save the model again") from error

    def _at(self, path: str) -> Array | None:
        """A weight by its path as Keras writes it now, or as it did at first: parts of attention with an underscore, another folder."""
        forms = (
            path,
            re.sub(r"/(query|key|value|output)_dense/", r"/_\1_dense/", path),
            path.replace("layers", OLD_FOLDER),
        )
        return next((found for form in forms if (found := self.source.weights.array(form)) is not None), None)

    @cached_property
    def _listed(self) -> Mapping[tuple[str, str], str]:
        """Paths of all weights by the layer's and the weight's name."""
        found: dict[tuple[str, str], str] = {}
        weights = self.source.weights
        base = "model_weights/" if weights.group("model_weights") is not None else ""
        for layer in self.root.children.values():
            ordered = sorted(layer.weights(), key=lambda weight: not weight[2])
            group = weights.group(f"{base}{layer.own_name}")
            names = weights.names(group, "weight_names") if group is not None else []
            if len(names) != len(ordered):
                expected = ", ".join(f"{owner.name}/{name}" for owner, name, _ in ordered) or "none"
                problem = f"layer {layer.name!r} has {len(names)} weights in the file, expected {expected}"
                raise MaceError(self.source.file.name, problem, "save the model again")
            paths = (f"{base}{layer.own_name}/{name}" for name in names)
            found.update(
                ((owner.name, name), path) for (owner, name, _), path in zip(ordered, paths, strict=True)
            )
        return found
