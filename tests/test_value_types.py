"""Facts, settings and results are values: nothing changes them behind the back of who holds them.

Those that hold arrays are compared by identity, as `==` of arrays is no truth value.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass

import pytest

from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.options import Options


@dataclass(frozen=True)
class Expected:
    """What is known of the dataclasses of a package: at least how many there are, and the names of exceptions."""

    count: int
    by_identity: frozenset[str]
    mutable: frozenset[str] = field(default=frozenset())


PACKAGES: Mapping[str, Expected] = {
    "mace_frontend_ai8x": Expected(
        20,
        frozenset(
            (
                *("Archive", "Checkpoint", "CheckpointState", "DescribedModel", "Layer", "LayerParameters"),
                *("Network", "TrainedModel", "Weights"),
            )
        ),
    ),
    "mace_target_max78000": Expected(
        70,
        frozenset(
            (
                *("AcceleratorResults", "Arrangement", "BoundNetwork", "ChannelLink", "ConvolutionRewrite"),
                *("DesignedNetwork", "ElementView", "HardwareLayer", "InputFold", "InputFusion"),
                *("LayerArithmetic", "LayerUsage", "LegalizedGraph", "ModelOutput", "NetworkInput"),
                *("PlacedNetwork", "PlacementResult", "ProgramReport", "QuantizationPlan", "QuantizedBias"),
                *("QuantizedGraph", "RoundedWeights", "RunLayout", "TensorBinding", "TensorStatistics"),
                *("WeightRounding", "WeightStream"),
            )
        ),
        mutable=frozenset(("LayerBuilder", "Memories")),
    ),
}


def dataclasses_of(package: str) -> dict[str, type]:
    """All dataclasses that a package defines, by module and name."""
    root = importlib.import_module(package)
    names = [name for _, name, _ in pkgutil.walk_packages(root.__path__, f"{package}.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_which_values_change_and_which_are_compared_by_identity(package: str) -> None:
    actual, expected = dataclasses_of(package), PACKAGES[package]
    assert len(actual) > expected.count
    parameters = {name.rpartition(".")[2]: kind.__dataclass_params__ for name, kind in actual.items()}  # type: ignore[attr-defined]
    assert {name for name, given in parameters.items() if not given.frozen} == expected.mutable
    assert {name for name, given in parameters.items() if not given.eq} == expected.by_identity


@pytest.mark.parametrize("options", [NetworkOptions, Options])
def test_options_have_names(options: type) -> None:
    """An option given by its place would be another one after the next option is added."""
    assert all(option.kw_only for option in fields(options))
