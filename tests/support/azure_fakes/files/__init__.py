"""A fake of Azure Files: its REST service over directories on disk."""
