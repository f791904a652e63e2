"""A run as a job: created, or printed for Git."""

from pathlib import Path
from typing import Any

from horovodjob_cli.jobs import job_creation
from horovodjob_cli.jobs.manifests import Submission
from horovodjob_cli.runs import share_code
from horovodjob_cli.runs.directory import code_files
from horovodjob_cli.runs.job_manifest import submission
from horovodjob_cli.runs.request import RunRequest

Object = dict[str, Any]


def create(request: RunRequest, namespace: str, *, quiet: bool = True) -> Object:
    """The new job of the request, after its code has been sent. Raises CliError."""
    made = submission(request, namespace)
    job_creation.check(made)
    send_to_share(request, namespace, quiet=quiet)
    return job_creation.create(made)


def send_to_share(request: RunRequest, namespace: str, *, quiet: bool) -> None:
    """Send the files of the directory that the share does not have, if the request names a share.

    The job mounts the share with the Secret of the account, which is created if it is missing and the key is known.
    """
    if request.share:
        listed, sources = share_code.tree(code_files(request.workdir or Path()))
        share_code.send(request.share, request.account, namespace, listed, sources, quiet=quiet)
        if secret := share_code.key_secret(request.account, namespace):
            job_creation.create_missing(secret)


def yaml_text(made: Submission) -> str:
    """All objects of the job as YAML documents, in the order in which they can be applied."""
    import yaml

    documents = [*made.secrets, *made.config_maps, made.job]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=1 << 20))
