"""Lowerings of the core's ops, one family a module; each module offers its own as `LOWERINGS`."""
