"""What the pods of a job use: processor and memory by metrics.k8s.io, GPUs by nvidia-smi in the pods."""

from collections.abc import Sequence
from typing import Any

from horovodjob.api.constants import LABEL_REPLICA_INDEX, LABEL_ROLE, Role
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import side_by_side
from horovodjob.client.cluster.node_pools import gpu_count
from horovodjob.client.errors import ClientError, to_client_error
from horovodjob.client.jobs.batchai_records import worker
from horovodjob.client.jobs.logs import source

Object = dict[str, Any]
METRICS = {"group": "metrics.k8s.io", "version": "v1beta1", "plural": "pods"}
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)
IDLE_PERCENT = 5
REQUESTS = 16
GIB, MIB = 2**30, 2**20


def read_metrics(job: Object) -> dict[str, Object]:
    """The metrics of the job's pods by name. Raises ClientError if the cluster has none, or not for this user."""
    from kubernetes.client import ApiException

    namespace = job["metadata"]["namespace"]
    try:
        found = kube.custom().list_namespaced_custom_object(
            **METRICS, namespace=namespace, label_selector=kube.pod_selector(job)
        )
    except ApiException as error:
        if error.status in (404, 503):
            raise ClientError(
                "processor and memory are unknown: the cluster has no metrics-server, which `kubectl top` needs too"
            ) from None
        if error.status == 403:
            raise ClientError(f"processor and memory are unknown: {to_client_error(error)}") from None
        raise
    return {each["metadata"]["name"]: each for each in found["items"]}


def read_gpus(pods: Sequence[Object]) -> dict[str, list[Object] | ClientError]:
    """The GPUs of each pod that has some, or the reason why they are unknown."""
    with_gpus = [pod for pod in pods if has_gpus(pod)]
    found = side_by_side(REQUESTS, _pod_gpus, with_gpus)
    return {pod["metadata"]["name"]: gpus for pod, gpus in zip(with_gpus, found, strict=True)}


def has_gpus(pod: Object) -> bool:
    """Whether a container of the pod has GPUs."""
    limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
    return any(map(gpu_count, limits))


def _pod_gpus(pod: Object) -> list[Object] | ClientError:
    try:
        code, text = pod_exec.output(pod, NVIDIA_SMI)
    except Exception as error:
        return to_client_error(error)
    return parse_gpus(text.decode()) if code == 0 else ClientError(f"nvidia-smi ended with exit code {code}")


def parse_gpus(text: str) -> list[Object]:
    """The lines of nvidia-smi: index, percent of the time in use, MiB of memory in use and in total."""
    return [
        {"index": int(index), "percent": _number(percent), "usedMiB": _number(used), "totalMiB": _number(total)}
        for index, percent, used, total in (line.split(",") for line in text.splitlines() if line.strip())
    ]


def usage_record(job: Object, pod: Object, metrics: Object | None, gpus: Sequence[Object] | None) -> Object:
    """Usage of a pod; what is unknown is None."""
    from kubernetes.utils.quantity import parse_quantity

    used = [container["usage"] for container in metrics["containers"]] if metrics else []
    memory = int(sum(parse_quantity(each["memory"]) for each in used)) if used else None
    idle = [gpu["index"] for gpu in gpus or () if gpu["percent"] is not None and gpu["percent"] < IDLE_PERCENT]
    known = [gpu for gpu in gpus or () if gpu["totalMiB"]]
    return {
        "pod": source(pod),
        "podName": pod["metadata"]["name"],
        "nodeId": pod["spec"].get("nodeName"),
        "ranks": ranks(job, pod),
        "cpu": round(float(sum(parse_quantity(each["cpu"]) for each in used)), 2) if used else None,
        "memory": None if memory is None else bytes_text(memory),
        "memoryBytes": memory,
        "gpuPercent": " ".join("-" if gpu["percent"] is None else str(gpu["percent"]) for gpu in gpus or ()) or None,
        "gpuMemory": f"{_gib(known, 'usedMiB')}/{_gib(known, 'totalMiB')} GiB" if known else None,
        "gpus": list(gpus) if gpus is not None else None,
        "note": "; ".join(filter(None, [_idle_note(idle), _slow_note(job, pod)])) or None,
    }


def _idle_note(idle: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, idle))} idle" if idle else ""


def _slow_note(job: Object, pod: Object) -> str:
    """That the slowest rank is in this pod."""
    found = (job.get("status", {}).get("training") or {}).get("slowestRank") or {}
    if found.get("pod") != pod["metadata"]["name"]:
        return ""
    section = f", mostly {found['section']}" if found.get("section") else ""
    return f"rank {found['rank']} is slow: {found['ratio']:.2f} times the median{section}"


def ranks(job: Object, pod: Object) -> str | None:
    """The ranks of the pod, such as 4-7; None for a launcher without ranks, and for an elastic job, where they change.

    Hosts are ordered by index; a launcher that hosts ranks is worker 0.
    """
    spec, labels = job["spec"], pod["metadata"]["labels"]
    is_launcher = labels[LABEL_ROLE] == Role.LAUNCHER
    if spec.get("elastic") or (is_launcher and not spec.get("launcher", {}).get("asWorker")):
        return None
    slots = int(spec.get("worker", {}).get("slots") or max(worker(spec, "gpus"), 1))
    first = 0 if is_launcher else int(labels[LABEL_REPLICA_INDEX]) * slots
    return str(first) if slots == 1 else f"{first}-{first + slots - 1}"


def bytes_text(size: int) -> str:
    """GiB with one digit, or MiB below one GiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _gib(gpus: Sequence[Object], field: str) -> str:
    return f"{sum(gpu[field] or 0 for gpu in gpus) / 1024:.0f}"


def _number(text: str) -> int | None:
    """The number; None where the device reports none, as a part of a GPU does."""
    return int(text) if text.strip().isdigit() else None
