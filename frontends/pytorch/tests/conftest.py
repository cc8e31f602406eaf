"""Keeps what the tests export out of the user's cache folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mace_core.cache import CACHE


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(tmp_path_factory.mktemp("cache")))
        yield
