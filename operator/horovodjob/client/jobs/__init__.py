"""Jobs: their files, creation, logs and records."""
