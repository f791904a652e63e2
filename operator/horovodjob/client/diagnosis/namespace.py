"""The namespace of the job: quota and Pod Security level."""

from collections.abc import Iterator
from decimal import Decimal

from horovodjob.api.constants import GPU_RESOURCE, PodSecurity
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Object, Outcome

ENFORCE = "pod-security.kubernetes.io/enforce"
LEVELS = ("privileged", "baseline", "restricted")


def quota(facts: Facts) -> Iterator[CheckResult]:
    """Every ResourceQuota of the namespace leaves room for the job."""
    quotas = facts.list(f"/api/v1/namespaces/{facts.namespace}/resourcequotas")
    needs = job_needs(facts.spec)
    short = [(each, line) for each in quotas if not each["spec"].get("scopes") for line in shortages(each, needs)]
    for each, line in short:
        name = each["metadata"]["name"]
        message = f"ResourceQuota {name} in namespace {facts.namespace} leaves no room for {facts.subject}: {line}"
        command = f"kubectl edit resourcequota {name} -n {facts.namespace}"
        yield CheckResult("quota", Outcome.BLOCKS, message, command)
    if not short:
        count = f"{len(quotas)} ResourceQuotas leave" if quotas else "no ResourceQuota limits"
        yield CheckResult("quota", Outcome.OK, f"{count} {'room for ' if quotas else ''}{facts.subject}")


def shortages(quota: Object, needs: dict[str, Decimal]) -> list[str]:
    """The resources that exceed the quota."""
    from kubernetes.utils.quantity import parse_quantity

    hard = quota.get("status", {}).get("hard") or quota["spec"].get("hard") or {}
    used = quota.get("status", {}).get("used") or {}
    found = []
    for name, limit in hard.items():
        need = needs.get(name) or needs.get(f"requests.{name}") or Decimal(0)
        if need and parse_quantity(used.get(name, "0")) + need > parse_quantity(limit):
            found.append(f"{name} {plain(need)} needed, {used.get(name, '0')} of {limit} used")
    return found


def job_needs(spec: HorovodJobSpec | None) -> dict[str, Decimal]:
    """What the pods of a job count in a quota; without a job, the minimum."""
    if spec is None:
        return {"pods": Decimal(2), f"requests.{GPU_RESOURCE}": Decimal(1)}
    replicas = spec.worker.replicas
    hosts = replicas - 1 if spec.launcher.as_worker else replicas
    needs = {"pods": Decimal(hosts + 1), f"requests.{GPU_RESOURCE}": Decimal(replicas * spec.worker.gpus)}
    launcher = spec.launcher.resources or (spec.worker.resources if spec.launcher.as_worker else None)
    add(needs, spec.worker.resources, hosts, {})
    add(needs, launcher, 1, {} if spec.launcher.as_worker else spec.launcher_requests, spec.launcher_limits)
    return needs


def add(
    needs: dict[str, Decimal],
    resources: object,
    pods: int,
    default: dict[str, str],
    default_limits: dict[str, str] | None = None,
) -> None:
    """Add the requests and limits of some pods."""
    from kubernetes.utils.quantity import parse_quantity

    limits = dict(getattr(resources, "limits", None) or {}) if resources else default_limits or {}
    requests = limits | dict(getattr(resources, "requests", None) or {}) if resources else default
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            key = f"{kind}.{name}"
            needs[key] = needs.get(key, Decimal(0)) + pods * parse_quantity(str(amount))


def plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def pod_security(facts: Facts) -> Iterator[CheckResult]:
    """The namespace admits pods of the job's Pod Security level."""
    namespace = facts.get(f"/api/v1/namespaces/{facts.namespace}")
    if namespace is None:
        message = f"namespace {facts.namespace} does not exist"
        yield CheckResult("namespace", Outcome.BLOCKS, message, f"hvj workspace create -n {facts.namespace}")
        return
    enforced = (namespace["metadata"].get("labels") or {}).get(ENFORCE, "privileged")
    wanted, why = required_level(facts.spec)
    if LEVELS.index(wanted) < (LEVELS.index(enforced) if enforced in LEVELS else 0):
        message = (
            f"namespace {facts.namespace} enforces the Pod Security level {enforced}, and {facts.subject} needs "
            f"{wanted}: {why}"
        )
        command = f"kubectl label namespace {facts.namespace} {ENFORCE}={wanted} --overwrite"
        yield CheckResult("Pod Security", Outcome.BLOCKS, message, command)
    else:
        yield CheckResult(
            "Pod Security", Outcome.OK, f"namespace {facts.namespace} enforces {enforced}: {wanted} is admitted"
        )


def required_level(spec: HorovodJobSpec | None) -> tuple[str, str]:
    """The strictest level that admits the job's pods, and the field that determines it."""
    if spec is None:
        return "restricted", "podSecurity: Restricted is the default"
    for volume in spec.volumes or ():
        source = volume.model_dump(exclude_none=True, by_alias=True)
        if "hostPath" in source:
            return "privileged", f"volume {source['name']} is a hostPath"
    for role, pods in (("worker", spec.worker), ("launcher", spec.launcher)):
        if ((pods.template or {}).get("spec") or {}).get("hostNetwork"):
            return "privileged", f"{role}.template has hostNetwork: true"
    level = "baseline" if spec.pod_security is PodSecurity.BASELINE else "restricted"
    if level == "restricted":
        for volume in spec.volumes or ():
            if "nfs" in (source := volume.model_dump(exclude_none=True, by_alias=True)):
                return "baseline", f"volume {source['name']} is of type nfs"
        # The CSI driver supports no NFS in inline volumes, so such a share is a volume of type nfs.
        for share in spec.azure_files or ():
            if share.protocol == "nfs":
                return "baseline", f"azureFiles {share.name} is mounted over NFS"
    return level, f"podSecurity: {spec.pod_security.value}"
