"""Servers that speak Azure's protocols, for tests that run the real SDKs against them."""
