"""Lowerings of ops over tensors that store real numbers as integers; each module offers its `LOWERINGS`.

Sums are exact, and a result is rounded once, by the same operations as on the CPU: its library and this one
give the same bits. What has no lowering here runs as floats between Dequantize and Quantize.
"""
