"""The maker's network description: a YAML file, parameters and a sample -> a `Network`."""

from mace_target_max78000.description.build import Parameters, read_description
from mace_target_max78000.description.keys import Description, LayerDescription, parse

__all__ = ["Description", "LayerDescription", "Parameters", "parse", "read_description"]
