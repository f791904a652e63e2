"""The resource definition and the operator: installed, of this version, at work."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.vocabulary import GROUP, KIND, PLURAL, VERSION
from horovodjob_cli.diagnosis.facts import Facts, Forbidden, Object, named
from horovodjob_cli.diagnosis.finding import Finding, Result

INSTALL = "kubectl apply --server-side -k manifests/base"
OPERATOR = "horovodjob-operator"
OPERATOR_SELECTOR = f"app.kubernetes.io/name={OPERATOR}"
USUAL_NAMESPACE = "horovodjob-system"
# The operator renews its Lease every 3 s and gives it up when it could not for 9 s.
LEASE_AGE = timedelta(seconds=30)
# The API server sends a bookmark to the watch of the pods each minute.
POD_WATCH_AGE = timedelta(minutes=3)
# An event of a job reaches the operator at once.
JOB_EVENT_DELAY = timedelta(minutes=1)
# Until then an operator that starts, or takes over, may not have looked at a job.
UNSEEN = timedelta(minutes=1)
WATCH_METRIC = re.compile(r'^horovodjob_operator_watch_age_seconds\{resource="(\w+)"\} (\S+)$', re.MULTILINE)


def definition(facts: Facts) -> Iterator[Finding]:
    """The API server serves HorovodJobs with every field that this version has."""
    served = facts.get(f"/apis/{GROUP}/{VERSION}")
    resources = {each["name"] for each in served["resources"]} if served else set()
    if PLURAL not in resources:
        known = facts.get(f"/apis/{GROUP}")
        versions = ", ".join(each["version"] for each in known["versions"]) if known else ""
        message = f"the cluster does not know HorovodJobs: the definition {PLURAL}.{GROUP} is not installed"
        if versions:
            message = (
                f"the definition {PLURAL}.{GROUP} is of another version: it has {versions}, and {VERSION} is needed"
            )
        yield Finding("definition", Result.BLOCKS, message, INSTALL)
        return
    missing = [f"{PLURAL}/{each}" for each in ("status", "scale") if f"{PLURAL}/{each}" not in resources]
    missing += missing_fields(facts)
    if missing:
        message = f"the definition {PLURAL}.{GROUP} is of an older version: it lacks {named(missing, 5)}"
        yield Finding("definition", Result.BLOCKS, message, INSTALL)
    else:
        yield Finding("definition", Result.OK, f"{PLURAL}.{GROUP} ({VERSION}) is installed and up to date")


def missing_fields(facts: Facts) -> list[str]:
    """Fields that this version has and the served schema lacks; of an object that is missing, the object only."""
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
    """Paths of all fields that a schema names."""
    found: set[str] = set()
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        found |= {below} | field_paths(field, below)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found |= field_paths(schema[name], f"{path}[]")
    return found


def operator(facts: Facts) -> Iterator[Finding]:
    """The operator runs, leads, and has seen the jobs of the namespace."""
    yield from unseen_jobs(facts)
    deployments = operator_deployments(facts)
    if not deployments:
        message = f"the operator is not installed: no Deployment has the label {OPERATOR_SELECTOR}"
        yield Finding("operator", Result.BLOCKS, message, INSTALL)
    for deployment in deployments:
        yield from operator_at_work(facts, deployment)


def operator_deployments(facts: Facts) -> list[Object]:
    """Deployments of the operator in all namespaces, or in the usual one if the user may not look into all."""
    try:
        return facts.list("/apis/apps/v1/deployments", OPERATOR_SELECTOR)
    except Forbidden:
        return facts.list(f"/apis/apps/v1/namespaces/{USUAL_NAMESPACE}/deployments", OPERATOR_SELECTOR)


def operator_at_work(facts: Facts, deployment: Object) -> Iterator[Finding]:
    """One installation of the operator: replicas, Lease, watches."""
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    where = f"Deployment {name} in namespace {namespace}"
    if not deployment["spec"].get("replicas", 1):
        command = f"kubectl scale deployment {name} -n {namespace} --replicas=1"
        yield Finding("operator", Result.BLOCKS, f"the operator is switched off: {where} has 0 replicas", command)
        return
    if not deployment.get("status", {}).get("availableReplicas"):
        command = f"kubectl describe pods -n {namespace} -l {OPERATOR_SELECTOR}"
        yield Finding("operator", Result.BLOCKS, f"the operator is away: {where} has no available replica", command)
        return
    restart = f"kubectl rollout restart deployment {name} -n {namespace}"
    try:
        trouble = lease_trouble(facts, namespace) or watch_trouble(facts, namespace)
    except Forbidden as error:
        yield Finding("operator", Result.NOT_CHECKED, f"the operator runs; whether its watches live: {error}")
        return
    if trouble:
        yield Finding("operator", Result.BLOCKS, trouble, restart)
    else:
        yield Finding("operator", Result.OK, f"the operator is at work ({where})")


def lease_trouble(facts: Facts, namespace: str) -> str | None:
    """Why the Lease of the leader election shows an operator that is not at work."""
    lease = facts.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR}")
    renewed = (lease or {}).get("spec", {}).get("renewTime")
    if renewed is None:
        return f"no replica of the operator leads: Lease {OPERATOR} in namespace {namespace} is held by nobody"
    age = facts.now - datetime.fromisoformat(renewed)
    if age > LEASE_AGE:
        return f"the operator is silent: it renewed its Lease {OPERATOR} in namespace {namespace} {seconds(age)} ago"
    return None


def watch_trouble(facts: Facts, namespace: str) -> str | None:
    """The watch of the leader that has been silent for too long, by its metrics."""
    from kubernetes.client import ApiException

    lease = facts.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR}") or {}
    leader = lease.get("spec", {}).get("holderIdentity", "")
    pod = facts.get(f"/api/v1/namespaces/{namespace}/pods/{leader}") if leader else None
    if pod is None:
        raise Forbidden(f"the leader {leader} is not a pod of namespace {namespace}")
    port = pod["metadata"].get("annotations", {}).get("prometheus.io/port", "8080")
    try:
        metrics = facts.text(f"/api/v1/namespaces/{namespace}/pods/{leader}:{port}/proxy/metrics")
    except ApiException as error:
        raise Forbidden(f"the API server does not reach pod {leader}: {error.reason}") from None
    for resource, text in WATCH_METRIC.findall(metrics or ""):
        age = timedelta(seconds=float(text))
        # The watch of the jobs is silent as long as no job changes.
        silent = age > POD_WATCH_AGE if resource == "pods" else has_missed_a_change(facts, facts.now - age)
        if silent:
            return f"the operator's watch of {resource} has been silent for {seconds(age)} (pod {leader})"
    return None


def has_missed_a_change(facts: Facts, last_event: datetime) -> bool:
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


def unseen_jobs(facts: Facts) -> Iterator[Finding]:
    """Jobs that no operator has looked at: a sign that every user can read."""
    unseen = [job["metadata"]["name"] for job in jobs(facts) if is_unseen(job, facts.now)]
    if unseen:
        message = f"no operator has looked at {named(unseen)} in namespace {facts.namespace}, created over a minute ago"
        command = f"kubectl get pods -A -l {OPERATOR_SELECTOR}"
        yield Finding("operator", Result.BLOCKS, message, command)


def is_unseen(job: Object, now: datetime) -> bool:
    metadata = job["metadata"]
    managed_by = job["spec"].get("runPolicy", {}).get("managedBy", f"{GROUP}/operator")
    old = now - datetime.fromisoformat(metadata["creationTimestamp"]) > UNSEEN
    return old and managed_by == f"{GROUP}/operator" and job.get("status", {}).get("observedGeneration", -1) == -1


def seconds(age: timedelta) -> str:
    return f"{age.total_seconds():.0f} s"
