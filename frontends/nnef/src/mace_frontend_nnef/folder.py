"""Names the files in the folder of a model (NNEF 1.0.5, chapter 5)."""

GRAPH = "graph.nnef"
"""The description of the graph."""

QUANTIZATION = "graph.quant"
"""States how tensors are quantized; a model without it computes in floats."""
