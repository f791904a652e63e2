"""The objects that belong to a job: their creation, change and deletion."""
