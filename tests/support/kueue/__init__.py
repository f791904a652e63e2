"""Kueue as the operator sees it: its definitions, and a part that acts in its place."""
