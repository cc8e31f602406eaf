"""The contract that every transform keeps, for those of mace-transform-quantize."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_quantize.fuse_quantize import fuse_quantize


class TestPlugin(PluginContract):
    kind = "transform"
    name = "quantize"


class TestFuseQuantize(TransformContract):
    name = "fuse-quantize"
    apply = staticmethod(fuse_quantize)
