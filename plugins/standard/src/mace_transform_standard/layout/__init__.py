"""Transforms that give a model one order of axes, and those that need the order of its framework."""
