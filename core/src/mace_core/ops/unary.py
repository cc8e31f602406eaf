"""Element-wise ops of one input."""

from __future__ import annotations

import numpy as np

from mace_core.ops.op import Op
from mace_core.ops.shapes import keep, same

OPS = (Op("Relu", ("x",), ("y",), same, lambda x: np.maximum(x, x.dtype.type(0)), move=keep),)
