"""The reading and decoding of examples."""
