"""Defines how calls are enqueued on the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueueLimits:
    """How calls are enqueued.

    is_brief: whether kernels that take longer than a millisecond are cut into slices.
    window: calls that wait in the queue at most; 0 for no limit.
    """

    is_brief: bool = False
    window: int = 0


UNLIMITED = QueueLimits()
