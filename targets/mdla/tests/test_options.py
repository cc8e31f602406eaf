"""Options of a deployment file: every name and value is taken or refused by name."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_target_mdla.options import MdlaOptions


@pytest.mark.parametrize(
    ("written", "generation", "chip"),
    [
        ({"soc": "MT8195"}, "2.0", "MT8195"),
        ({"soc": "mt8395"}, "2.0", "MT8195"),
        ({"soc": "genio 700"}, "3.0", "MT8188"),
        ({"soc": "Genio510", "generation": "3.0"}, "3.0", "MT8370"),
        ({"soc": "MT6885"}, "1.5", "MT6885"),
        ({"generation": 2.0}, "2.0", ""),
        ({"generation": "1.5"}, "1.5", ""),
    ],
)
def test_chips_fix_the_generation(written: Json, generation: str, chip: str) -> None:
    options = MdlaOptions.of(written, "here")
    assert options.generation == generation
    assert (options.soc.name if options.soc else "") == chip


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({}, "no chip is stated; write soc:"),
        ({"soc": "MT9999"}, "no chip 'MT9999' is known"),
        ({"soc": "MT8196"}, "did you mean MT8195?"),
        ({"soc": 8195}, "8195 is no name"),
        ({"soc": "MT8189"}, "MT8189 has MDLA 5.3, whose rules are not published"),
        ({"soc": "MT8195", "generation": "3.0"}, "MT8195 has MDLA 2.0, not 3.0"),
        ({"generation": "4.0"}, "generation: '4.0' is not known"),
        ({"generation": True}, "generation: True is not known"),
        ({"soc": "MT8195", "software": "maybe"}, "software: 'maybe' is not allowed; write accept or refuse"),
        ({"soc": "MT8195", "unknown": ["accept"]}, "unknown: ['accept'] is not allowed"),
        ({"soc": "MT6885", "int8": "uint8"}, "int8: 'uint8' is not allowed; write keep or to-uint8"),
        ({"soc": "MT6885", "weights": True}, "weights: True is not allowed; write as-stored or per-tensor"),
        (
            {"soc": "MT8195", "frequency_mhz": 0},
            "frequency_mhz: 0 is not allowed; write a number of at least 1",
        ),
        ({"soc": "MT8195", "bandwidth_mb_s": True}, "bandwidth_mb_s: True is not allowed"),
        ({"soc": "MT8195", "small_filter_factor": 0.5}, "small_filter_factor: 0.5 is not allowed"),
        ({"soc": "MT8195", "frequency_mhz": float("inf")}, "frequency_mhz: inf is not allowed"),
        ({"soc": "MT8195", "sco": 1}, "'sco': no such option; did you mean 'soc'?"),
        ({"soc": "MT8195", "turbo": 1}, "'turbo': no such option; remove it"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(written: Json, sentence: str) -> None:
    with pytest.raises(MaceError) as error:
        MdlaOptions.of(written, "model 'a'")
    assert sentence in str(error.value)
    assert str(error.value).startswith("model 'a': ")


def test_leaves_reach_the_target_each_by_itself() -> None:
    options = MdlaOptions.of({"soc": "MT6885", "int8": "to-uint8"}, "here")
    assert (options.stores_uint8, options.weights_per_tensor) == (True, False)
    options = MdlaOptions.of({"soc": "MT6885", "weights": "per-tensor"}, "here")
    assert (options.stores_uint8, options.weights_per_tensor) == (False, True)


def test_numbers_reach_the_estimates() -> None:
    written: Json = {"soc": "MT8195", "frequency_mhz": 700, "bandwidth_mb_s": 1, "small_filter_factor": 2.5}
    options = MdlaOptions.of(written, "here")
    assert (options.frequency_mhz, options.bandwidth_mb_s, options.small_filter_factor) == (700, 1, 2.5)
    assert MdlaOptions.of({"soc": "MT8195"}, "here").small_filter_factor == 1


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(MaceError) as error:
        MdlaOptions.of({"soc": "x", "software": 1, "turbo": 1}, "here")
    assert len(str(error.value).splitlines()) == 3
