"""The CustomResourceDefinition and the operator: installed, of this version, working."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from horovodjob.api.constants import GROUP, KIND, OPERATOR_APP_NAME, PLURAL, VERSION
from horovodjob.api.managed_by import is_managed_by_operator
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Forbidden, Object, Outcome, join_names

INSTALL = "kubectl apply --server-side -k manifests/base"
OPERATOR_SELECTOR = f"app.kubernetes.io/name={OPERATOR_APP_NAME}"
USUAL_NAMESPACE = "horovodjob-system"
# The operator renews its Lease every 3 s and stops leading after 9 s without a renewal.
LEASE_AGE = timedelta(seconds=30)
# The API server sends a bookmark to the watches of pods and namespaces each minute.
BOOKMARKED_WATCH_AGE = timedelta(minutes=3)
# An event of a job reaches the operator at once.
JOB_EVENT_DELAY = timedelta(minutes=1)
# Time in which an operator that starts, or becomes the leader, reconciles every job.
RECONCILE_DELAY = timedelta(minutes=1)
WATCH_METRIC = re.compile(r'^horovodjob_operator_watch_age_seconds\{resource="(\w+)"\} (\S+)$', re.MULTILINE)


def definition(facts: Facts) -> Iterator[CheckResult]:
    """The API server serves HorovodJobs with every field of this version."""
    served = facts.get(f"/apis/{GROUP}/{VERSION}")
    resources = {each["name"] for each in served["resources"]} if served else set()
    if PLURAL not in resources:
        known = facts.get(f"/apis/{GROUP}")
        versions = ", ".join(each["version"] for each in known["versions"]) if known else ""
        message = f"the cluster does not serve HorovodJobs: the definition {PLURAL}.{GROUP} is not installed"
        if versions:
            message = (
                f"the definition {PLURAL}.{GROUP} is of another version: it has {versions}, and {VERSION} is needed"
            )
        yield CheckResult("definition", Outcome.BLOCKS, message, INSTALL)
        return
    missing = [f"{PLURAL}/{each}" for each in ("status", "scale") if f"{PLURAL}/{each}" not in resources]
    missing += missing_fields(facts)
    if missing:
        message = f"the definition {PLURAL}.{GROUP} is of an older version: it lacks {join_names(missing, 5)}"
        yield CheckResult("definition", Outcome.BLOCKS, message, INSTALL)
    else:
        yield CheckResult("definition", Outcome.OK, f"{PLURAL}.{GROUP} ({VERSION}) is installed and up to date")


def missing_fields(facts: Facts) -> list[str]:
    """Fields of this version that the served schema lacks; for a missing object, only the object itself."""
    from horovodjob.api.crd import custom_resource_definition

    published = facts.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")
    schemas = published["components"]["schemas"].values() if published else ()
    schema = next((each for each in schemas if is_definition(each)), None)
    if schema is None:
        raise Forbidden(f"the API server publishes no schema of {KIND}")
    version = custom_resource_definition()["spec"]["versions"][0]
    wanted, found = field_paths(version["schema"]["openAPIV3Schema"]), field_paths(schema)
    missing = sorted(path for path in wanted - found if path.startswith(("spec", "status")))
    return [path for path in missing if path.rpartition(".")[0] not in missing]


def is_definition(schema: Object) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind", ())
    return any(kind["group"] == GROUP and kind["kind"] == KIND for kind in kinds)


def field_paths(schema: Any, path: str = "") -> set[str]:
    """Paths of all fields of a schema."""
    found: set[str] = set()
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        found |= {below} | field_paths(field, below)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found |= field_paths(schema[name], f"{path}[]")
    return found


def operator(facts: Facts) -> Iterator[CheckResult]:
    """The operator runs, is the leader, and has reconciled the jobs of the namespace."""
    yield from unreconciled_jobs(facts)
    deployments = operator_deployments(facts)
    if not deployments:
        message = f"the operator is not installed: no Deployment has the label {OPERATOR_SELECTOR}"
        yield CheckResult("operator", Outcome.BLOCKS, message, INSTALL)
    for deployment in deployments:
        yield from operator_health(facts, deployment)


def operator_deployments(facts: Facts) -> list[Object]:
    """Deployments of the operator in all namespaces, or in its default one if the user may not read all."""
    selector = f"{OPERATOR_SELECTOR},app.kubernetes.io/component!=dashboard"
    try:
        return facts.list("/apis/apps/v1/deployments", selector)
    except Forbidden:
        return facts.list(f"/apis/apps/v1/namespaces/{USUAL_NAMESPACE}/deployments", selector)


def operator_health(facts: Facts, deployment: Object) -> Iterator[CheckResult]:
    """Health of one installation of the operator: replicas, Lease, watches."""
    if missing := unavailability(deployment):
        yield missing
        return
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    restart = f"kubectl rollout restart deployment {name} -n {namespace}"
    try:
        problem = lease_error(facts, namespace) or watch_error(facts, namespace)
    except Forbidden as error:
        yield CheckResult(
            "operator", Outcome.NOT_CHECKED, f"the operator runs; the state of its watches is unknown: {error}"
        )
        return
    if problem:
        yield CheckResult("operator", Outcome.BLOCKS, problem, restart)
    else:
        yield CheckResult("operator", Outcome.OK, f"the operator is working ({_place(deployment)})")


def unavailability(deployment: Object) -> CheckResult | None:
    """The problem of an installation without a replica that could work."""
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    if not deployment["spec"].get("replicas", 1):
        message = f"the operator is scaled to zero: {_place(deployment)} has 0 replicas"
        command = f"kubectl scale deployment {name} -n {namespace} --replicas=1"
    elif not deployment.get("status", {}).get("availableReplicas"):
        message = f"the operator is not available: {_place(deployment)} has no available replica"
        command = f"kubectl describe pods -n {namespace} -l {OPERATOR_SELECTOR}"
    else:
        return None
    return CheckResult("operator", Outcome.BLOCKS, message, command)


def _place(deployment: Object) -> str:
    return f"Deployment {deployment['metadata']['name']} in namespace {deployment['metadata']['namespace']}"


def lease_error(facts: Facts, namespace: str) -> str | None:
    """The problem that the Lease of the leader election shows, if any."""
    lease = facts.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR_APP_NAME}")
    renewed = (lease or {}).get("spec", {}).get("renewTime")
    name = f"Lease {OPERATOR_APP_NAME} in namespace {namespace}"
    if renewed is None:
        return f"no replica of the operator is the leader: {name} has no holder"
    age = facts.now - datetime.fromisoformat(renewed)
    if age > LEASE_AGE:
        return f"the operator does not respond: it renewed its {name} {seconds(age)} ago"
    return None


def watch_error(facts: Facts, namespace: str) -> str | None:
    """The problem that the metrics of the leader's watches show, if any."""
    from kubernetes.client import ApiException

    lease = facts.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR_APP_NAME}") or {}
    leader = lease.get("spec", {}).get("holderIdentity", "")
    pod = facts.get(f"/api/v1/namespaces/{namespace}/pods/{leader}") if leader else None
    if pod is None:
        raise Forbidden(f"the leader {leader} is not a pod of namespace {namespace}")
    port = pod["metadata"].get("annotations", {}).get("prometheus.io/port", "8080")
    proxy = f"/api/v1/namespaces/{namespace}/pods/{leader}:{port}/proxy"
    try:
        metrics = facts.text(f"{proxy}/metrics")
    except ApiException as error:
        if error.status != HTTPStatus.UNAUTHORIZED:
            raise Forbidden(f"the API server cannot reach pod {leader}: {error.reason}") from None
        metrics = None
    if metrics is None:  # They are on the port with TLS, or need the token of the user, which the API server drops.
        return liveness_error(facts, f"{proxy}/healthz", leader)
    for resource, text in WATCH_METRIC.findall(metrics):
        age = timedelta(seconds=float(text))
        # The watch of jobs has no events while no job changes.
        silent = missed_change(facts, facts.now - age) if resource == "horovodjobs" else age > BOOKMARKED_WATCH_AGE
        if silent:
            return f"the operator's watch of {resource} has been silent for {seconds(age)} (pod {leader})"
    return None


