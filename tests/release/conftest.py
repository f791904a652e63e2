"""An image for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.image import write_image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A docker archive."""
    return write_image(tmp_path_factory.mktemp("image") / "image.tar")
