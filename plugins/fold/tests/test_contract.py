"""The contract that every transform keeps, for those of mace-transform-fold."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_fold.batch_norm import fold_batch_norm
from mace_transform_fold.scale import fold_scale


class TestPlugin(PluginContract):
    kind = "transform"
    name = "fold"


class TestFoldBatchNorm(TransformContract):
    name = "fold-batch-norm"
    apply = staticmethod(fold_batch_norm)


class TestFoldScale(TransformContract):
    name = "fold-scale"
    apply = staticmethod(fold_scale)
