"""Builds the images of the project, and loads them into a local cluster.

    python3 localcluster/images build [operator|dashboard|hvj|trainer|trainer-gpu|mpi|all]...
    python3 localcluster/images load  [operator|dashboard|hvj|trainer|trainer-gpu|mpi|all]...  builds missing ones first
    python3 localcluster/images names [operator|dashboard|hvj|trainer|trainer-gpu|mpi|all]...  builds nothing

`all`, the default, are the images that the tests need: not the trainer for GPUs, which takes 25 GB of the disk. Each
command prints JSON: image, archive and built for each role. The names change with the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    # As a program, Python imports from this directory instead of the root of the project.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from localcluster.images.builder import ImageError, log_progress
from localcluster.images.project import INPUTS, ROOT, TESTED, Image, build, image


def load(wanted: list[Image]) -> None:
    """Load images into the local cluster that CLUSTER_NAME names."""
    archives = [str(one.archive) for one in wanted if one.archive]
    if archives:
        name = os.environ.get("CLUSTER_NAME", "main")
        command = [sys.executable, str(ROOT / "localcluster"), "--name", name, "load-image", *archives]
        subprocess.run(command, check=True, stdout=sys.stderr)


def report(wanted: list[Image]) -> None:
    """Print the images as JSON, and the sizes of archives as progress."""
    found = {}
    for one in wanted:
        if one.archive and one.archive.exists():
            log_progress(f"{one.name}  {one.archive.stat().st_size / 1e6:.0f} MB")
        archive = str(one.archive) if one.archive else None
        found[one.role] = {"image": one.name, "archive": archive, "built": one.built}
    print(json.dumps(found, indent=2))


def main() -> int:
    """Run one command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=["build", "load", "names"])
    parser.add_argument("roles", nargs="*", choices=[*INPUTS, "all"], default="all")
    arguments = parser.parse_args()
    roles = list(TESTED) if "all" in arguments.roles else arguments.roles
    # SIGTERM raises SystemExit, so that the build cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        wanted = [image(role) for role in roles] if arguments.action == "names" else build(roles)
        if arguments.action == "load":
            load(wanted)
        report(wanted)
    except (ImageError, subprocess.CalledProcessError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
