"""The pages of the site, from the Markdown files of the repository: links lead to pages, other files to the repository.

A hook of MkDocs. The files stay as they read on GitHub, and the site has no copy of them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Pages outside of docs/, by their path in the repository.
OTHERS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "charts/horovodjob-operator/README.md": "chart-operator.md",
    "charts/horovodjob/README.md": "chart-job.md",
}
SOURCES = {page: source for source, page in OTHERS.items()}
LINK = re.compile(r"(\]\()([^()\s#:]+)(#[^()\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `OTHERS`."""
    for source, page in OTHERS.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point each link at the page of its target, or at the repository."""
    own = page.file.src_uri
    folder = posixpath.dirname(SOURCES.get(own, f"docs/{own}"))

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not (ROOT / target).exists():
            return link[0]  # code, or an error that MkDocs reports
        found = OTHERS.get(target) or target.removeprefix("docs/")
        if files.get_file_from_path(found) and (target in OTHERS or target.startswith("docs/")):
            found = posixpath.relpath(found, posixpath.dirname(own) or ".")
        else:
            found = f"{config.repo_url}/tree/HEAD/{target}"
        return f"{link[1]}{found}{link[3] or ''}{link[4]}"

    return LINK.sub(rewritten, markdown)
