"""What the watches and the responses to writes have shown."""
