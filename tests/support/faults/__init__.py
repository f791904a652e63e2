"""A proxy in front of the API server that loses, delays and rejects requests."""
