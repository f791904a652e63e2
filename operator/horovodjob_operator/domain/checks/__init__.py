"""The checks that decide what state a job is in, in the order of their table."""
