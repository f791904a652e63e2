"""Examples in the memory of a node."""
