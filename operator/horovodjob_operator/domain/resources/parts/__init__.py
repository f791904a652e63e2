"""What the manifests of several objects share. Pure."""
