"""The operator and jobs as charts and the documentation install them."""
