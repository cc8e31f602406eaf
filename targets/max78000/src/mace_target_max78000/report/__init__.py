"""What a program takes on the chip - memory, operations, cycles - as text, data and picture."""

from mace_target_max78000.report.analysis import Report, analyze_program
from mace_target_max78000.report.formats import format_data, format_summary
from mace_target_max78000.report.memory_map import draw_memory_map

__all__ = ["Report", "analyze_program", "draw_memory_map", "format_data", "format_summary"]
