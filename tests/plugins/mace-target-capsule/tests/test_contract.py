"""The contract that every target keeps."""

from mace_core.testing.target import TargetContract
from mace_target_capsule import Capsule


class TestCapsule(TargetContract):
    target = Capsule()
