"""Builds what a release consists of. Needs the repository; nothing here is part of a distribution."""
