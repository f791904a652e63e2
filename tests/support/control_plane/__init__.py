"""Control planes without nodes, the parts that act in place of nodes, and their fixtures."""
