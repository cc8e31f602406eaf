"""The MAX78000: a network becomes weights, registers and a C project for its CNN accelerator."""
