"""Lowerings of ops over quantized tensors that have the bits of LiteRT's reference kernels.

They are those of graphs with `numerics: tflite-reference`.

Products differ from those of `quantized` in their factors only. What has no lowering here is refused, unless
it only moves elements: no float stands in for a kernel that is not imitated.
"""
