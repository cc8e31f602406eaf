"""Shows what takes long.

The modules of the core log it to `mace.*`, and only the commands write to a terminal.
"""

from __future__ import annotations

import logging


def show_progress() -> None:
    """Let lines of progress reach standard error."""
    logger = logging.getLogger("mace")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("mace: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
