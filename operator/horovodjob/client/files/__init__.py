"""Files of jobs and shares."""
