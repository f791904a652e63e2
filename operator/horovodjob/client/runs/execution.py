"""A run as a job."""

from collections.abc import Sequence
from typing import Any

from horovodjob.client.jobs import job_creation
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display
from horovodjob.client.runs import claim_code, share_code
from horovodjob.client.runs.job_manifest import RunSubmission, submission
from horovodjob.client.runs.request import RunRequest

Object = dict[str, Any]


def create(request: RunRequest, namespace: str, limit: WaitLimit, display: Display) -> Object:
    """The new job of the request, after its code has been sent. Raises ClientError."""
    made = submission(request, namespace)
    job_creation.check(made)
    send_code(request, made, limit, display)
    job = job_creation.create(made)
    if made.note:
        display.message(made.note)
    return job


def send_code(request: RunRequest, made: RunSubmission, limit: WaitLimit, display: Display) -> None:
    """Send the files of the directory that the share or claim of the request does not have.

    The job mounts a share with the Secret of the account, which is created if it is missing and the key is known.
    """
    namespace = made.job["metadata"]["namespace"]
    show_left_out(made.left_out, display)
    share, claim = request.options.get("share"), request.options.get("claim")
    if made.tree and share:
        share_code.send(share, request.account, namespace, made.tree, display)
        if secret := share_code.key_secret(request.account, namespace):
            job_creation.create_missing(secret)
    elif made.tree and claim:
        claim_code.check(claim, namespace)
        claim_code.send(claim, made.tree, made.job, limit, display)


def show_left_out(names: Sequence[str], display: Display) -> None:
    """Name the directories that are left out by default."""
    shown = [name for name in names if name != ".git/"]
    if shown:
        display.message(f"left out by default: {', '.join(shown)}; a line such as !{shown[0]} in .hvjignore sends it")
