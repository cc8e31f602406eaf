"""Options that say which layers of the files are the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_frontend_ai8x.load import read_file_options
from mace_frontend_ai8x.options import NetworkOptions


def test_options_of_files_are_read_and_others_left() -> None:
    asked = {"skip-yaml-layers": 2, "skip_checkpoint_layers": "3", "ignore-bn": True, "timer": "x"}
    expected = NetworkOptions(skip_yaml_layers=2, skip_checkpoint_layers=3, ignore_bn=True)
    assert NetworkOptions.of_files(asked, "net") == expected


def test_all_wrong_values_are_told_at_once() -> None:
    asked = {"skip-yaml-layers": -1, "skip_checkpoint_layers": True, "ignore-bn": "perhaps"}
    with pytest.raises(MaceError) as caught:
        NetworkOptions.of_files(asked, "net")
    assert str(caught.value).splitlines() == [
        "net: skip-yaml-layers: -1 is not allowed; write an integer",
        "net: skip_checkpoint_layers: True is not allowed; write an integer",
        "net: ignore-bn: 'perhaps' is not allowed; write true or false",
    ]


@pytest.mark.parametrize(
    ("runtimes", "stated", "skipped"),
    [
        (("max78000",), {"max78000": {"timer": 0}, "max78002": {"skip_yaml_layers": 1}}, 0),
        (("max78002",), {"max78000": {"timer": 0}, "max78002": {"skip_yaml_layers": 1}}, 1),
        (("cpu",), {"cpu": {"x": 1}, "max78000": {"skip_yaml_layers": 1}}, 1),
        (("cpu",), {"max79999": {"skip_yaml_layers": 4}}, 4),
        ((), {}, 0),
    ],
)
def test_options_of_the_target_that_runs_the_model_come_first(
    runtimes: tuple[str, ...], stated: dict[str, Any], skipped: int
) -> None:
    model = Model("net", (Path("net.yaml"),), runtimes=runtimes, keys={"target_options": stated})
    assert read_file_options(model).skip_yaml_layers == skipped
