"""The vendor's rules as data: a table for each generation, and the checks that the rules name."""
