"""What a program takes on the chip - memory, operations, cycles - as text, data and picture."""

from mace_target_max78000.report.analysis import Report, analysed
from mace_target_max78000.report.data import as_dict
from mace_target_max78000.report.picture import picture
from mace_target_max78000.report.text import summary

__all__ = ["Report", "analysed", "as_dict", "picture", "summary"]
