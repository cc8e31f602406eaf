"""The MAX78002: the MAX78000 target with another table of constants."""
