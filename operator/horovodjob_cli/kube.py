"""The cluster, through the official client and the user's kubeconfig.

Objects are plain dicts as in YAML. The client's exceptions pass through: `errors` makes sentences of them.
"""

import functools
import os
from pathlib import Path
from typing import Any

from horovodjob.api.vocabulary import GROUP, LABEL_JOB, LABEL_JOB_UID, LABEL_REPLICA_INDEX, LABEL_ROLE, PLURAL, VERSION
from horovodjob.batchai import names
from horovodjob.batchai.names import DNS_LABEL_LENGTH, JOB_NAME_LENGTH
from horovodjob_cli.errors import CliError, NotFound, UsageError

Object = dict[str, Any]
JOBS = {"group": GROUP, "version": VERSION, "plural": PLURAL}
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MERGE_PATCH = "application/merge-patch+json"
_chosen: dict[str, str | None] = {"config_file": None, "context": None}


def choose(kubeconfig: str | None, context: str | None) -> None:
    """Use this kubeconfig and this context of it instead of the default ones."""
    _chosen.update(config_file=kubeconfig, context=context)
    client.cache_clear()


@functools.cache
def client() -> Any:
    """The API client for `CoreV1Api(client())` and the like."""
    from kubernetes import config
    from kubernetes.client import ApiClient, Configuration

    configuration = Configuration()
    if _in_cluster():
        config.load_incluster_config(client_configuration=configuration)
    else:
        _require_kubeconfig()
        config.load_kube_config(client_configuration=configuration, persist_config=False, **_chosen)
    api_client = ApiClient(configuration)
    api_client.user_agent = "hvj"
    return api_client


def core() -> Any:
    """Pods, nodes, namespaces, Secrets."""
    from kubernetes.client import CoreV1Api

    return CoreV1Api(client())


def custom() -> Any:
    """HorovodJobs: `custom().get_namespaced_custom_object(**JOBS, namespace=..., name=...)`."""
    from kubernetes.client import CustomObjectsApi

    return CustomObjectsApi(client())


def plain(model: Any) -> Any:
    """An object of the client's model, or a list of them, as plain data with the names of YAML."""
    return client().sanitize_for_serialization(model)


def namespace(workspace: str | None) -> str:
    """The workspace's namespace, or that of the context."""
    if workspace is not None:
        return resource_name(workspace, DNS_LABEL_LENGTH)
    if _in_cluster():
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    return str(active_context().get("namespace") or "default")


def active_context() -> Object:
    """Cluster, user and perhaps namespace of the context in use."""
    from kubernetes import config

    _require_kubeconfig()
    contexts, active = config.list_kube_config_contexts(config_file=_chosen["config_file"])
    wanted = _chosen["context"]
    if wanted is None:
        return dict(active["context"])
    for context in contexts:
        if context["name"] == wanted:
            return dict(context["context"])
    raise CliError(f"the kubeconfig has no context {wanted}; `kubectl config get-contexts` lists them")


def resource_name(name: str, length: int = JOB_NAME_LENGTH) -> str:
    """The Kubernetes name for a name of Batch AI, which may have capitals and underscores."""
    try:
        return names.resource_name(name, length)
    except ValueError as error:
        raise UsageError(str(error)) from None


def job(name: str, workspace: str | None) -> Object:
    """The HorovodJob. Raises NotFound."""
    from kubernetes.client import ApiException

    where = namespace(workspace)
    try:
        found: Object = custom().get_namespaced_custom_object(**JOBS, namespace=where, name=resource_name(name))
    except ApiException as error:
        if error.status == 404 and PLURAL in str(error.body):
            raise NotFound(f"job {name} does not exist in workspace {where}; see `hvj job list`") from None
        raise
    return found


def pods(job: Object) -> list[Object]:
    """The pods that the operator made for this very HorovodJob: the launcher, then workers by index."""
    metadata = job["metadata"]
    selector = f"{LABEL_JOB}={metadata['name']},{LABEL_JOB_UID}={metadata['uid']}"
    found = plain(core().list_namespaced_pod(metadata["namespace"], label_selector=selector).items)
    return sorted(found, key=_role_and_index)


def _role_and_index(pod: Object) -> tuple[str, int]:
    labels = pod["metadata"]["labels"]
    return labels[LABEL_ROLE], int(labels[LABEL_REPLICA_INDEX])


def _require_kubeconfig() -> None:
    # The client's own words for a missing file name neither the file nor a remedy.
    chosen = _chosen["config_file"]
    paths = [chosen] if chosen else os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)
    if not any(path and Path(path).expanduser().is_file() for path in paths):
        raise CliError(f"no kubeconfig at {' or '.join(filter(None, paths))}; name one with --kubeconfig or KUBECONFIG")


def _in_cluster() -> bool:
    """Whether there is nothing but the service account of the pod that we run in."""
    configured = _chosen["config_file"] or os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    return not configured and "KUBERNETES_SERVICE_HOST" in os.environ
