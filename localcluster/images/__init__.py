"""Container images: built from the Dockerfile, imported into a node, and shared between nodes."""
