"""Reads trained parameters: PyTorch checkpoints (without PyTorch) or numpy arrays; quantizes and fuses them.

All become a `Checkpoint` of integers, so that nothing else needs to know where parameters come from.
"""

from mace_frontend_ai8x.checkpoint.arrays import Form, load_arrays
from mace_frontend_ai8x.checkpoint.fuse import fuse_file
from mace_frontend_ai8x.checkpoint.parameters import Checkpoint, LayerParameters, load_checkpoint
from mace_frontend_ai8x.checkpoint.quantize import Clip, Settings, quantize_file

__all__ = [
    "Checkpoint",
    "Clip",
    "Form",
    "LayerParameters",
    "Settings",
    "fuse_file",
    "load_arrays",
    "load_checkpoint",
    "quantize_file",
]
