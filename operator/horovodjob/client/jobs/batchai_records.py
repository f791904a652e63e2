"""HorovodJobs in the format of Batch AI, so that old queries work, with additional fields.

Pure: an object of the API server in, a record out.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from horovodjob import lost_time
from horovodjob.api.constants import LABEL_EXPERIMENT, PLURAL, ExecutionState, Phase
from horovodjob.batchai.names import display_name as display_name

Object = dict[str, Any]
SUSPENDED = "suspended"


def job_record(job: Object) -> Object:
    """The record that `job show` and `job list` print."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    return {
        "id": f"/namespaces/{metadata['namespace']}/{PLURAL}/{metadata['name']}",
        "name": display_name(job),
        "resourceName": metadata["name"],
        "workspace": metadata["namespace"],
        "experiment": metadata.get("labels", {}).get(LABEL_EXPERIMENT),
        "cluster": {"id": spec["pool"]} if spec.get("pool") else None,
        "nodeCount": worker(spec, "replicas"),
        **toolkit(spec),
        "containerSettings": {"imageSourceRegistry": {"image": spec.get("image", "")}, "shmSize": spec.get("shmSize")},
        "stdOutErrPathPrefix": spec.get("logs", {}).get("pathPrefix"),
        "inputDirectories": spec.get("inputs", []),
        "outputDirectories": spec.get("outputs", []),
        "creationTime": creation_time(job),
        "provisioningState": "deleting" if metadata.get("deletionTimestamp") else "succeeded",
        "executionState": execution_state(status),
        "state": state(status),
        "executionStateTransitionTime": transition_time(status),
        "executionInfo": execution_info(status),
        "jobOutputDirectoryPathSegment": status.get("outputPathSegment") or None,
        "phase": status.get("phase"),
        "queue": queue_place(status),
        "reason": reason(status),
        "message": message(status),
        "workersReady": status.get("workersReady") or None,
        "attempt": status.get("attempt", 0),
        "restarts": status.get("restarts", 0),
        "preemptions": status.get("preemptions", 0),
        "progress": (status.get("training") or {}).get("percent") or None,
        "training": status.get("training"),
        "goodput": lost_time.goodput_text(status.get("training")),
        "slowRank": lost_time.slow_rank_text(status.get("training")),
    }


def record_order(record: Object) -> tuple[str, str, str]:
    """What sorts records of jobs by namespace and age, the oldest first."""
    return record["workspace"], record["creationTime"], record["resourceName"]


def worker(spec: Mapping[str, Any], field: str) -> int:
    """A field of `worker` that is 1 by default: replicas, gpus."""
    return int(spec.get("worker", {}).get(field, 1))


def toolkit(spec: Mapping[str, Any]) -> Object:
    """The tool's name and settings, as job.json has them."""
    processes = worker(spec, "replicas") * spec.get("worker", {}).get("slots", max(worker(spec, "gpus"), 1))
    if script := spec.get("script"):
        settings = {
            "pythonScriptFilePath": script["path"],
            "pythonInterpreterPath": script.get("interpreter", "python3"),
            "commandLineArgs": command_line(script.get("args", [])) or None,
            "processCount": processes,
        }
        return {"toolType": "horovod", "horovodSettings": settings}
    if command := spec.get("command"):
        return {
            "toolType": "mpi",
            "customMpiSettings": {"commandLine": command_line(command), "processCount": processes},
        }
    return {
        "toolType": "custom",
        "customToolkitSettings": {"commandLine": command_line(spec.get("launcherCommand", ()))},
    }


def command_line(arguments: Sequence[str]) -> str:
    """The arguments as one text, with quotes only where they are necessary."""
    return " ".join(shlex.quote(each) if not each or set(each) & set(" \t\n\"'\\") else each for each in arguments)


def creation_time(object_: Object) -> str:
    """The creation time in the format of Kubernetes; the client's models write UTC differently."""
    return str(object_["metadata"]["creationTimestamp"]).replace("+00:00", "Z")


