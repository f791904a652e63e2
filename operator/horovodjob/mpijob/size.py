"""Size of a job: workers, GPUs, slots, resources and elastic bounds."""

from typing import Any

from horovodjob.api.constants import GPU_RESOURCE
from horovodjob.document import Node
from horovodjob.mpijob.launcher import Launch
from horovodjob.mpijob.pods import RolePod, resources


def job_size(
    spec: Node,
    worker_spec: Node | None,
    launcher_spec: Node | None,
    worker: RolePod,
    launcher: RolePod,
    launched: Launch,
    gpus: int | None,
) -> dict[str, Any]:
    """Workers, their GPUs, slots and resources, the launcher's part in it, and elastic bounds."""
    notes = spec.notes
    workers = 0 if worker_spec is None else worker_spec.number("replicas", 0, 10000)
    workers = 1 if workers is None else workers
    as_worker = spec.flag("runLauncherAsWorker") or workers == 0
    replicas = workers + 1 if as_worker else workers
    worker_resources, worker_gpus = resources(worker)
    launcher_resources, launcher_gpus = resources(launcher)
    if not worker.exists:
        worker_gpus = launcher_gpus
    count = gpus if gpus is not None else worker_gpus
    if count < 0:
        notes.refuse("--gpus", "must be 0 or more")
    if launcher_gpus and not as_worker:
        launcher_resources.setdefault("limits", {})[GPU_RESOURCE] = launcher_gpus
    per_worker, of_mpirun = spec.number("slotsPerWorker", 1, 256), launched.elastic.get("slots") or launched.slots
    if per_worker and of_mpirun and per_worker != of_mpirun:
        notes.warn(spec.at("slotsPerWorker"), f"is omitted: the launcher's command starts {of_mpirun} on each worker")
    slots = of_mpirun or per_worker or 1
    slots = _checked_slots(spec, launcher_spec, launched, replicas, slots)
    section: dict[str, Any] = {"replicas": replicas, "gpus": count}
    if slots != max(count, 1):
        section["slots"] = slots
    if worker_resources:
        section["resources"] = worker_resources
    launcher_section: dict[str, Any] = {"asWorker": True} if as_worker else {}
    if launcher_resources:
        launcher_section["resources"] = launcher_resources
    result = {"worker": section} | ({"launcher": launcher_section} if launcher_section else {})
    return result | _elastic(launched, replicas, slots, section)


def _checked_slots(spec: Node, launcher_spec: Node | None, launched: Launch, replicas: int, slots: int) -> int:
    """Slots for the number of processes that mpirun was to start, if that is possible."""
    processes = launched.processes
    if processes is None or processes == replicas * slots or launched.elastic:
        return slots
    where = launcher_spec.at("template") if launcher_spec is not None else spec.path
    wanted, rest = divmod(processes, replicas)
    if not rest and 1 <= wanted <= 256:
        spec.notes.warn(
            where, f"mpirun starts {processes} processes: {wanted} on each of {replicas} workers, instead of {slots}"
        )
        return wanted
    spec.notes.warn(
        where,
        f"mpirun starts {processes} processes, and the job has {replicas * slots}: as many on each worker; change "
        "worker.replicas or worker.slots",
    )
    return slots


def _elastic(launched: Launch, replicas: int, slots: int, section: dict[str, Any]) -> dict[str, Any]:
    given = launched.elastic
    if not {"min", "max"} & set(given):
        return {}
    least = max(-(-given.get("min", 1) // slots), 1)
    most = max(given.get("max", replicas * slots) // slots, least)
    section["replicas"] = min(max(replicas, least), most)
    elastic: dict[str, Any] = {"minReplicas": least, "maxReplicas": most}
    return {"elastic": elastic | ({"resetLimit": given["reset"]} if given.get("reset") else {})}
