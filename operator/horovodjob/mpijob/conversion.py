"""Kubeflow's MPIJob (v1alpha2, v1 and v2beta1), converted to a HorovodJob."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND
from horovodjob.batchai.names import pool_name_error
from horovodjob.conversion import Conversion, ConversionError, Notes, conversion
from horovodjob.document import Node, root, unknown_keys
from horovodjob.mpijob.kubeflow import Translation
from horovodjob.mpijob.launcher import Launch, launch
from horovodjob.mpijob.metadata import job_metadata
from horovodjob.mpijob.pods import RolePod, read_pod, role_template, runs_as_root, shared_fields
from horovodjob.mpijob.size import job_size
from horovodjob.mpijob.variables import job_variables
from horovodjob.mpijob.worker import preparation

__all__ = ["Conversion", "ConversionError", "convert", "is_mpijob"]

VERSIONS = ("kubeflow.org/v1alpha2", "kubeflow.org/v1", "kubeflow.org/v2beta1")
IMPLEMENTATIONS = {"OpenMPI": "OpenMPI", "Intel": "IntelMPI", "MPICH": "MPICH"}
KNOWN = frozenset(
    {
        "apiVersion",
        "kind",
        "metadata",
        "status",
        "spec.slotsPerWorker",
        "spec.runLauncherAsWorker",
        "spec.cleanPodPolicy",
    }
    | {"spec.mainContainer", "spec.sshAuthMountPath", "spec.launcherCreationPolicy", "spec.mpiImplementation"}
    | {f"spec.mpiReplicaSpecs.{role}.{key}" for role in ("Launcher", "Worker") for key in ("replicas", "restartPolicy")}
    | {f"spec.mpiReplicaSpecs.{role}.template" for role in ("Launcher", "Worker")}
    | {f"spec.runPolicy.{key}" for key in ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds")}
    | {f"spec.runPolicy.{key}" for key in ("backoffLimit", "suspend", "managedBy")}
    | {f"spec.runPolicy.schedulingPolicy.{key}" for key in ("minAvailable", "queue", "minResources", "priorityClass")}
    | {"spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds"}
)
KUBEFLOW_OPERATOR = "kubeflow.org/mpi-operator"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
MOST = 2147483647


def is_mpijob(document: Any) -> bool:
    """Whether the document is an MPIJob of any version."""
    return isinstance(document, Mapping) and document.get("kind") == "MPIJob"


def convert(
    document: Any,
    *,
    name: str | None = None,
    namespace: str | None = None,
    experiment: str | None = None,
    pool: str | None = None,
    image: str | None = None,
    gpus: int | None = None,
) -> Conversion:
    """The HorovodJob of a parsed MPIJob, with a warning for everything that is not carried over.

    Raises ConversionError with every problem of the document.
    """
    notes = Notes()
    top = _root(document, notes)
    metadata = job_metadata(top, name, namespace, experiment)
    spec = top.child("spec") or Node({}, "spec", notes)
    translation = Translation(_original_name(top), metadata.get("name", ""), notes)
    replicas = _translated(spec, translation)
    if replicas is None:
        notes.refuse(spec.at("mpiReplicaSpecs"), "is missing: add Launcher and Worker")
        notes.raise_problems()
    assert replicas is not None
    worker_spec, launcher_spec = replicas.child("Worker"), replicas.child("Launcher")
    if launcher_spec is None:
        notes.refuse(replicas.at("Launcher"), "is missing: add it with the command to run")
    main_container = spec.text("mainContainer")
    launcher, worker = read_pod(launcher_spec, main_container), read_pod(worker_spec, main_container)
    implementation = _implementation(spec)
    launched = launch(launcher.container, implementation) if launcher.container is not None else Launch()
    size = job_size(spec, worker_spec, launcher_spec, worker, launcher, launched, gpus)
    converted: dict[str, Any] = _image(worker, launcher, image)
    converted |= _pool(pool, notes) | size | launched.spec
    if implementation != "OpenMPI":
        converted["mpi"] = {"implementation": implementation} | launched.spec.get("mpi", {})
    converted |= job_variables(worker, launcher, launched)
    if worker.container is not None and (command := preparation(worker.container)):
        converted["preparation"] = {"command": command}
    if translation.needs_service:
        converted["network"] = {"service": True}
    converted |= _scheduling(spec, worker, launcher, metadata)
    converted |= shared_fields(worker, launcher)
    converted |= _pod_security(spec, worker, launcher, launched)
    for role, pod in (("worker", worker), ("launcher", launcher)):
        if template := role_template(role, pod):
            converted.setdefault(role, {})["template"] = template
    if policy := _run_policy(spec):
        converted["runPolicy"] = policy
    if manager := _manager(spec):
        converted["managedBy"] = manager
    _report_dropped(spec, worker_spec, launcher_spec)
    return conversion({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": converted}, (), notes)


def _root(document: Any, notes: Notes) -> Node:
    top = root(document, notes, "a Kubeflow MPIJob")
    if document.get("kind") != "MPIJob":
        notes.refuse("kind", "must be MPIJob")
    if document.get("apiVersion") not in VERSIONS:
        notes.refuse("apiVersion", f"must be one of {', '.join(VERSIONS)}")
    if not top.has("spec"):
        notes.refuse("spec", "is missing: add it")
    for path, close in unknown_keys(document, KNOWN):
        notes.warn(path, "is not a field of an MPIJob and is ignored" + (f": is {close} meant?" if close else ""))
    return top


def _original_name(top: Node) -> str:
    metadata = top.child("metadata")
    return (metadata.text("name") if metadata is not None else None) or ""


def _translated(spec: Node, translation: Translation) -> Node | None:
    """The replicas, with the names of a HorovodJob in place of Kubeflow's."""
    replicas = spec.child("mpiReplicaSpecs")
    if replicas is None:
        return None
    worker = replicas.value.get("Worker")
    has_workers = isinstance(worker, Mapping) and worker.get("replicas") not in (0, "0")
    translation.first_worker = 1 if spec.value.get("runLauncherAsWorker") is True or not has_workers else 0
    main_container = spec.value.get("mainContainer")
    changed = {
        role: {
            **replica,
            "template": translation.pod_template(
                replica.get("template"), f"{replicas.at(role)}.template", str(main_container or "")
            ),
        }
        if isinstance(replica, Mapping)
        else replica
        for role, replica in replicas.value.items()
    }
    return Node(changed, replicas.path, spec.notes)


