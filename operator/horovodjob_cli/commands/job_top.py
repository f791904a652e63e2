"""`hvj job top`."""

from typing import Annotated, Any

import typer

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.cluster_view import warn
from horovodjob.client.errors import ClientError
from horovodjob.client.jobs import batchai_records, other_cluster, usage
from horovodjob_cli.commands import command, group
from horovodjob_cli.options import Experiment, Namespace

app = group("What the ranks of a job use.")
USAGE_TABLE = {
    "Pod": "pod",
    "Ranks": "ranks",
    "CPU": "cpu",
    "Memory": "memory",
    "GPU %": "gpuPercent",
    "GPU memory": "gpuMemory",
    "Note": "note",
}


@command(app, "top", table=USAGE_TABLE)
def top(
    name: Annotated[str, typer.Option("--name", "-n", "--job", "-j", help="Name of the job.", show_default=False)],
    namespace: Namespace = None,
    experiment: Experiment = None,
) -> Any:
    """Show processor, memory and GPU use of the ranks of a job, and which GPUs are idle."""
    job = kube.job(name, namespace, experiment)
    pods = [pod for pod in other_cluster.pods(job) if pod.get("status", {}).get("phase") == "Running"]
    if not pods:
        state = batchai_records.state(job.get("status", {}))
        raise ClientError(f"no pod of job {name} is running ({state}); see `hvj job show -n {name}`")
    metrics: dict[str, kube.Object] = {}
    try:
        metrics = usage.read_metrics(job)
    except ClientError as error:
        warn(str(error))
    gpus = usage.read_gpus(pods)
    failures = {pod: found for pod, found in gpus.items() if isinstance(found, ClientError)}
    for pod, failure in list(failures.items())[:1]:
        warn(f"GPUs of {len(failures)} pods are unknown, as of {pod}: {failure}")
    known = {pod: found for pod, found in gpus.items() if not isinstance(found, ClientError)}
    names = [pod["metadata"]["name"] for pod in pods]
    return [
        usage.usage_record(job, pod, metrics.get(name), known.get(name)) for name, pod in zip(names, pods, strict=True)
    ]
