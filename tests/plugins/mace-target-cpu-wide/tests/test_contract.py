"""The contract that every target keeps."""

from mace_core.testing.target import TargetContract
from mace_target_cpu_wide import CpuWide


class TestCpuWide(TargetContract):
    target = CpuWide()