def _implementation(spec: Node) -> str:
    given = spec.text("mpiImplementation") or "OpenMPI"
    if given not in IMPLEMENTATIONS:
        spec.notes.refuse(spec.at("mpiImplementation"), f"must be {', '.join(IMPLEMENTATIONS)}")
    return IMPLEMENTATIONS.get(given, given)


def _image(worker: RolePod, launcher: RolePod, image: str | None) -> dict[str, Any]:
    """The image of both roles; a launcher with a different image keeps it in its template."""
    images = [pod.main.pop("image", None) for pod in (worker, launcher)]
    main = next((given for given in (image, *images) if given), None)
    node = worker.container or launcher.container
    if not isinstance(main, str):
        if node is not None:
            node.notes.refuse(node.at("image"), "is missing: add it, or name one with --image")
        return {}
    if image is None and images[1] and images[1] != main:
        launcher.main["image"] = images[1]
    return {"image": main}


def _pool(pool: str | None, notes: Notes) -> dict[str, str]:
    if pool is None:
        return {}
    if problem := pool_name_error(pool):
        notes.refuse("--cluster", problem)
    return {"pool": pool}


def _scheduling(spec: Node, worker: RolePod, launcher: RolePod, metadata: dict[str, Any]) -> dict[str, Any]:
    policy = spec.child("runPolicy")
    policy = policy.child("schedulingPolicy") if policy is not None else None
    schedulers = {pod.pod.get("schedulerName") for pod in (worker, launcher)}
    if "volcano" in schedulers:
        for pod in (worker, launcher):
            pod.pod.pop("schedulerName", None)
    if policy is None:
        return {"scheduling": {"gang": "Volcano"}} if "volcano" in schedulers else {}
    notes = spec.notes
    scheduling: dict[str, Any] = {"gang": "Volcano"}
    if (seconds := policy.number("scheduleTimeoutSeconds", 1, MOST)) is not None:
        scheduling["timeoutSeconds"] = seconds
    if queue := policy.text("queue"):
        metadata.setdefault("annotations", {})[VOLCANO_QUEUE] = queue
    if "volcano" not in schedulers:
        notes.warn(policy.path, "becomes scheduling.gang: Volcano; set Native or None if Volcano is not installed")
    for key in ("minAvailable", "minResources"):
        if policy.has(key):
            notes.warn(policy.at(key), "is omitted: a gang is the whole job, or elastic.minReplicas of it")
    result: dict[str, Any] = {"scheduling": scheduling}
    if priority := policy.text("priorityClass"):
        result["priorityClassName"] = priority
        if any(pod.pod.get("priorityClassName", priority) != priority for pod in (worker, launcher)):
            notes.warn(policy.at("priorityClass"), "is omitted where a pod template has another priorityClassName")
    return result


