"""The contract that every target keeps."""

from mace_core.testing.target import TargetContract
from mace_target_island import Island


class TestIsland(TargetContract):
    target = Island()
