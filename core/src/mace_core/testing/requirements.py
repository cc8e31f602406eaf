"""The one policy for tests that need a tool: without it they skip, unless everything was promised to be there."""

from __future__ import annotations

import os

import pytest

REQUIRE_TOOLS = "MACE_REQUIRE_TOOLS"
"""Environment variable: "1" makes a missing tool a failure, so that a build machine cannot lose tests unnoticed."""

EXEMPT = ("ANDROID_NDK_HOME", "MACE_MODELS")
"""What a reason mentions if no package index has it: the NDK from Google's site, under a licence to be accepted; models of others."""


def require(reason: str | None) -> None:
    """Go on if `reason` is None; otherwise skip the test with it, or fail where tools are required.

    reason: what `missing()` said.
    """
    if reason is None:
        return
    if os.environ.get(REQUIRE_TOOLS) == "1" and not any(word in reason for word in EXEMPT):
        pytest.fail(f"{REQUIRE_TOOLS}=1, and {reason}", pytrace=False)
    pytest.skip(reason)
