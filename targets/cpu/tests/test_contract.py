"""The contract that every target keeps."""

from mace_core.testing.target import TargetContract
from mace_target_cpu import Cpu


class TestCpu(TargetContract):
    target = Cpu()
