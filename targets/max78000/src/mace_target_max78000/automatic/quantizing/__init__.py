"""From a graph of real numbers to one that the accelerator computes: equalised, measured, and rounded to steps of powers of two."""
