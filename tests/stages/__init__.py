"""The stages of `make test`. Standard library only: they run before anything of the project is installed."""
