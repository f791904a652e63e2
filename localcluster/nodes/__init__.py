"""The nodes of a cluster: which there are, their components, and additional nodes."""
