"""Writes graphs as TensorFlow Lite files, for targets whose compilers read that format."""

from mace_tflite_writer.writer import refuses, write_tflite

__all__ = ["refuses", "write_tflite"]
