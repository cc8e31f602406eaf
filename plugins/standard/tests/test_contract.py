"""The contract that every transform keeps, for the standard ones."""

from mace_core.testing.transform import TransformContract


class TestStandard(TransformContract):
    name = "standard"
    exact = frozenset(
        {
            "cancel-splits",
            "merge-casts",
            "merge-concats",
            "merge-pads",
            "merge-slices",
            "remove-duplicates",
            "remove-expands",
            "remove-limits",
            "remove-neutral",
            "sink-reshapes",
        }
    )
