"""The contract that every transform keeps, for those of mace-transform-layout."""

from mace_core.testing.plugin import PluginContract
from mace_core.testing.transform import TransformContract
from mace_transform_layout.layout import layout, views
from mace_transform_layout.merge import merge
from mace_transform_layout.weights import weights


class TestPlugin(PluginContract):
    kind = "transform"
    name = "layout"


class TestLayout(TransformContract):
    name = "layout"
    apply = staticmethod(layout)


class TestMergeTransposes(TransformContract):
    name = "merge-transposes"
    apply = staticmethod(merge)


class TestTransposesToWeights(TransformContract):
    name = "transposes-to-weights"
    apply = staticmethod(weights)


class TestTransposesToViews(TransformContract):
    name = "transposes-to-views"
    apply = staticmethod(views)
