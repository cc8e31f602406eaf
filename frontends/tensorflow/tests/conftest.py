"""TensorFlow for all tests of this folder: it takes seconds to import, so that happens once."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import pytest

from mace_core.testing.requirements import require


@pytest.fixture(scope="session")
def tf() -> Any:
    """The module `tensorflow`; tests that ask for it are skipped where it is not installed."""
    require(None if find_spec("tensorflow") else "TensorFlow is not installed: pip install tensorflow-cpu")
    with warnings.catch_warnings():
        # What it and its dependencies say of each other when they are loaded.
        warnings.simplefilter("ignore")
        from mace_frontend_tensorflow.reference import tensorflow

        return tensorflow()
