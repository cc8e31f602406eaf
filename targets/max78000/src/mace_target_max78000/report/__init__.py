"""What a program takes on the chip - memory, operations, cycles - as text, data and picture."""

from mace_target_max78000.report.analysis import ProgramReport, analyze_program
from mace_target_max78000.report.formats import draw_memory_map, format_data, format_summary

__all__ = ["ProgramReport", "analyze_program", "draw_memory_map", "format_data", "format_summary"]
