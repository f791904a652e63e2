"""How long a training of one step takes in a trainer image, from the start of Python to its end, beside another image.

    python benchmarks/image_start.py OLD.tar NEW.tar [--rounds 7]

The archives are those that `make images` prints. Both take turns, in a container each, with one rank. The first round
reads the files from the disk and is not counted. Needs root and buildah.
"""

import argparse
import time
from pathlib import Path

from cluster_client import median

from localcluster.images.builder import Buildah

# The data set is in the image.
PROGRAM = "exec python -m horovodjob_trainer --dataset digits --max-steps 1 --dir $(mktemp -d)"


def seconds(buildah: Buildah, container: str) -> float:
    """What one start takes. Raises ImageError."""
    started = time.monotonic()
    buildah.output("run", "--isolation", "chroot", "--user", "1000", container, "--", "sh", "-c", PROGRAM)
    return time.monotonic() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs=2, type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    buildah = Buildah()
    sources = [f"docker-archive:{archive}" for archive in arguments.archives]
    containers = [buildah.output("from", *buildah.signatures, source).split()[-1] for source in sources]
    try:
        rounds = [[seconds(buildah, container) for container in containers] for _ in range(arguments.rounds + 1)][1:]
    finally:
        buildah.output("rm", *containers)
    for archive, times in zip(arguments.archives, zip(*rounds, strict=True), strict=True):
        shown = f"{median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"
        print(f"{archive.name}  {archive.stat().st_size:,} bytes  {shown}")
    print(f"new to old, in the middle of the rounds: {median([new / old for old, new in rounds]):.2f}")


if __name__ == "__main__":
    main()