def _pod_security(spec: Node, worker: RolePod, launcher: RolePod, launched: Launch) -> dict[str, str]:
    directory = spec.text("sshAuthMountPath") or "/root/.ssh"
    if not runs_as_root((worker, launcher), directory, asks=launched.as_root):
        return {}
    spec.notes.warn(
        spec.path,
        "the pods run as root, as those of an MPIJob do by default, so the job has podSecurity: Baseline; remove it "
        "for an image with another user",
    )
    return {"podSecurity": "Baseline"}


def _run_policy(spec: Node) -> dict[str, Any]:
    policy = spec.child("runPolicy") or Node({}, spec.at("runPolicy"), spec.notes)
    result: dict[str, Any] = {}
    clean, older = policy.text("cleanPodPolicy"), spec.text("cleanPodPolicy")
    if clean and older and clean != older:
        spec.notes.warn(spec.at("cleanPodPolicy"), "is omitted: runPolicy.cleanPodPolicy takes precedence")
    clean = clean or older
    if clean in ("Running", "All", "None"):
        result["cleanPodPolicy"] = clean
    elif clean is not None:
        spec.notes.refuse(policy.at("cleanPodPolicy"), "must be Running, All or None")
    for key, least, most in (
        ("backoffLimit", 0, 1000),
        ("activeDeadlineSeconds", 1, MOST),
        ("ttlSecondsAfterFinished", 0, MOST),
    ):
        if (number := policy.number(key, least, most)) is not None:
            result[key] = number
    if policy.flag("suspend"):
        result["suspend"] = True
    return result


def _manager(spec: Node) -> str | None:
    """The controller of the job; None for that of its kind."""
    policy = spec.child("runPolicy")
    manager = policy.text("managedBy") if policy is not None else None
    return None if manager == KUBEFLOW_OPERATOR else manager


def _report_dropped(spec: Node, worker_spec: Node | None, launcher_spec: Node | None) -> None:
    notes = spec.notes
    if spec.has("sshAuthMountPath"):
        notes.warn(spec.at("sshAuthMountPath"), "is omitted: the operator has keys for every user")
    if spec.has("launcherCreationPolicy"):
        notes.warn(spec.at("launcherCreationPolicy"), "is omitted: mpirun always waits for all workers")
    for replica in (worker_spec, launcher_spec):
        if replica is not None and (policy := replica.text("restartPolicy")):
            notes.warn(
                replica.at("restartPolicy"),
                f"{policy} is omitted: runPolicy.backoffLimit and runPolicy.onWorkerLoss restart the whole job",
            )
    if launcher_spec is not None and launcher_spec.number("replicas", 0, 10000) not in (None, 1):
        notes.warn(launcher_spec.at("replicas"), "is omitted: a job has one launcher")
