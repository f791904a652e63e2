"""The HTTP servers of the operator."""
