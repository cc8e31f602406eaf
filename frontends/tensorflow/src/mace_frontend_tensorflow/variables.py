"""Which value of a checkpoint each variable of a SavedModel has.

The model tells it by its own nodes that restore variables: each assigns one output of RestoreV2, whose second
operand lists names in the checkpoint. What they do not tell, the checkpoint's table of objects may, or the
variable's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mace_frontend_tensorflow.bundle import Bundle
from mace_frontend_tensorflow.flat import Flat, Operation
from mace_frontend_tensorflow.held import Constant
from mace_frontend_tensorflow.messages import DecodeError, TrackableObjectGraph
from mace_frontend_tensorflow.tensors import texts

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
ASSIGN = ("AssignVariableOp", "Assign")
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
PASSING = ("Identity", "NoOp", "ReadVariableOp")


@dataclass(frozen=True)
class Variables:
    """The variables of a model; without a bundle there are none."""

    flat: Flat
    bundle: Bundle | None

    def find(self, variable: Operation) -> Constant | None:
        """The trained value of a variable.

        None if it is not stored, ValueError if it is in a form that is not supported.
        """
        if self.bundle is None:
            return None
        shared = (
            variable.attrs["shared_name"].s.decode(errors="replace")
            if "shared_name" in variable.attrs
            else ""
        )
        for name in (
            self._restored.get(variable.name),
            *(self._objects.get(n, n) for n in (shared, variable.name) if n),
        ):
            found = self.bundle.constant(name) if name else None
            if found is not None:
                return found
        return None

    @cached_property
    def _restored(self) -> Mapping[str, str]:
        """Names in the checkpoint by variable, as the model restores them."""
        found = {}
        for operation in self.flat.operations.values():
            if operation.op not in ASSIGN or len(operation.inputs) < 2:
                continue
            variable = self.flat.source(operation.inputs[0], ("Identity",))
            name = self._name(operation)
            if variable is not None and name:
                found[variable.name] = name
        return found

    def _name(self, assign: Operation) -> str | None:
        ref = self.flat.resolved(assign.inputs[1])
        for _ in range(len(self.flat.operations)):
            value = self.flat.operations.get(ref[0])
            if value is None or not value.inputs:
                return None
            if value.op == "RestoreV2":
                return self._listed(value, ref[1])
            if value.op != "Identity":
                return None
            ref = self.flat.resolved(value.inputs[0])
        return None

    def _listed(self, restore: Operation, index: int) -> str | None:
        names = self.flat.source(restore.inputs[1]) if len(restore.inputs) > 1 else None
        listed = texts(names.attrs["value"].tensor) if names is not None and "value" in names.attrs else ()
        return listed[index] if index < len(listed) else None

    @cached_property
    def _objects(self) -> Mapping[str, str]:
        """Names in the checkpoint by full name, as its table of objects has it.

        Names that occur twice are left out.
        """
        assert self.bundle is not None
        try:
            graph = TrackableObjectGraph.FromString(self.bundle.text(OBJECTS))
        except DecodeError:
            return {}
        pairs = [
            (a.full_name, a.checkpoint_key) for node in graph.nodes for a in node.attributes if a.full_name
        ]
        names = [name for name, _ in pairs]
        counts = dict.fromkeys(names, 0)
        for name in names:
            counts[name] += 1
        return {name: key for name, key in pairs if counts[name] == 1}
