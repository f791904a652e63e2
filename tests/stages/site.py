"""The site of the documentation, built by MkDocs, which an environment of its own has (site/uv.lock)."""

from __future__ import annotations

from stages.commands import call
from stages.python_environment import find_python, find_uv
from stages.settings import CACHE, ROOT


def build_site() -> None:
    """Build the site into build/site. Raises StageError at a link without a target, and at a page without a place."""
    python = find_python()
    uv = find_uv(python)
    run = (uv, "run", "--quiet", "--frozen", "--python", python, "--project", ROOT / "site")
    environment = {"UV_PROJECT_ENVIRONMENT": str(CACHE / "site"), "NO_MKDOCS_2_WARNING": "1"}
    call(*run, "mkdocs", "build", "--strict", **environment)  # with --quiet, it ignores what --strict ends at
