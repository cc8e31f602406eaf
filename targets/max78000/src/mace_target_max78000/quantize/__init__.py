"""Quantizes a graph of real numbers: each tensor counts steps of a power of two.

The hardware can only shift after a sum, so it knows no other scales.

The stages, in the order in which `plan.calibrate` calls them:

1. `real_graph`: remove the storage that the graph came with, split means that are too large for a pool, and
   scale channels between layers so that 8 bits lose less. What is computed stays the same.
2. `calibrate`: run samples, and choose the power of two of each tensor.
3. `weights`: round each layer's weights and bias together.
4. `plan`: compare the ways to equalize on the samples, and write the quantized graph.
"""
