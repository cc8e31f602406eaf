"""What a program takes on the chip - memory, operations, cycles - as text, data and picture."""

from mace_target_max78000.report.analysis import Report, analysed
from mace_target_max78000.report.formats import as_dict, summary
from mace_target_max78000.report.memory_map import picture

__all__ = ["Report", "analysed", "as_dict", "picture", "summary"]
