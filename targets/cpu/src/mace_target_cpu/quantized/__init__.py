"""Lowerings of ops over tensors that store real numbers as integers.

Sums of products are exact in 32-bit integers. A result is rounded once, from a float32 that carries 24 bits,
to what its
tensor stores: the nearest integer, a tie to the even one. What has no lowering here runs as floats between
Dequantize and Quantize (see `KernelTarget`).
"""
