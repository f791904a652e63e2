"""The cluster in which MultiKueue runs a job: its pods, and with them its logs, are there."""

from typing import Any

from horovodjob.api.managed_by import is_dispatched
from horovodjob.client.cluster import kube, queues
from horovodjob.client.errors import ClientError
from horovodjob.client.jobs import batchai_records

Object = dict[str, Any]


def pods(job: Object) -> list[Object]:
    """The pods of a job. Raises ClientError with the way to them if they are in another cluster."""
    if is_dispatched(job["spec"]):
        raise ClientError(whereabouts(job))
    return kube.pods(job)


def whereabouts(job: Object) -> str:
    """Where the pods and the logs of a dispatched job are, and the command that prints the logs."""
    return sentence(job, cluster_name(job))


def cluster_name(job: Object) -> str | None:
    """The MultiKueueCluster that the job was dispatched to; empty before that, None if it is unknown."""
    from kubernetes.client import ApiException

    try:
        workload = queues.workload(job)
    except ApiException as error:
        if error.status != 403:
            raise
        return None
    return str((workload or {}).get("status", {}).get("clusterName") or "")


def sentence(job: Object, cluster: str | None) -> str:
    """Where the pods and the logs of a dispatched job are; `cluster` is what `cluster_name` returns."""
    name, namespace = batchai_records.display_name(job), job["metadata"]["namespace"]
    if batchai_records.is_finished(job):
        where = f"cluster {cluster}" if cluster else "another cluster"
        return (
            f"job {name} ran in {where}, where MultiKueue has deleted its pods and their logs at its end; "
            f"`hvj job show -n {name} -w {namespace}` has the end of what a failed program wrote"
        )
    if cluster == "":
        return f"job {name} waits for MultiKueue to dispatch it to another cluster: it has no pods and no logs yet"
    where = f"cluster {cluster}" if cluster else "another cluster, which the Workload of the job names,"
    command = f"hvj job logs -n {name} -w {namespace} --context CONTEXT"
    return f"job {name} runs in {where} and its pods and logs are there: `{command}` with your context of that cluster"
