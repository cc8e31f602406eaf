"""Options that say which layers of the files are the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_frontend_ai8x.load import read_file_options
from mace_frontend_ai8x.options import NetworkOptions, names_files


def test_options_of_files_are_read_and_others_left() -> None:
    asked = {"skip-yaml-layers": 2, "skip_checkpoint_layers": "3", "ignore-bn": True, "timer": "x"}
    expected = NetworkOptions(skip_yaml_layers=2, skip_checkpoint_layers=3, ignore_bn=True)
    assert NetworkOptions.of_files(asked, "net") == expected


def test_all_wrong_values_are_told_at_once() -> None:
    asked = {"skip-yaml-layers": -1, "skip_checkpoint_layers": True, "ignore-bn": "perhaps"}
    with pytest.raises(MaceError) as error:
        NetworkOptions.of_files(asked, "net")
    assert str(error.value).splitlines() == [
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


def test_nothing_is_changed_without_options() -> None:
    """The defaults are the vendor's: what a name switches on is off, and no layer is named."""
    assert NetworkOptions() == NetworkOptions(
        skip_yaml_layers=0,
        skip_checkpoint_layers=0,
        ignore_bn=False,
        stop_after=None,
        no_bias=None,
        ignore_activation=False,
        output_width=None,
        avg_pool_rounding=False,
        documented=False,
        input_offset=None,
        ignore_streaming=False,
        streaming_layers=frozenset(),
        read_ahead=False,
        calcx4=False,
    )


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"skip-yaml-layers": 0}, NetworkOptions()),
        ({"skip_yaml_layers": "12"}, NetworkOptions(skip_yaml_layers=12)),
        ({"skip-checkpoint-layers": 1}, NetworkOptions(skip_checkpoint_layers=1)),
        ({"ignore_bn": 1}, NetworkOptions(ignore_bn=True)),
        ({"ignore_bn": 0}, NetworkOptions()),
        ({"skip_yaml_layers": False}, "skip_yaml_layers: False is not allowed; write an integer"),
        ({"skip_yaml_layers": 1.5}, "skip_yaml_layers: 1.5 is not allowed; write an integer"),
        ({"skip_yaml_layers": "-1"}, "skip_yaml_layers: '-1' is not allowed; write an integer"),
        ({"ignore_bn": 2}, "ignore_bn: 2 is not allowed; write true or false"),
        ({"ignore_bn": [1] * 60}, f"ignore_bn: {str([1] * 60)[:60]} is not allowed; write true or false"),
    ],
)
def test_values_of_options_of_files(stated: dict[str, object], expected: NetworkOptions | str) -> None:
    if isinstance(expected, NetworkOptions):
        assert NetworkOptions.of_files(stated, "net") == expected
        return
    with pytest.raises(MaceError) as error:
        NetworkOptions.of_files(stated, "net")
    assert str(error.value) == f"net: {expected}"


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"skip-yaml-layers": 1}, True),
        ({"timer": 0, "ignore_bn": False}, True),
        ({"timer": 0}, False),
        ({}, False),
        (["ignore_bn"], False),
        (None, False),
    ],
)
def test_whether_options_name_layers_of_files(stated: object, named: bool) -> None:
    assert names_files(stated) is named
