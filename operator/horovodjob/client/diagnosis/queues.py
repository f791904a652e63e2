"""Queues of Kueue: the queue of the job exists, and Kueue leaves the pods of jobs to the operator."""

from collections.abc import Iterator
from typing import Any

from horovodjob.api.constants import KUEUE_FRAMEWORK, KUEUE_POD_GATE, LABEL_JOB, LABEL_QUEUE
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Forbidden, Object, Outcome

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# Kueue's integration for pods queues all pods of a namespace with a LocalQueue of this name.
DEFAULT_QUEUE = "default"
CONFIGURATION = "kueue-manager-config"
USUAL_NAMESPACE = "kueue-system"
REMEDY = f"list {KUEUE_FRAMEWORK} in integrations.externalFrameworks of Kueue's configuration, and restart Kueue"


def queues(facts: Facts) -> Iterator[CheckResult]:
    """The queue of the job, if it names one, and the integration for pods, if the cluster has Kueue."""
    name = ((facts.job or {}).get("metadata", {}).get("labels") or {}).get(LABEL_QUEUE)
    if facts.get(KUEUE) is None:
        if name:
            message = f"{facts.subject} waits for queue {name}, and the cluster has no Kueue"
            yield CheckResult(
                "queue", Outcome.BLOCKS, message, "helm install kueue oci://registry.k8s.io/kueue/charts/kueue"
            )
        return
    local = f"{KUEUE}/namespaces/{facts.namespace}/localqueues"
    if name and facts.get(f"{local}/{name}") is None:
        message = f"{facts.subject} waits for queue {name}, which namespace {facts.namespace} does not have"
        yield CheckResult("queue", Outcome.BLOCKS, message, f"kubectl get localqueues -n {facts.namespace}")
    elif name:
        yield CheckResult("queue", Outcome.OK, f"namespace {facts.namespace} has the LocalQueue {name}")
    yield pods_integration(facts, facts.get(f"{local}/{DEFAULT_QUEUE}") is not None)


def pods_integration(facts: Facts, has_default_queue: bool) -> CheckResult:
    """Whether Kueue queues the pods of jobs one by one: a gate of Kueue's on a pod says so, or its configuration."""
    pods = facts.list(f"/api/v1/namespaces/{facts.namespace}/pods", LABEL_JOB)
    gated = next((pod["metadata"]["name"] for pod in pods if has_gate(pod)), None)
    edit = f"kubectl edit configmap {CONFIGURATION} -n {USUAL_NAMESPACE}"
    if gated:
        message = f"Kueue queues pod {gated} by itself, apart from its job (scheduling gate {KUEUE_POD_GATE}): {REMEDY}"
        return CheckResult("queue", Outcome.BLOCKS, message, edit)
    found = configuration(facts)
    if found is None:
        message = f"the configuration of Kueue is unknown: there is no ConfigMap {CONFIGURATION}"
        return CheckResult("queue", Outcome.NOT_CHECKED, message)
    namespace, settings = found
    integrations = settings.get("integrations") or {}
    leaves_pods_alone = KUEUE_FRAMEWORK in (integrations.get("externalFrameworks") or ())
    if leaves_pods_alone or "pod" not in (integrations.get("frameworks") or ()):
        return CheckResult("queue", Outcome.OK, "Kueue leaves the pods of jobs to the operator")
    edit = f"kubectl edit configmap {CONFIGURATION} -n {namespace}"
    if has_default_queue or settings.get("manageJobsWithoutQueueName"):
        cause = f"of LocalQueue {DEFAULT_QUEUE}" if has_default_queue else "manageJobsWithoutQueueName is true"
        message = f"Kueue queues each pod of a job by itself, because {cause}: {REMEDY}"
        return CheckResult("queue", Outcome.BLOCKS, message, edit)
    message = f"Kueue would queue each pod of a job by itself as soon as namespace {facts.namespace} has a LocalQueue "
    return CheckResult("queue", Outcome.WARNING, f"{message}named {DEFAULT_QUEUE}: {REMEDY}", edit)


def has_gate(pod: Object) -> bool:
    return any(gate["name"] == KUEUE_POD_GATE for gate in pod["spec"].get("schedulingGates") or ())


def configuration(facts: Facts) -> tuple[str, dict[str, Any]] | None:
    """The namespace of Kueue and its configuration; None if there is none of the usual name. Raises Forbidden."""
    import yaml

    try:
        found = facts.list("/api/v1/configmaps", "app.kubernetes.io/name=kueue")
    except Forbidden:
        one = facts.get(f"/api/v1/namespaces/{USUAL_NAMESPACE}/configmaps/{CONFIGURATION}")
        found = [one] if one else []
    for each in found:
        if each["metadata"]["name"] == CONFIGURATION:
            texts = each.get("data") or {}
            settings = yaml.safe_load(texts.get("controller_manager_config.yaml", ""))
            return each["metadata"]["namespace"], settings if isinstance(settings, dict) else {}
    return None
