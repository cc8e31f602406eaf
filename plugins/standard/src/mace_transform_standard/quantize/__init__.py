"""Transforms that compute on stored integers what a model only describes as quantized."""
