"""The contract that every transform keeps, for those of mace-transform-fold."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_fold.batch_norm import fold_batch_norm
from mace_transform_fold.conv_conv import fold_conv_conv
from mace_transform_fold.input import fold_input
from mace_transform_fold.scale import fold_scale


class TestPlugin(PluginContract):
    kind = "transform"
    name = "fold"


class TestFoldBatchNorm(TransformContract):
    name = "fold-batch-norm"
    apply = staticmethod(fold_batch_norm)


class TestFoldConvConv(TransformContract):
    name = "fold-conv-conv"
    apply = staticmethod(fold_conv_conv)


class TestFoldInput(TransformContract):
    name = "fold-input"
    apply = staticmethod(fold_input)


class TestFoldScale(TransformContract):
    name = "fold-scale"
    apply = staticmethod(fold_scale)
