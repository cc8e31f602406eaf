"""The parts of placing layers: what lies in data memory, which layers must be inserted, which processors work, where data lie."""
