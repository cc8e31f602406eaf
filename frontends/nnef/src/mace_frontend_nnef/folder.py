"""What NNEF calls the files in the folder of a model."""

GRAPH = "graph.nnef"
"""The description."""

QUANTIZATION = "graph.quant"
"""How tensors are quantized."""
