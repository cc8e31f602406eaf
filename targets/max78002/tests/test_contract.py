"""The target keeps the contract of projects."""

from mace_core.testing.project import ProjectContract
from mace_target_max78002.target import Max78002


class TestMax78002(ProjectContract):
    target = Max78002()
