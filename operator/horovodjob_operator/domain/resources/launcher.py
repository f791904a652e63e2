"""The launcher pod, which runs mpirun."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.base import api_fields
from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.replicas import RolePods
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.hostfile import add_hostfile
from horovodjob_operator.domain.resources.parts.placement import avoid_spot_nodes
from horovodjob_operator.domain.resources.parts.pod import (
    UNLIMITED_FAILURES,
    build_container,
    build_pod,
    gpu_resources,
    preparation_arguments,
    start_command,
)
from horovodjob_operator.domain.resources.parts.progress_reporting import add_progress_reporting
from horovodjob_operator.domain.resources.parts.template import merge_template

# The operator fails an attempt with too few workers before Horovod's elastic driver does.
ELASTIC_TIMEOUT_MARGIN_SECONDS = 60


def launcher_pod(job: HorovodJob, attempt: int, hosts: str, progress_url: str, spec_hash: str = "") -> dict[str, Any]:
    """The launcher of this attempt: it waits until `hosts` is not empty, then runs mpirun.

    Raises InvalidJob for a template that is not a pod template.
    """
    # Ready means that mpirun runs. The kubelet runs the probe each second until it succeeds once.
    probe = {"exec": {"command": ["/bin/sh", "-c", f"[ -e {names.RUN_DIRECTORY}/started ]"]}}
    container = build_container(job, Role.LAUNCHER) | {
        "command": start_command("launcher.sh"),
        "args": _arguments(job),
        "startupProbe": probe | {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": UNLIMITED_FAILURES},
        "resources": api_fields(job.spec.launcher.resources) or _default_resources(job),
    }
    if job.spec.launcher.as_worker:
        container["args"] = [*preparation_arguments(job), *container["args"]]
        container["resources"] = gpu_resources(job, job.spec.launcher.resources or job.spec.worker.resources)
    labels = names.labels(job, Role.LAUNCHER, 0, attempt, spec_hash)
    pod = build_pod(job, Role.LAUNCHER, names.launcher_name(job), container, labels)
    add_hostfile(pod, hosts)
    if progress_url and job.spec.launcher.as_worker:
        add_progress_reporting(pod["spec"], progress_url)
    # mpirun and its ranks end with the launcher, and the ranks of a worker can need its whole grace period.
    if (seconds := _grace_period_seconds(job.spec.worker)) is not None:
        pod["spec"]["terminationGracePeriodSeconds"] = seconds
    if job.spec.spot:
        avoid_spot_nodes(pod["spec"])
    return merge_template(pod, job.spec.launcher, Role.LAUNCHER)


def _default_resources(job: HorovodJob) -> dict[str, Any]:
    limits = job.spec.launcher_limits
    return {"requests": job.spec.launcher_requests} | ({"limits": limits} if limits else {})


def _arguments(job: HorovodJob) -> list[str]:
    """The command that starts the ranks, or the options of mpirun and the command of each rank."""
    if job.spec.launcher_command:
        return list(job.spec.launcher_command)
    if elastic := job.spec.elastic:
        slots, cooldown = job.spec.slots, map(str, elastic.cooldown_seconds)
        timeout = job.spec.scheduling.timeout_seconds + ELASTIC_TIMEOUT_MARGIN_SECONDS
        options = ["--min-ranks", str(elastic.min_replicas * slots), "--max-ranks", str(elastic.max_replicas * slots)]
        options += ["--timeout", str(timeout), "--cooldown", *cooldown]
        if elastic.reset_limit:
            options += ["--reset-limit", str(elastic.reset_limit)]
        return ["python3", f"{names.SECRET_DIRECTORY}/elastic.py", *options, "--", *job.spec.argv]
    return [*job.spec.mpi.args, "/bin/sh", f"{names.SECRET_DIRECTORY}/rank.sh", *job.spec.argv]


def _grace_period_seconds(pods: RolePods) -> object:
    """The grace period of a template; the API server validates its type."""
    spec = (pods.template or {}).get("spec")
    return spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None
