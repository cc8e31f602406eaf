"""The target keeps the contract of projects."""

from mace_core.testing.project import ProjectContract
from mace_target_max78000.target import Max78000


class TestMax78000(ProjectContract):
    target = Max78000()
