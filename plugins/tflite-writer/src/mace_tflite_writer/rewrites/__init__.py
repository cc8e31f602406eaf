"""Rewrites that make a graph one that the format states, independent of any chip: `Graph -> Graph` each."""

from __future__ import annotations

from mace_tflite_writer.rewrites.channels import silence_channels
from mace_tflite_writer.rewrites.clamps import clips_as_limits, separate_clamps
from mace_tflite_writer.rewrites.convolutions import (
    blocks_as_convolutions,
    means_as_convolutions,
    products_as_convolutions,
    products_of_rows,
)
from mace_tflite_writer.rewrites.functions import functions_by_steps, softmax_along_last
from mace_tflite_writer.rewrites.half import widen_halves
from mace_tflite_writer.rewrites.kernel_blocks import kernels_by_blocks
from mace_tflite_writer.rewrites.legal import legalize, refuses_after_rewrites
from mace_tflite_writer.rewrites.norms import norms_by_steps
from mace_tflite_writer.rewrites.per_tensor import WeightLoss, weights_per_tensor
from mace_tflite_writer.rewrites.signedness import (
    activations_to_int8,
    activations_to_uint8,
    products_in_int8,
    products_in_int16,
)
from mace_tflite_writer.rewrites.splits import split_groups, split_kernels, splits_as_slices
from mace_tflite_writer.rewrites.storages import requantize_inputs
from mace_tflite_writer.rewrites.windows import rows_as_images, separate_crops, separate_pads

__all__ = [
    "WeightLoss",
    "activations_to_int8",
    "activations_to_uint8",
    "blocks_as_convolutions",
    "clips_as_limits",
    "functions_by_steps",
    "kernels_by_blocks",
    "legalize",
    "means_as_convolutions",
    "norms_by_steps",
    "products_as_convolutions",
    "products_in_int8",
    "products_in_int16",
    "products_of_rows",
    "refuses_after_rewrites",
    "requantize_inputs",
    "rows_as_images",
    "separate_clamps",
    "separate_crops",
    "separate_pads",
    "silence_channels",
    "softmax_along_last",
    "split_groups",
    "split_kernels",
    "splits_as_slices",
    "weights_per_tensor",
    "widen_halves",
]
