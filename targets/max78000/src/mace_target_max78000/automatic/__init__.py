"""From any graph to a network for the accelerator: quantised, formed to layers, and placed."""

from mace_target_max78000.automatic.fit import prepare
from mace_target_max78000.automatic.forming import Formed, form
from mace_target_max78000.automatic.quantizing.quantize import Policy

__all__ = ["Formed", "Policy", "form", "prepare"]
