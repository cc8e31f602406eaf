"""Lowerings of the core's ops to OpenCL kernels, one family a module; each offers its own as `LOWERINGS`."""
