"""The three kinds of lines of a vendor's plan that are known; everything else is kept as not understood."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.lint import PlannedOperation
from mace_target_mdla.vendor_plan import read_plan


def test_operations_get_their_units() -> None:
    plan = read_plan(
        "OP[0]: CONV_2D\n  Target: MDLA_3_0\n\nOP[1]: GATHER\n  ├ MDLA: unsupported operation\n"
        "  ├ VPU: unsupported operation\nOP[2]: SOFTMAX\nTarget: CPU\nSummary of memory\n"
    )
    assert plan.operations == (
        PlannedOperation("CONV_2D", "MDLA_3_0"),
        PlannedOperation("GATHER", "not MDLA"),
        PlannedOperation("SOFTMAX", "CPU"),
    )
    assert plan.device_units == {"MDLA_3_0"}
    assert plan.unread == ("Summary of memory",)


@pytest.mark.parametrize(
    "text", ["", "Target: MDLA_3_0\n", "OP: CONV_2D\n", "op[1]: conv\n", "OP[x]: CONV_2D"]
)
def test_a_text_without_operations_is_refused(text: str) -> None:
    with pytest.raises(MaceError, match=r"no line of the text begins with OP\[number\]"):
        read_plan(text)


def test_only_the_mdla_is_ours() -> None:
    plan = read_plan("OP[0]: ADD\nTarget: MDLA\nOP[1]: ADD\nTarget: MVPU\nOP[2]: ADD\nTarget: mdla3.0\n")
    assert plan.device_units == {"MDLA", "mdla3.0"}
