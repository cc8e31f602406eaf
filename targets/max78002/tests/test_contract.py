"""The target keeps the contract of projects."""

import pytest

from mace_core.testing.project import ProjectContract
from mace_target_max78002.target import Max78002


@pytest.mark.exhaustive  # what the contract asks of MAX78000 is built by the same code
class TestMax78002(ProjectContract):
    target = Max78002()
