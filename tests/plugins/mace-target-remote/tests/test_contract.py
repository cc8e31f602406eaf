"""The contract that every target keeps."""

from mace_core.testing.target import TargetContract
from mace_target_remote import Remote


class TestRemote(TargetContract):
    target = Remote()
    seeds = 1
