"""Facts, settings and results are values: nothing changes them behind the back of who holds them.

Those that hold arrays are compared by identity, as `==` of arrays is no truth value.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass

import mace_target_max78000

MUTABLE = {"LayerBuilder", "Memories"}
BY_IDENTITY = {
    "AcceleratorResults", "BoundNetwork", "ChannelLink", "ConvolutionRewrite", "DesignedNetwork", "ElementView",
    "HardwareLayer", "InputFold", "InputFusion", "LayerArithmetic", "LayerUsage", "LegalizedGraph",
    "ModelOutput", "NetworkInput", "PlacedNetwork", "PlacementResult", "ProgramReport", "QuantizationPlan",
    "QuantizedBias", "QuantizedGraph", "RoundedWeights", "RunLayout", "TensorBinding", "TensorStatistics",
    "WeightRounding", "WeightStream", "Arrangement",
}  # fmt: skip


def types_of(package: object) -> dict[str, type]:
    """All dataclasses that a package defines, by name."""
    prefix, path = f"{package.__name__}.", package.__path__  # type: ignore[attr-defined]
    names = [name for _, name, _ in pkgutil.walk_packages(path, prefix) if not name.endswith("__main__")]
    modules = [importlib.import_module(name) for name in names]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    }


def test_values_do_not_change() -> None:
    found = types_of(mace_target_max78000)
    assert len(found) > 70
    frozen = {name for name, kind in found.items() if kind.__dataclass_params__.frozen}  # type: ignore[attr-defined]
    assert {name.rpartition(".")[2] for name in set(found) - frozen} == MUTABLE


def test_what_holds_arrays_is_compared_by_identity() -> None:
    found = types_of(mace_target_max78000)
    by_identity = {name for name, kind in found.items() if not kind.__dataclass_params__.eq}  # type: ignore[attr-defined]
    assert {name.rpartition(".")[2] for name in by_identity} == BY_IDENTITY


def test_options_have_names() -> None:
    """An option given by its place would be another one after the next option is added."""
    from mace_target_max78000.options import Options

    assert all(field.kw_only for field in fields(Options))
