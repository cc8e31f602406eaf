"""The contract that every transform keeps, for those of mace-transform-fuse."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_fuse.activation import fuse_activation
from mace_transform_fuse.affine import fuse_affine
from mace_transform_fuse.atrous import flatten_atrous
from mace_transform_fuse.bias import fuse_bias
from mace_transform_fuse.crop import fuse_crop
from mace_transform_fuse.gates import fuse_gates
from mace_transform_fuse.gelu import fuse_gelu
from mace_transform_fuse.group_norm import fuse_group_norm
from mace_transform_fuse.hard import fuse_hard
from mace_transform_fuse.norm import fuse_norm
from mace_transform_fuse.pad import fuse_pad
from mace_transform_fuse.prelu import fuse_prelu
from mace_transform_fuse.scale_shift import fuse_scale_shift
from mace_transform_fuse.softmax import fuse_softmax


class TestPlugin(PluginContract):
    kind = "transform"
    name = "fuse"


class TestFlattenAtrous(TransformContract):
    name = "flatten-atrous"
    apply = staticmethod(flatten_atrous)


class TestFuseActivation(TransformContract):
    name = "fuse-activation"
    apply = staticmethod(fuse_activation)


class TestFuseAffine(TransformContract):
    name = "fuse-affine"
    apply = staticmethod(fuse_affine)


class TestFuseBias(TransformContract):
    name = "fuse-bias"
    apply = staticmethod(fuse_bias)


class TestFuseCrop(TransformContract):
    name = "fuse-crop"
    apply = staticmethod(fuse_crop)


class TestFuseGates(TransformContract):
    name = "fuse-gates"
    apply = staticmethod(fuse_gates)


class TestFuseGelu(TransformContract):
    name = "fuse-gelu"
    apply = staticmethod(fuse_gelu)


class TestFuseGroupNorm(TransformContract):
    name = "fuse-group-norm"
    apply = staticmethod(fuse_group_norm)


class TestFuseHard(TransformContract):
    name = "fuse-hard"
    apply = staticmethod(fuse_hard)


class TestFuseNorm(TransformContract):
    name = "fuse-norm"
    apply = staticmethod(fuse_norm)


class TestFusePad(TransformContract):
    name = "fuse-pad"
    apply = staticmethod(fuse_pad)


class TestFusePrelu(TransformContract):
    name = "fuse-prelu"
    apply = staticmethod(fuse_prelu)


class TestFuseScaleShift(TransformContract):
    name = "fuse-scale-shift"
    apply = staticmethod(fuse_scale_shift)


class TestFuseSoftmax(TransformContract):
    name = "fuse-softmax"
    apply = staticmethod(fuse_softmax)
