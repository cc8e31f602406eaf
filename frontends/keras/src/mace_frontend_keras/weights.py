"""Finds a layer's weights by the rule of each format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_keras.hdf5 import DAMAGED
from mace_frontend_keras.layer import KerasLayer
from mace_frontend_keras.source import KerasFile

OLD_FOLDER = "_layer_checkpoint_dependencies"
"""The folder `layers` in `.keras` archives of TensorFlow 2.12."""


class LayerWeights:
    """The weights of a model's layers.

    In an archive each lies at the path of attributes that leads to it, numbered in the order in which the
    layer made it. In the older form each layer of the outermost model has a group by its name, with a list of
    its weights: trained ones first, then the others, each in the order of the layers that a nested model or a
    wrapper is made of.
    """

    def __init__(self, source: KerasFile, root: KerasLayer) -> None:
        self.source, self.root = source, root

    def array(self, layer: KerasLayer, name: str) -> Array | None:
        """Return a weight of a layer; None if the file does not hold it. MaceError if it cannot be read."""
        try:
            if self.source.legacy:
                path = self._legacy_paths.get((layer.name, name))
                return self.source.weights.array(path) if path else None
            return self._read_archived(f"{layer.path}/vars/{layer.variables.index(name)}")
        except (*DAMAGED, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else "damaged"
            problem = f"{name} of layer {layer.name!r} cannot be read: {reason}"
            raise MaceError(self.source.file.name, problem, "save the model again") from error

    def _read_archived(self, path: str) -> Array | None:
        """Return a weight by its path in an archive, as Keras 3 writes it, or as its first versions did."""
        forms = (
            path,
            # The projections of an attention were private attributes, and `layers` was named after a tracker.
            re.sub(r"/(query|key|value|output)_dense/", r"/_\1_dense/", path),
            path.replace("layers", OLD_FOLDER),
        )
        for form in forms:
            array = self.source.weights.array(form)
            if array is not None:
                return array
        return None

    @cached_property
    def _legacy_paths(self) -> Mapping[tuple[str, str], str]:
        """Paths of all weights in the older form, by the layer's and the weight's name."""
        paths: dict[tuple[str, str], str] = {}
        weights = self.source.weights
        base = "model_weights/" if weights.group("model_weights") is not None else ""
        for layer in self.root.children.values():
            # The sort is stable: trained weights first, both groups in the order of the layers.
            ordered = sorted(layer.weights(), key=lambda weight: not weight[2])
            group = weights.group(f"{base}{layer.short_name}")
            names = weights.names(group, "weight_names") if group is not None else []
            if len(names) != len(ordered):
                expected = ", ".join(f"{owner.name}/{name}" for owner, name, _ in ordered) or "none"
                problem = f"layer {layer.name!r} has {len(names)} weights in the file, expected {expected}"
                raise MaceError(self.source.file.name, problem, "save the model again")
            for (owner, name, _), listed in zip(ordered, names, strict=True):
                paths[owner.name, name] = f"{base}{layer.short_name}/{listed}"
        return paths
