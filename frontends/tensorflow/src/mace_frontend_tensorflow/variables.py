"""Finds the value of each variable of a SavedModel in its checkpoint.

The model's own nodes restore variables: each assigns one output of RestoreV2, whose second operand lists
names in the checkpoint. A variable that they lack is searched in the checkpoint's table of objects, and then
by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mace_frontend_tensorflow.bundle import Bundle
from mace_frontend_tensorflow.flat import Flat, GraphOperation
from mace_frontend_tensorflow.messages import DecodeError, TrackableObjectGraph
from mace_frontend_tensorflow.tensors import strings
from mace_frontend_tensorflow.values import Constant

VARIABLE_OPS = ("VarHandleOp", "VariableV2", "Variable")
ASSIGN = ("AssignVariableOp", "Assign")
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclass(frozen=True)
class Variables:
    """The values of a model's variables; a frozen graph has no bundle, and so none of them."""

    flat: Flat
    bundle: Bundle | None

    def find(self, variable: GraphOperation) -> Constant | None:
        """Return the trained value of a variable.

        None if it is not stored, ValueError if it has a form that is not supported.
        """
        if self.bundle is None:
            return None
        # Variables of Keras are operations of other names than the variables; their own is the shared one.
        names = [variable.name]
        if "shared_name" in variable.attrs:
            names.insert(0, variable.attrs["shared_name"].s.decode(errors="replace"))
        keys = [self._restored.get(variable.name), *(self._objects.get(name, name) for name in names)]
        for key in keys:
            value = self.bundle.constant(key) if key else None
            if value is not None:
                return value
        return None

    @cached_property
    def _restored(self) -> Mapping[str, str]:
        """Map variables to names in the checkpoint, as the model restores them."""
        keys = {}
        for operation in self.flat.operations.values():
            if operation.op not in ASSIGN or len(operation.inputs) < 2:
                continue
            variable = self.flat.source(operation.inputs[0], ("Identity",))
            key = self._restored_key(operation)
            if variable is not None and key:
                keys[variable.name] = key
        return keys

    def _restored_key(self, assign: GraphOperation) -> str | None:
        """Return the name in the checkpoint of what an assignment restores; None if it restores nothing."""
        ref = self.flat.resolve(assign.inputs[1])
        for _ in range(len(self.flat.operations)):
            value = self.flat.operations.get(ref[0])
            if value is None or not value.inputs:
                return None
            if value.op == "RestoreV2":
                return self._listed_key(value, ref[1])
            if value.op != "Identity":
                return None
            ref = self.flat.resolve(value.inputs[0])
        return None

    def _listed_key(self, restore: GraphOperation, index: int) -> str | None:
        names = self.flat.source(restore.inputs[1]) if len(restore.inputs) > 1 else None
        listed = strings(names.attrs["value"].tensor) if names is not None and "value" in names.attrs else ()
        return listed[index] if index < len(listed) else None

    @cached_property
    def _objects(self) -> Mapping[str, str]:
        """Map full names of variables to names in the checkpoint, as its table of objects has them.

        Names that occur twice are left out: nothing tells which object a variable is.
        """
        assert self.bundle is not None
        try:
            graph = TrackableObjectGraph.FromString(self.bundle.text(OBJECTS))
        except DecodeError:
            return {}
        keys: dict[str, str] = {}
        duplicates = {""}
        for node in graph.nodes:
            for attribute in node.attributes:
                if attribute.full_name in keys:
                    duplicates.add(attribute.full_name)
                keys[attribute.full_name] = attribute.checkpoint_key
        return {name: key for name, key in keys.items() if name not in duplicates}
