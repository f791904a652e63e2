"""Options of a job that replace what its file has."""

import inspect
from collections.abc import Callable
from typing import Any

from horovodjob.client.jobs.manifests import Overrides, nfs_servers
from horovodjob_cli.options import (
    AsWorker,
    Cluster,
    Experiment,
    FileServers,
    GpusOfFile,
    ImageOfFile,
    NamespaceOfFile,
    PodSecurityLevel,
    StorageAccountKey,
    StorageAccountName,
    with_options,
)


def overrides_of(
    cluster: Cluster = None,
    experiment: Experiment = None,
    namespace: NamespaceOfFile = None,
    storage_account_name: StorageAccountName = None,
    storage_account_key: StorageAccountKey = None,
    image: ImageOfFile = None,
    gpus: GpusOfFile = None,
    pod_security: PodSecurityLevel = None,
    as_worker: AsWorker = None,
    nfs_server: FileServers = None,
) -> Overrides:
    """What the options replace. Raises UsageError."""
    return Overrides(
        namespace=namespace,
        experiment=experiment,
        pool=cluster,
        image=image,
        gpus=gpus,
        pod_security=pod_security,
        as_worker=as_worker,
        storage_account=storage_account_name,
        storage_key=storage_account_key,
        nfs_servers=nfs_servers(nfs_server),
    )


def with_overrides(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replaces the parameter `overrides` of a command with these options, of which it can leave some out."""
    every = inspect.signature(overrides_of, eval_str=True).parameters
    options = {name: each for name, each in every.items() if name not in without}
    return lambda function: with_options(function, "overrides", options, overrides_of)
