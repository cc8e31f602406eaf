"""The contract that every transform keeps, for those of mace-transform-fuse."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_fuse.activation import fuse_activation
from mace_transform_fuse.bias import fuse_bias
from mace_transform_fuse.hard import fuse_hard
from mace_transform_fuse.pad import fuse_pad


class TestPlugin(PluginContract):
    kind = "transform"
    name = "fuse"


class TestFuseBias(TransformContract):
    name = "fuse-bias"
    apply = staticmethod(fuse_bias)


class TestFuseActivation(TransformContract):
    name = "fuse-activation"
    apply = staticmethod(fuse_activation)


class TestFuseHard(TransformContract):
    name = "fuse-hard"
    apply = staticmethod(fuse_hard)


class TestFusePad(TransformContract):
    name = "fuse-pad"
    apply = staticmethod(fuse_pad)