def liveness_error(facts: Facts, path: str, pod: str) -> str | None:
    """The problem that the liveness check of the leader shows, if any: it takes longer than the metrics to show one."""
    from kubernetes.client import ApiException

    try:
        facts.text(path)
    except ApiException as error:
        return f"the operator is not healthy: its liveness check returns {error.status} (pod {pod})"
    return None


def missed_change(facts: Facts, last_event: datetime) -> bool:
    """Whether a job of the namespace changed after the last event that reached the operator."""
    changes = [datetime.fromisoformat(time) for job in jobs(facts) for time in change_times(job)]
    return any(last_event + JOB_EVENT_DELAY < change < facts.now - JOB_EVENT_DELAY for change in changes)


def change_times(job: Object) -> list[str]:
    """When the job was created and changed."""
    managers = job["metadata"].get("managedFields") or []
    return [job["metadata"]["creationTimestamp"], *(each["time"] for each in managers if "time" in each)]


def jobs(facts: Facts) -> list[Object]:
    """The jobs of the namespace."""
    return facts.list(f"/apis/{GROUP}/{VERSION}/namespaces/{facts.namespace}/{PLURAL}")


def unreconciled_jobs(facts: Facts) -> Iterator[CheckResult]:
    """Jobs without a status of the operator, which every user of the namespace can read."""
    unreconciled = [job["metadata"]["name"] for job in jobs(facts) if is_unreconciled(job, facts.now)]
    if unreconciled:
        names = join_names(unreconciled)
        message = f"no operator has reconciled {names} in namespace {facts.namespace}, created over a minute ago"
        command = f"kubectl get pods -A -l {OPERATOR_SELECTOR}"
        yield CheckResult("operator", Outcome.BLOCKS, message, command)


def is_unreconciled(job: Object, now: datetime) -> bool:
    metadata = job["metadata"]
    old = now - datetime.fromisoformat(metadata["creationTimestamp"]) > RECONCILE_DELAY
    return old and is_managed_by_operator(job["spec"]) and job.get("status", {}).get("observedGeneration", -1) == -1


def seconds(age: timedelta) -> str:
    return f"{age.total_seconds():.0f} s"
