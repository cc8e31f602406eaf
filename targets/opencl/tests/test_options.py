"""Options of the target in a deployment file."""

from __future__ import annotations

import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_target_opencl.costs import Costs
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

PLACE = "model 'm': target_options: opencl"


def test_the_defaults() -> None:
    options = OpenclOptions.of({}, PLACE)
    assert (options.storage, options.arithmetic, options.is_selective, options.costs) == (
        "f32",
        "f32",
        False,
        Costs(),
    )


@pytest.mark.parametrize(
    ("data_type", "types"),
    [
        ("fp32_fp32", ("f32", "f32")),
        ("fp16_fp32", ("f16", "f32")),
        ("fp16_fp16", ("f16", "f16")),
        ("bf16_fp32", ("f32", "f32")),
    ],
)
def test_the_key_data_type_chooses_storage_and_arithmetic(data_type: str, types: tuple[str, str]) -> None:
    options = OpenclOptions.of_model(Model("m", (), keys={"data_type": data_type}))
    assert (options.storage, options.arithmetic) == types


def test_the_options_of_the_target_come_before_the_key() -> None:
    keys = {"data_type": "fp16_fp16", "target_options": {"opencl": {"arithmetic": "f32"}}}
    options = OpenclOptions.of_model(Model("m", (), keys=keys))
    assert (options.storage, options.arithmetic) == ("f16", "f32")


def test_storage_in_half_precision_is_stated() -> None:
    assert OpenclOptions.of({"storage": "f16"}, PLACE).storage == "f16"


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"storag": "f32"}, "'storag' is no option of the target; did you mean 'storage'?"),
        (
            {"zzz": 1},
            "'zzz' is no option of the target; remove it; the options are storage, arithmetic, regions, costs",
        ),
        ({"storage": "f64"}, "storage: 'f64' is not allowed; write f32 or f16"),
        ({"arithmetic": "f16"}, "arithmetic: f16 needs storage in f16 too; write storage: f16 beside it"),
        ({"group_items": 32}, "group_items: 32 is not allowed; write 64, 128 or 256"),
        ({"group_items": "64"}, "group_items: '64' is not allowed; write 64, 128 or 256"),
        (
            {"compute_units": 0},
            "compute_units: 0 is not allowed; write what clinfo tells as Max compute units",
        ),
        ({"local_memory": 1}, "local_memory: 1 is not allowed; write true or false"),
        ({"check_bounds": "on"}, "check_bounds: 'on' is not allowed; write true or false"),
        ({"compute_units": True}, "compute_units: True is not allowed"),
        ({"compute_units": "8"}, "compute_units: '8' is not allowed"),
        ({"compute_units": 2**40}, "compute_units: 1099511627776 is not allowed"),
        ({"regions": "some"}, "regions: 'some' is not allowed; write auto or all or worthwhile"),
        ({"costs": 1}, "costs: 1 is no mapping; write some of sync_us"),
        ({"costs": {"sync": 1}}, "costs: 'sync' is unknown; choose among sync_us"),
        ({"costs": {"sync_us": 0}}, "costs: sync_us: 0 is no positive number; write one"),
        ({"costs": {"sync_us": True}}, "costs: sync_us: True is no positive number; write one"),
        ({"costs": {"sync_us": float("nan")}}, "costs: sync_us: nan is no positive number; write one"),
    ],
)
def test_what_is_not_allowed_is_refused(stated: dict[str, object], message: str) -> None:
    with pytest.raises(MaceError) as error:
        OpenclOptions.of(stated, PLACE)
    assert f"{PLACE}: {message}" in str(error.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(MaceError) as error:
        OpenclOptions.of({"storage": 1, "regions": 2, "costs": {"x": 3}}, PLACE)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("regions", "runtimes", "is_selective"),
    [
        ("auto", ("cpu", "gpu"), True),
        ("auto", ("gpu",), False),
        ("auto", ("cpu",), False),
        ("all", ("cpu", "gpu"), False),
        ("worthwhile", ("gpu",), True),
    ],
)
def test_regions_are_selected_where_the_processor_shares_the_model(
    regions: str, runtimes: tuple[str, ...], is_selective: bool
) -> None:
    assert OpenclOptions.of({"regions": regions}, PLACE, runtimes).is_selective == is_selective


def test_a_target_is_configured_by_the_model() -> None:
    target = Opencl()
    assert target.configure(Model("m", ())) is target
    configured = target.configure(Model("m", (), runtimes=("cpu", "gpu")))
    assert isinstance(configured, Opencl)
    assert configured.options.is_selective
