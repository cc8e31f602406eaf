"""Options for targets: checked by the targets that are installed, noted for those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.target_options import check_target_options


def deployment(options: object, notes: tuple[str, ...] = ()) -> Deployment:
    model = Model("m", (Path("m.onnx"),), keys={"target_options": options})
    return Deployment("lib", (model,), notes=notes)


def test_no_options_are_no_fault() -> None:
    asked = Deployment("lib", (Model("m", (Path("m.onnx"),)),), notes=("before",))
    assert check_target_options(asked, Registry.load()) == asked
    assert check_target_options(deployment({}), Registry.load()).notes == ()


def test_a_target_that_is_not_installed_is_noted_once() -> None:
    asked = deployment({"neural-engine-9000": {"speed": 1}}, ("before",))
    result = check_target_options(asked, Registry.load())
    note = "model 'm': target_options: 'neural-engine-9000' is not installed: its options have no effect here"
    assert result.notes == ("before", note)
    assert check_target_options(result, Registry.load()).notes == result.notes


def test_a_name_that_is_nearly_right_is_a_fault() -> None:
    registry = Registry.load()
    name = max(registry.targets, key=len)
    with pytest.raises(MaceError, match=f"no target '{name}x' is installed; did you mean '{name}'"):
        check_target_options(deployment({f"{name}x": {}}), registry)


def test_the_target_checks_its_own_options_and_all_faults_are_told() -> None:
    registry = Registry.load()
    name = max(registry.targets, key=len)
    with pytest.raises(MaceError) as error:
        check_target_options(deployment({"cpu": {"no_such_option": 1}, f"{name}x": {}}), registry)
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert "no_such_option" in lines[0]
