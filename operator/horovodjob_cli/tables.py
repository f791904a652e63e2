"""The columns of records of jobs and files, for tables."""

from horovodjob_cli.output import Description, ListTable

TRANSFER_TABLE = {"Name": "name", "Type": "fileType", "Size": "contentLength"}
FILE_TABLE = TRANSFER_TABLE | {"Modified": "lastModified"}
# The first alternative reads a record, the second a manifest, which a dry run prints.
_COLUMNS = {
    "Name": "name || metadata.name",
    "Cluster": "cluster.id || spec.pool",
    "Tool": "toolType",
    "Nodes": "nodeCount || spec.worker.replicas",
    "State": "state",
    "Exit code": "executionInfo.exitCode",
    "Progress": "progress",
}
_OPTIONAL_COLUMNS = {
    "Age": "age",
    "Duration": "duration",
    "Reason": "reason",
    "GPU hours": "gpuHours",
    "Experiment": "experiment",
}
JOB_TABLE = ListTable(_COLUMNS, _OPTIONAL_COLUMNS)
JOB_TABLE_OF_ALL_WORKSPACES = ListTable({"Workspace": "workspace", **_COLUMNS}, _OPTIONAL_COLUMNS)
JOB_DESCRIPTION = Description(
    {
        **_COLUMNS,
        "Workspace": "workspace",
        "Experiment": "experiment",
        "Reason": "reason",
        "Message": "message",
        "Queue": "queue.name",
        "Queue position": "queue.position",
        "Worker cluster": "workerCluster",
        "Workers ready": "workersReady",
        "Epoch": "training.epoch",
        "Epochs": "training.epochs",
        "Metrics": "training.metrics",
        "Slow rank": "slowRank",
        "Goodput": "goodput",
        "Expected end": "executionState == 'running' && training.eta || null",
        "Age": "age",
        "Duration": "duration",
        "GPU hours": "gpuHours",
        "Restarts": "restarts",
        "Preemptions": "preemptions",
        "Errors": "executionInfo.errors[].message",
        "Events": "events[].join('  ', [age, reason, message])",
    }
)
