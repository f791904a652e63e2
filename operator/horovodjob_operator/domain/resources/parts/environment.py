"""Environment variables of launcher and workers."""

from typing import Any

from horovodjob.api.base import api_fields
from horovodjob.api.constants import LABEL_ATTEMPT, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names

SSH_TIMEOUT_SECONDS = 300
FIRST_STEP_SECONDS = 3600


def environment(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """The generated variables, and then those of the user, whose values can refer to generated ones."""
    segment = names.output_path_segment(job)
    logs = f"{job.spec.logs.path_prefix.rstrip('/')}/{segment}/stdouterr" if job.spec.logs else ""
    values = {
        "AZ_BATCHAI_JOB_MOUNT_ROOT": names.MOUNT_ROOT,
        "AZ_BATCHAI_JOB_TEMP": names.JOB_TEMP,
        "AZ_BATCHAI_STDOUTERR_DIR": logs or f"{names.JOB_TEMP}/stdouterr",
        "AZ_BATCHAI_MPI_HOST_FILE": names.HOSTFILE,
        "AZ_BATCHAI_NUM_GPUS": str(job.spec.worker.gpus),
        "HOROVODJOB_NAME": job.metadata.name,
        "HOROVODJOB_NAMESPACE": job.metadata.namespace,
        "HOROVODJOB_UID": job.metadata.uid,
        "HOROVODJOB_HOSTFILE": names.HOSTFILE,
        "HOROVODJOB_SLOTS": str(job.spec.slots),
        "HOROVODJOB_SSH_PORT": str(names.SSH_PORT),
        "HOROVODJOB_SSH_TIMEOUT": str(SSH_TIMEOUT_SECONDS),
    }
    if role is Role.LAUNCHER:
        values["HOROVODJOB_MPI"] = job.spec.mpi.implementation
        if job.spec.launcher_command:
            values["HOROVODJOB_LAUNCHER_COMMAND"] = "1"
    if job.spec.mpi.prefix:
        values["HOROVODJOB_MPI_PREFIX"] = job.spec.mpi.prefix
    if job.spec.elastic:
        values["HOROVODJOB_ELASTIC"] = "1"
    if logs:
        values["HOROVODJOB_LOGS"] = logs
    for job_input in job.spec.inputs or ():
        values[f"AZ_BATCHAI_INPUT_{job_input.id}"] = job_input.path
    for output in job.spec.outputs or ():
        path = f"{output.path_prefix.rstrip('/')}/{segment}/{output.path_suffix or ''}"
        values[f"AZ_BATCHAI_OUTPUT_{output.id}"] = path.rstrip("/")
    if job.spec.outputs:
        values["HOROVODJOB_OUTPUTS"] = " ".join(output.id for output in job.spec.outputs)
    if job.spec.script is not None:
        values["HOROVODJOB_SCRIPT"] = job.spec.script.path
    hosts_ranks = role is Role.WORKER or job.spec.launcher.as_worker
    if hosts_ranks and (seconds := job.spec.run_policy.progress_deadline_seconds):
        values["HOROVODJOB_PROGRESS_DEADLINE"] = str(seconds)
        # For programs that have nothing of ours but Horovod: its own check ends them, later than the watch would. It
        # does not know the first step, in which one rank can compile for longer than the others.
        values["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = str(max(seconds, FIRST_STEP_SECONDS) + 60)
    if role is Role.LAUNCHER and hosts_ranks:
        values["HOROVODJOB_AS_WORKER"] = "1"
    if hosts_ranks and job.spec.preparation:
        values["HOROVODJOB_PREPARATION_TIMEOUT"] = str(job.spec.preparation.timeout_seconds)
    if job.spec.worker.gpus and not hosts_ranks:
        # The runtime of an image can show all GPUs of the node by default, also those of other pods.
        values["NVIDIA_VISIBLE_DEVICES"] = "void"
    generated: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    generated += [
        {"name": "HOROVODJOB_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {
            "name": "HOROVODJOB_ATTEMPT",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{LABEL_ATTEMPT}']"}},
        },
    ]
    if role is Role.LAUNCHER:
        generated.append({"name": "HOROVODJOB_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return generated + [api_fields(variable) for variable in job.spec.env or ()]
