"""The base image: a minimal Debian with security updates, from debootstrap. The same packages have the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from localcluster.images.builder import IMAGES, SUITE, Buildah, log_progress, new_log, run_logged, system_path
from localcluster.machine.mounts import unmount_below

# A new number builds the base image again on all machines.
BASE_VERSION = 2
BASE_IMAGE = f"localhost/horovodjob/base:{SUITE}-{BASE_VERSION}"
# Directories that the official slim image does not contain either; like it, this image contains the licences.
UNWANTED = ("usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")
DOCUMENTS, LICENCE = "usr/share/doc", "copyright"
DPKG_RULES = (
    "".join(f"path-exclude /{path}/*\n" for path in (*UNWANTED, DOCUMENTS)) + f"path-include /{DOCUMENTS}/*/{LICENCE}\n"
)
# Directories whose contents differ between machines or installations.
VOLATILE = ("var/cache/apt", "var/cache/debconf", "var/cache/ldconfig", "var/lib/apt/lists", "var/log")


def make_base(buildah: Buildah) -> None:
    """Build the base image unless the storage has it. Raises ImageError."""
    if buildah.has(BASE_IMAGE):
        return
    archive = IMAGES / f"base-{SUITE}-{BASE_VERSION}.tar"
    if not archive.exists():
        log_progress(f"base image: Debian {SUITE}, about a minute")
        with tempfile.TemporaryDirectory(prefix="rootfs-", dir=IMAGES) as folder:
            os.chmod(folder, 0o755)
            fill_root(Path(folder), new_log("base"))
            partial = archive.with_suffix(".partial")
            pack = ["tar", "-C", folder, "--numeric-owner", "--sort=name", "--mtime=@0", "-cf", str(partial), "."]
            run_logged(pack, new_log("base-archive"))
            partial.replace(archive)
    with tempfile.TemporaryDirectory(prefix="context-", dir=IMAGES) as folder:
        os.link(archive, Path(folder, "base.tar"))
        Path(folder, "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
        buildah.build(BASE_IMAGE, Path(folder), new_log("base-image"))


def debian_sources() -> dict[str, str]:
    """The addresses from which this machine installs packages of the suite, its updates and its security updates.

    Empty if this machine has another Debian: then debootstrap uses its default.
    """
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())
    return {suite: found[suite] for suite in (SUITE, f"{SUITE}-updates", f"{SUITE}-security") if suite in found}


def fill_root(root: Path, log: Path) -> None:
    """Install a minimal Debian with security updates into a folder."""
    environment = {**os.environ, "PATH": system_path(), "DEBIAN_FRONTEND": "noninteractive", "SOURCE_DATE_EPOCH": "0"}
    sources = debian_sources()
    try:
        command = ["debootstrap", "--variant=minbase", SUITE, str(root)]
        run_logged([*command, *([sources[SUITE]] if SUITE in sources else [])], log, env=environment)
    finally:
        unmount_below(root)  # debootstrap leaves /proc mounted when it is interrupted
    if SUITE in sources:
        lines = [f"deb {site} {suite} main\n" for suite, site in sources.items()]
        (root / "etc/apt/sources.list").write_text("".join(lines))
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(DPKG_RULES)
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # packages start no services
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    for step in (["apt-get", "update"], ["apt-get", "-y", "--no-install-recommends", "dist-upgrade"]):
        run_logged(["chroot", str(root), *step], log, env={**environment, "LC_ALL": "C"})
    for name in ("etc/resolv.conf", "etc/hostname"):
        (root / name).write_text("")
    for path in [path for name in (*UNWANTED, *VOLATILE) for path in (root / name).glob("*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in list((root / DOCUMENTS).rglob("*")):
        if path.name != LICENCE and (path.is_file() or not path.exists()):
            path.unlink()
