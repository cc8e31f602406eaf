"""The options of a deployment file."""

from __future__ import annotations

import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_target_ethosu import EthosU
from mace_target_ethosu.options import ACCELERATORS, read_options


def model(**options: object) -> Model:
    return Model("m", (), keys={"target_options": {"ethosu": options}})


def test_defaults_are_velas_but_for_the_accelerator() -> None:
    options = read_options(Model("m", ()))
    assert (options.accelerator, options.generation, options.memory_mode) == ("ethos-u55-128", "u55", "")


def test_each_accelerator_has_its_generation() -> None:
    generations = {read_options(model(accelerator=name)).generation for name in ACCELERATORS}
    assert generations == {"u55", "u65", "u85"}


def test_a_target_takes_the_options_of_its_model() -> None:
    target = EthosU()
    configured = target.configure(model(accelerator="ethos-u85-256", memory_mode="Dedicated_Sram"))
    assert configured.options.generation == "u85"
    assert target.options.generation == "u55"


def test_all_faults_are_told_together() -> None:
    wrong = model(acelerator="x", accelerator="ethos-u99", memory_mode="a; rm -rf /", arena_cache_size=True)
    with pytest.raises(MaceError) as error:
        EthosU().check_options(wrong)
    lines = str(error.value).splitlines()
    assert len(lines) == 4
    assert "did you mean accelerator?" in lines[0]
    assert all(line.startswith("model 'm': target_options: ethosu: ") for line in lines)


@pytest.mark.parametrize("size", [0, -1, 1.5, "1", True])
def test_a_size_is_a_positive_integer(size: object) -> None:
    with pytest.raises(
        MaceError, match=r"arena_cache_size: .* is no positive integer; write a number of bytes"
    ):
        read_options(model(arena_cache_size=size))
