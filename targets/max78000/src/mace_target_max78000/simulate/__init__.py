"""Simulates the CNN accelerator of both chips at the level of registers: writes go in, memory comes out.

It decodes everything from registers and memories and knows nothing of the network that they were made from.
It computes what, not when:

- Layers run one after another, streaming ones too.  The pipeline, ready-select, clocks and the FIFOs'
  thresholds are accepted and change nothing; a FIFO is never full.
- What only time decides is checked instead where every working program fulfils it: where a stream begins, how
  long it waits after each column and row at least, that its buffer is large enough and overlaps no other.  A
  layer that overwrites input which it still has to read gets what it wrote, and is refused where that goes on
  and on.
- Quadrants must agree in what is not each one's own, and registers that say the same thing twice must say the
same.
- A word is written whole: bytes of slots that no channel uses become 0.
- Not modeled, and refused: the snoop registers of conditional layers, depthwise layers that read ahead,
  kernels that are not 3x3 in layers that compute four channels at once, 32-bit results of layers that do not
  sum over processors.  The memories' self-test is not modeled either.
"""

from __future__ import annotations

from mace_target_max78000.simulate.accelerator import Simulator, find_mismatches, infer_again, replay
from mace_target_max78000.simulate.memory import NotModeledError, SimulationError

__all__ = ["NotModeledError", "SimulationError", "Simulator", "find_mismatches", "infer_again", "replay"]
