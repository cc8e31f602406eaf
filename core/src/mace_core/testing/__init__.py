"""Tests for authors of plugins: the cases and contracts that the plugins of this repository run."""
