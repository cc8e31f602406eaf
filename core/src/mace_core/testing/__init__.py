"""What plugin authors test with: the same cases and contracts that our own plugins run."""
