"""Estimates what nodes cost on an MDLA, from published rates; unvalidated on hardware."""
