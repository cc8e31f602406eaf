"""A TFLite file's integers of eight bits as the adapter receives them for MDLA 1.5: unsigned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tflite

from mace_target_mdla.lite_model import LiteModel, LiteTensor

OFFSET = 128
"""What uint8 stores more than int8 for the same number."""


class UnsignedModel(LiteModel):
    """Shows the int8 tensors of a file as uint8, which are the same numbers.

    Filters with a scale for each channel stay int8: the adapter takes them beside uint8 (guide 701-717, and
    Android's page of CONV_2D), and the file format does not, so that the file itself has int8.

    signed_ports: whether inputs and outputs stay as they are, as the library hands them over.
    """

    def __init__(self, data: bytes, signed_ports: bool) -> None:
        super().__init__(data)
        signed = {*self.inputs, *self.outputs} if signed_ports else set()
        # Constants that change lie behind the file; constants beside them are read from the file as before.
        content = bytearray(data)
        self.tensors = tuple(
            tensor if number in signed else self._shift(tensor, content)
            for number, tensor in enumerate(self.tensors)
        )
        self.data = bytes(content)

    def _shift(self, tensor: LiteTensor, content: bytearray) -> LiteTensor:
        """Return a tensor as uint8 if it is int8 of one scale; its data are added to the content."""
        if tensor.type != tflite.TensorType.INT8 or len(tensor.scales) != 1:
            return tensor
        offset = 0
        if tensor.is_constant:
            offset = len(content)
            # Widened first, because int8 does not hold the sum.
            content += (self.read(tensor).astype(np.int16) + OFFSET).astype(np.uint8).tobytes()
        zero_points = (tensor.zero_points[0] + OFFSET,)
        return replace(tensor, type=tflite.TensorType.UINT8, zero_points=zero_points, offset=offset)
