"""The pages of the dashboard and their addresses, a module for each kind of page."""
