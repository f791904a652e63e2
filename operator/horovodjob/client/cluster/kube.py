"""The cluster, through the official client and the user's kubeconfig, or through a client that a server gives.

Objects are plain dicts as in YAML. The client's exceptions pass through: `errors` makes sentences of them.
"""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from horovodjob.api.constants import (
    GROUP,
    LABEL_EXPERIMENT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_REPLICA_INDEX,
    LABEL_ROLE,
    PLURAL,
    VERSION,
    Role,
)
from horovodjob.batchai import names
from horovodjob.batchai.names import ANNOTATION_NAME, DNS_LABEL_LENGTH, JOB_NAME_LENGTH
from horovodjob.client.cluster import connections, kubeconfig
from horovodjob.client.errors import ClientError, NotFound, UsageError

Object = dict[str, Any]
JOBS = {"group": GROUP, "version": VERSION, "plural": PLURAL}
MERGE_PATCH = "application/merge-patch+json"
# A page is in memory three times while it is read: as bytes, as text and as objects.
OBJECTS_OF_A_PAGE = 200
LIST_SECONDS = (10, 60)


class Access(NamedTuple):
    """A kubeconfig and one of its contexts, where they are not the default ones."""

    config_file: str | None = None
    context: str | None = None


DEFAULT_ACCESS = Access()
# A context variable, so that a program can use several clusters at the same time.
_chosen = ContextVar("access", default=DEFAULT_ACCESS)


def choose(config_file: str | None, context: str | None) -> None:
    """Use this kubeconfig and this context of it instead of the default ones, in the current context of Python."""
    _chosen.set(Access(config_file, context))
    _client.cache_clear()


def refine(config_file: str | None, context: str | None) -> None:
    """Replace the chosen kubeconfig, its context, or both; None keeps what was chosen."""
    before = _chosen.get()
    choose(config_file or before.config_file, context or before.context)


@contextlib.contextmanager
def using(api_client: Any) -> Iterator[None]:
    """Within the block, requests are those of this client: a server's, which answers many users."""
    token = connections.own_client.set(api_client)
    try:
        yield
    finally:
        connections.own_client.reset(token)


def client() -> Any:
    """The API client for `CoreV1Api(client())` and the like."""
    return connections.own_client.get() or _client(_chosen.get())


@functools.lru_cache(8)
def _client(access: Access) -> Any:
    from kubernetes import config
    from kubernetes.client import ApiClient, Configuration

    configuration = Configuration()
    if kubeconfig.is_replaced_by_service_account(access.config_file):
        config.load_incluster_config(client_configuration=configuration)
    else:
        with kubeconfig.readable(access.config_file) as path:
            config.load_kube_config(path, access.context, configuration, persist_config=False)
    configuration.retries = connections.without_redirects(3)
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
    """An object or list of the client's models as plain data with the field names of YAML."""
    return client().sanitize_for_serialization(model)


def namespace(name: str | None) -> str:
    """The namespace with this name, also one of Batch AI, or that of the kubeconfig's context."""
    if name is not None:
        return resource_name(name, DNS_LABEL_LENGTH)
    if kubeconfig.is_replaced_by_service_account(_chosen.get().config_file):
        return kubeconfig.SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    return str(active_context().get("namespace") or "default")


def active_context() -> Object:
    """Cluster, user and optional namespace of the active context."""
    from kubernetes import config

    with kubeconfig.readable(_chosen.get().config_file) as path:
        contexts, active = config.list_kube_config_contexts(path)
    wanted = _chosen.get().context
    if wanted is None:
        return dict(active["context"])
    for context in contexts:
        if context["name"] == wanted:
            return dict(context["context"])
    raise ClientError(f"the kubeconfig has no context {wanted}; `kubectl config get-contexts` lists them")


def resource_name(name: str, length: int = JOB_NAME_LENGTH) -> str:
    """The Kubernetes name for a name of Batch AI, which may have capitals and underscores."""
    try:
        return names.resource_name(name, length)
    except ValueError as error:
        raise UsageError(str(error)) from None


def job(name: str, in_namespace: str | None, experiment: str | None = None) -> Object:
    """The HorovodJob with this name, of Kubernetes or of Batch AI. Raises NotFound."""
    where = namespace(in_namespace)
    found = find_job(resource_name(name), where)
    if found is None:
        check_namespace(where)
    if found is None or not has_name(found, name):
        raise NotFound(f"job {name} does not exist in namespace {where}; see `hvj job list`")
    if experiment and found["metadata"].get("labels", {}).get(LABEL_EXPERIMENT) != names.label_value(experiment):
        raise NotFound(f"job {name} of namespace {where} is not in experiment {experiment}; see `hvj job list`")
    return found


def has_name(found: Object, name: str) -> bool:
    """Whether the object has this Batch AI or Kubernetes name: Cifar and cifar differ, and share a Kubernetes name."""
    original = found["metadata"].get("annotations", {}).get(ANNOTATION_NAME)
    return original in (None, name) or found["metadata"]["name"] == name


def find_job(name: str, namespace: str) -> Object | None:
    """The HorovodJob with this Kubernetes name, if there is one."""
    from kubernetes.client import ApiException

    try:
        return dict(custom().get_namespaced_custom_object(**JOBS, namespace=namespace, name=name))
    except ApiException as error:
        if error.status == 404 and PLURAL in str(error.body):
            return None
        raise


def page(list_objects: Callable[..., Any], selection: Mapping[str, Any]) -> Object:
    """A page of a list; its metadata has the token of the next one as `continue`."""
    from kubernetes.client import ApiException

    # The models of the client take several times as long as JSON.
    options: Object = {"limit": OBJECTS_OF_A_PAGE, "_preload_content": False, "_request_timeout": LIST_SECONDS}
    response = list_objects(**selection, **options)
    if response.status != 200:
        raise ApiException(http_resp=response)
    return dict(json.loads(response.data))


