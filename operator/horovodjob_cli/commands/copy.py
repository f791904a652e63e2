"""`hvj cp`: files to a PersistentVolumeClaim and back, without a job."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.client.cluster import kube
from horovodjob.client.errors import UsageError
from horovodjob.client.files import claim_files
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob_cli.commands import command
from horovodjob_cli.display.transfer_bars import TerminalDisplay
from horovodjob_cli.options import Namespace, Quiet, Timeout
from horovodjob_cli.tables import TRANSFER_TABLE

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["--help", "-h"]})
ON_CLAIM = re.compile(r"([a-z0-9][-a-z0-9.]*):(.*)", re.DOTALL)
DRIVE = re.compile(r"[a-z]:[\\/]")


@command(app, "cp", table=TRANSFER_TABLE)
def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="File or directory, or CLAIM:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="CLAIM:PATH, or a place on this machine.")],
    namespace: Namespace = None,
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image with sh and tar for the pod. Default: that of jobs.")
    ] = "",
    quiet: Quiet = False,
    timeout: Timeout = None,
) -> Any:
    """Copy a file or a directory to a PersistentVolumeClaim, as CLAIM:PATH, or from one.

    A short-lived pod mounts the claim, and is deleted afterwards. The files of a directory are put into the directory
    PATH; with an empty PATH, or one that ends with a slash, the source keeps its name below it.
    """
    of_source, of_target = on_claim(source), on_claim(target)
    if (of_source is None) is (of_target is None):
        raise UsageError("one of SOURCE and TARGET is on a claim, as CLAIM:PATH, such as training-data:pets")
    where, limit, display = kube.namespace(namespace), WaitLimit(timeout), TerminalDisplay(quiet=quiet)
    if of_target:
        return claim_files.upload(*of_target, Path(source), where, image, limit, display)
    return claim_files.download(*(of_source or ("", "")), Path(target), where, image, limit, display)


def on_claim(word: str) -> tuple[str, str] | None:
    """Claim and path of CLAIM:PATH; None for a path of this machine. Raises UsageError."""
    found = ON_CLAIM.fullmatch(word)
    if not found or (os.name == "nt" and DRIVE.match(word)):
        return None
    if ".." in found[2].split("/"):
        raise UsageError(f"{word}: a path on a claim has no `..`")
    return found[1], found[2]
