"""The firmware's processor, emulated; the accelerator beside it is whatever object is given."""
