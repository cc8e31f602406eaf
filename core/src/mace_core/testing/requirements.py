"""The policy for tests that need a tool: without it they skip, or fail on machines that promise all tools."""

from __future__ import annotations

import os

import pytest

REQUIRE_TOOLS = "MACE_REQUIRE_TOOLS"
"""Environment variable: "1" turns skips into failures, so that build machines cannot lose tests unnoticed."""

EXEMPT = ("ANDROID_NDK_HOME", "CUDA_HOME", "MACE_MODELS")
"""Names of what build machines cannot promise; a reason that contains one skips a test in any case.

The NDK and the CUDA toolkit are downloaded under licenses that a person must accept; models belong to others.
"""


def require(reason: str | None) -> None:
    """Return if `reason` is None; otherwise skip the test, or fail where tools are required.

    reason: the result of `missing()`.
    """
    if reason is None:
        return
    if os.environ.get(REQUIRE_TOOLS) == "1" and not any(word in reason for word in EXEMPT):
        pytest.fail(f"{REQUIRE_TOOLS}=1, and {reason}", pytrace=False)
    pytest.skip(reason)
