"""A program written out: as C code, later also as a model file."""
