"""The formats of data sets."""
