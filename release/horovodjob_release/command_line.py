"""The commands of `python release`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from horovodjob_release.changelog import notes
from horovodjob_release.errors import ReleaseError
from horovodjob_release.images import ROLES, image_digest
from horovodjob_release.publication import Publication
from horovodjob_release.steps import build_release
from horovodjob_release.version import project_version, set_version
from localcluster.errors import ClusterError
from localcluster.images.builder import ImageError
from stages.settings import StageError

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and give the exit code."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (ReleaseError, ImageError, ClusterError, StageError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    made = argparse.ArgumentParser(prog="release", description="Build what a release consists of.")
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build everything into a new directory")
    build.add_argument("--dist", type=Path, default=ROOT / "dist", help="directory, replaced if it exists (dist/)")
    build.add_argument("--registry", default="", help="registry that charts and manifests name, such as ghcr.io/team")
    build.add_argument("--project", default="", help="OWNER/REPOSITORY on GitHub, for the links of the charts")
    build.set_defaults(run=_build)
    version = commands.add_parser("version", help="print the version, or set it everywhere")
    version.add_argument("new", nargs="?", help="as in 1.2.3")
    version.set_defaults(run=_version)
    text = commands.add_parser("notes", help="print what CHANGELOG.md has about this version")
    text.set_defaults(run=lambda _: print(notes(ROOT, project_version(ROOT))))
    digest = commands.add_parser("digest", help="build an image in a cache of its own and print its digest")
    digest.add_argument("role", choices=ROLES)
    digest.add_argument("--cache", type=Path, help="directory for the build; by default one that is deleted again")
    digest.add_argument("--project", default="", help="as for build: it is a label of the image")
    digest.set_defaults(run=_digest)
    return made


def _build(options: argparse.Namespace) -> None:
    build_release(ROOT, options.dist, Publication(options.registry, options.project))


def _digest(options: argparse.Namespace) -> None:
    print(image_digest(ROOT, options.role, Publication(project=options.project), options.cache))


def _version(options: argparse.Namespace) -> None:
    if options.new:
        for path in set_version(ROOT, options.new):
            print(f"{path.relative_to(ROOT)}", file=sys.stderr)
    print(project_version(ROOT))
