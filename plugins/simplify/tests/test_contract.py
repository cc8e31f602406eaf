"""The contract that every transform keeps, for those of mace-transform-simplify."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_simplify.cancel_splits import cancel_splits
from mace_transform_simplify.merge_casts import merge_casts
from mace_transform_simplify.merge_concats import merge_concats
from mace_transform_simplify.merge_pads import merge_pads
from mace_transform_simplify.merge_slices import merge_slices
from mace_transform_simplify.reduce_strength import reduce_strength
from mace_transform_simplify.remove_duplicates import remove_duplicates
from mace_transform_simplify.remove_expands import remove_expands
from mace_transform_simplify.remove_identity import remove_identity
from mace_transform_simplify.remove_limits import remove_limits
from mace_transform_simplify.remove_neutral import remove_neutral
from mace_transform_simplify.sink_reshapes import sink_reshapes


class TestPlugin(PluginContract):
    kind = "transform"
    name = "simplify"


class TestCancelSplits(TransformContract):
    name = "cancel-splits"
    apply = staticmethod(cancel_splits)
    tolerance = 0.0


class TestMergeCasts(TransformContract):
    name = "merge-casts"
    apply = staticmethod(merge_casts)
    tolerance = 0.0


class TestMergeConcats(TransformContract):
    name = "merge-concats"
    apply = staticmethod(merge_concats)
    tolerance = 0.0


class TestMergePads(TransformContract):
    name = "merge-pads"
    apply = staticmethod(merge_pads)
    tolerance = 0.0


class TestMergeSlices(TransformContract):
    name = "merge-slices"
    apply = staticmethod(merge_slices)
    tolerance = 0.0


class TestReduceStrength(TransformContract):
    name = "reduce-strength"
    apply = staticmethod(reduce_strength)


class TestRemoveDuplicates(TransformContract):
    name = "remove-duplicates"
    apply = staticmethod(remove_duplicates)
    tolerance = 0.0


class TestRemoveExpands(TransformContract):
    name = "remove-expands"
    apply = staticmethod(remove_expands)
    tolerance = 0.0


class TestRemoveIdentity(TransformContract):
    name = "remove-identity"
    apply = staticmethod(remove_identity)


class TestRemoveLimits(TransformContract):
    name = "remove-limits"
    apply = staticmethod(remove_limits)
    tolerance = 0.0


class TestRemoveNeutral(TransformContract):
    name = "remove-neutral"
    apply = staticmethod(remove_neutral)
    tolerance = 0.0


class TestSinkReshapes(TransformContract):
    name = "sink-reshapes"
    apply = staticmethod(sink_reshapes)
    tolerance = 0.0
