"""The stages of `make test`. Standard library only: they run before the project is installed."""