def jobs(namespace: str, experiment: str | None = None) -> list[Object]:
    """The HorovodJobs of a namespace, or of an experiment in it, by age. Raises NotFound without the namespace."""
    return sorted(each_job(namespace, experiment), key=age_key)


def each_job(namespace: str | None, experiment: str | None = None) -> Iterator[Object]:
    """The HorovodJobs of a namespace or of all, or of experiments with this name, in no order.

    Reads them in pages, and holds one. Raises NotFound without the namespace.
    """
    selection: Object = {**JOBS, "_continue": None}
    selection["label_selector"] = f"{LABEL_EXPERIMENT}={names.label_value(experiment)}" if experiment else ""
    list_objects = custom().list_cluster_custom_object
    if namespace is not None:
        list_objects, selection["namespace"] = custom().list_namespaced_custom_object, namespace
    is_empty = True
    while True:
        listing = page(list_objects, selection)
        items, selection["_continue"] = listing.pop("items"), listing["metadata"].get("continue")
        is_empty = is_empty and not items
        yield from items
        items.clear()  # before the next page is read
        if not selection["_continue"]:
            break
    if is_empty and namespace is not None:
        check_namespace(namespace)


def check_namespace(namespace: str) -> None:
    """Raises NotFound, with similar names, if the namespace does not exist and the user may see this."""
    from difflib import get_close_matches

    from kubernetes.client import ApiException

    try:
        core().read_namespace(namespace)
    except ApiException as error:
        if error.status != 404:
            return
    else:
        return
    try:
        existing = [each["metadata"]["name"] for each in plain(core().list_namespace())["items"]]
    except ApiException:
        existing = []
    similar = get_close_matches(namespace, existing, n=3)
    hint = f"similar names are {', '.join(similar)}" if similar else "see `kubectl get namespaces`"
    create = f"`hvj workspace create -w {namespace}` creates it"
    raise NotFound(f"namespace {namespace} does not exist; {hint}; {create}")


def events(object_: Object) -> list[Object] | None:
    """The events of an object, the oldest first; None if the user may not read them."""
    from kubernetes.client import ApiException

    try:
        return read_events(object_)
    except ApiException as error:
        if error.status != 403:
            raise
        return None


def read_events(object_: Object) -> list[Object]:
    """The events of an object, the oldest first. Raises ApiException without the right to read them."""
    metadata = object_["metadata"]
    selector = f"involvedObject.uid={metadata['uid']}"
    found = plain(core().list_namespaced_event(metadata["namespace"], field_selector=selector))["items"]
    # Whoever may create events need not give a reason or a message.
    return sorted(({"reason": "", "message": "", **event} for event in found), key=event_time)


def event_time(event: Object) -> str:
    """When an event last occurred, in the format of the client."""
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(last or event["metadata"]["creationTimestamp"])


def age_key(job: Object) -> tuple[str, str]:
    """What sorts jobs by age, the oldest first."""
    return job["metadata"]["creationTimestamp"], job["metadata"]["name"]


def create_job(job: Object, *, dry_run: bool = False) -> Object:
    """Create a HorovodJob; with `dry_run`, the API server only validates it."""
    options = {"dry_run": "All"} if dry_run else {}
    selection = {**JOBS, "namespace": job["metadata"]["namespace"]}
    return dict(custom().create_namespaced_custom_object(**selection, body=job, field_validation="Strict", **options))


def patch_job(job: Object, spec: Object, annotations: Mapping[str, str] | None = None) -> Object:
    """Change fields of a HorovodJob's spec, and annotations, by one merge patch."""
    metadata = job["metadata"]
    changed: Object = custom().patch_namespaced_custom_object(
        **JOBS,
        namespace=metadata["namespace"],
        name=metadata["name"],
        body={"metadata": {"uid": metadata["uid"], "annotations": annotations or {}}, "spec": spec},
        field_validation="Strict",
        _content_type=MERGE_PATCH,
    )
    return changed


def delete_job(job: Object) -> None:
    """Delete this HorovodJob, by UID; Kubernetes deletes its pods."""
    from kubernetes.client import V1DeleteOptions, V1Preconditions

    metadata = job["metadata"]
    body = V1DeleteOptions(propagation_policy="Background", preconditions=V1Preconditions(uid=metadata["uid"]))
    custom().delete_namespaced_custom_object(**JOBS, namespace=metadata["namespace"], name=metadata["name"], body=body)


def pods(job: Object) -> list[Object]:
    """The pods of a HorovodJob: the launcher, then workers by index."""
    found = core().list_namespaced_pod(job["metadata"]["namespace"], label_selector=pod_selector(job))
    return sorted(filter(_has_index, plain(found)["items"]), key=_role_and_index)


def pod_selector(job: Object) -> str:
    """Label selector of the pods of this HorovodJob, by UID; pods of others can have some of these labels."""
    own = f"{LABEL_JOB}={job['metadata']['name']},{LABEL_JOB_UID}={job['metadata']['uid']}"
    return f"{own},{LABEL_ROLE} in ({Role.LAUNCHER},{Role.WORKER}),{LABEL_REPLICA_INDEX}"


def _has_index(pod: Object) -> bool:
    return bool(re.fullmatch("[0-9]{1,9}", pod["metadata"]["labels"][LABEL_REPLICA_INDEX]))


def _role_and_index(pod: Object) -> tuple[str, int]:
    labels = pod["metadata"]["labels"]
    return labels[LABEL_ROLE], int(labels[LABEL_REPLICA_INDEX])
