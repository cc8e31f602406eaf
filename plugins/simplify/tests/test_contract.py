"""The contract that every transform keeps, for those of mace-transform-simplify."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_simplify.remove_identity import remove_identity


class TestPlugin(PluginContract):
    kind = "transform"
    name = "simplify"


class TestRemoveIdentity(TransformContract):
    name = "remove-identity"
    apply = staticmethod(remove_identity)
