"""What `hvj`, the dashboard and `horovodjob.Client` do with a cluster. Imports neither typer nor rich."""
