"""Lines of progress: on standard error, once, and only when a command asks for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from mace_core.progress import show_progress


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of the core, as it was before the test again after it."""
    logger = logging.getLogger("mace")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers, logger.level, logger.propagate = before


def test_each_line_is_shown_once(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.handlers = []  # here, because pytest adds its own between the fixtures and the test
    show_progress()
    show_progress()
    logging.getLogger("mace.frontend").info("reading %s", "m.onnx")
    logging.getLogger("mace.frontend").debug("not this")
    assert capsys.readouterr() == ("", "mace: reading m.onnx\n")
    assert len(logger.handlers) == 1


def test_an_applications_own_handler_is_kept(logger: logging.Logger) -> None:
    handler = logging.NullHandler()
    logger.handlers = [handler]
    show_progress()
    assert logger.handlers == [handler]
