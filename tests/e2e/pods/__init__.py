"""The pods of a job: where they run, who reaches them, and what is beside them."""
