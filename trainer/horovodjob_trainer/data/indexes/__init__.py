"""Indexes of the files of a data set, which later starts read instead of the files."""
