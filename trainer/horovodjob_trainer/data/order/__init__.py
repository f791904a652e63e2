"""The order of the examples, a function of the seed and the position."""