def execution_state(status: Mapping[str, Any]) -> str:
    """Batch AI's state; a job without a status is queued."""
    return str(status.get("executionState") or ExecutionState.QUEUED)


def transition_time(status: Mapping[str, Any]) -> str | None:
    """When a condition last changed."""
    return max((each["lastTransitionTime"] for each in status.get("conditions", [])), default=None)


def execution_info(status: Mapping[str, Any]) -> Object | None:
    """Times, exit code and errors; nothing for a job that has not started."""
    if not (status.get("startTime") or status.get("completionTime")):
        return None
    return {
        "startTime": status.get("startTime"),
        "endTime": status.get("completionTime"),
        "exitCode": status.get("exitCode"),
        "errors": [execution_error(error) for error in status.get("errors", [])] or None,
    }


def execution_error(error: Mapping[str, Any]) -> Object:
    """An entry of `errors[]` as Batch AI had it: a code, a message and named details."""
    details = ("time", "attempt", "pod", "node", "container", "exitCode")
    return {
        "code": error["reason"],
        "message": error.get("message", ""),
        "details": [{"name": key, "value": str(error[key])} for key in details if error.get(key) not in (None, "")],
    }


def state(status: Mapping[str, Any]) -> str:
    """The state that a table shows: Batch AI's, or `suspended`, which Batch AI did not have."""
    return SUSPENDED if status.get("phase") == Phase.SUSPENDED else execution_state(status)


def reason(status: Mapping[str, Any]) -> str | None:
    """The reason of the phase as one word; None for a job that runs or has succeeded."""
    condition = deciding_condition(status)
    is_normal = status.get("phase") in (Phase.RUNNING, Phase.SUCCEEDED) and not _has_stalled(status)
    return str(condition["reason"]) if condition and not is_normal else None


def message(status: Mapping[str, Any]) -> str | None:
    """The operator's message about the phase: what blocks the job, or what it waits for."""
    condition = deciding_condition(status)
    return str(condition["message"]) if condition else None


def deciding_condition(status: Mapping[str, Any]) -> Object | None:
    """The condition with the message about the phase."""
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if _has_stalled(status):
        return dict(conditions["Progressing"])
    for type_ in ("Stalled", "Failed", "Reconciling", str(status.get("phase")), "Ready"):
        condition = conditions.get(type_)
        if condition and condition["status"] == "True" and condition.get("message"):
            return dict(condition)
    return None


def _has_stalled(status: Mapping[str, Any]) -> bool:
    """Whether the job runs and its training completes no steps, or none that are known."""
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    progressing = conditions.get("Progressing", {}).get("status")
    return status.get("phase") == Phase.RUNNING and progressing in ("False", "Unknown")


def queue_place(status: Mapping[str, Any]) -> Object | None:
    """The place of the job in a queue of Kueue, with the reason of Kueue while it waits; None without a queue."""
    queue = status.get("queue")
    if not queue:
        return None
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    queued = conditions.get("Queued", {})
    return {
        "name": queue["name"],
        "clusterQueue": queue.get("clusterQueue") or None,
        "position": queue.get("position"),
        "flavors": queue.get("flavors") or [],
        "reason": queued.get("reason") if queued.get("status") == "True" else None,
    }


def queue_text(status: Mapping[str, Any]) -> str:
    """Where the job waits, such as `queue gpus, position 3`; empty without a queue."""
    queue = queue_place(status)
    if queue is None:
        return ""
    return f"queue {queue['name']}" + (f", position {queue['position']}" if queue["position"] else "")


def is_finished(job: Object) -> bool:
    """Whether the job is in a terminal phase."""
    phase = job.get("status", {}).get("phase")
    return phase in (Phase.SUCCEEDED, Phase.FAILED)


def exit_code(job: Object) -> int:
    """Exit code of `job wait`: the job's own code, or 255 for a failed job without one."""
    status = job.get("status", {})
    if status.get("phase") == Phase.SUCCEEDED:
        return 0
    return int(status.get("exitCode") or -1) & 0xFF or 1
