"""Reads the vendor's network description: a YAML file, parameters and a sample become a `Network`."""

from mace_frontend_ai8x.description.build import AddLimitFaults, Parameters, read_description
from mace_frontend_ai8x.description.keys import Description, LayerDescription, parse
from mace_frontend_ai8x.description.weight_bits import read_weight_bits

__all__ = [
    "AddLimitFaults",
    "Description",
    "LayerDescription",
    "Parameters",
    "parse",
    "read_description",
    "read_weight_bits",
]
