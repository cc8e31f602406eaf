"""Numbers of a cost model as a deployment file states them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mace_core.cost_options import read_costs
from mace_core.errors import MaceError


@dataclass(frozen=True)
class Prices:
    """What two things cost."""

    call_us: float = 300.0
    copy_gb_s: float = 4.0


def test_numbers_that_are_left_out_have_their_defaults() -> None:
    assert read_costs(Prices(), {}, "m") == Prices()
    assert read_costs(Prices(), {"costs": {"call_us": 7}}, "m") == Prices(call_us=7.0)


@pytest.mark.parametrize("value", [0, -1, True, "4", float("inf"), float("nan"), None])
def test_a_cost_is_a_positive_number(value: object) -> None:
    with pytest.raises(MaceError, match=r"m: costs: call_us: .* is no positive number"):
        read_costs(Prices(), {"costs": {"call_us": value}}, "m")


def test_all_faults_are_named_together() -> None:
    with pytest.raises(MaceError) as error:
        read_costs(Prices(), {"costs": {"fuel": 1, "copy_gb_s": 0}}, "m")
    assert str(error.value).splitlines() == [
        "m: costs: 'fuel' is unknown; choose among call_us, copy_gb_s",
        "m: costs: copy_gb_s: 0 is no positive number; write one",
    ]
    with pytest.raises(MaceError, match="m: costs: 3 is no mapping; write some of call_us, copy_gb_s"):
        read_costs(Prices(), {"costs": 3}, "m")
