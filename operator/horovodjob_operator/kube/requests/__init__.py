"""Single requests to the API server, their errors and repetitions."""
