"""The objects of a job, as values: its Secret, its workers, its launcher."""

import base64
from collections.abc import Mapping
from typing import Any

from horovodjob.api.base import Model
from horovodjob.api.constants import (
    AKS_POOL_LABEL,
    AKS_PRIORITY_TAINT,
    ANNOTATION_HOSTS,
    API_VERSION,
    GPU_RESOURCE,
    KIND,
    KUEUE_PREFIX,
    LABEL_JOB,
    LABEL_JOB_UID,
    SPOT_LABELS,
    Gang,
    PodSecurity,
    Role,
)
from horovodjob.api.job import HorovodJob
from horovodjob.api.spec import Resources, RolePods
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources import azure_files
from horovodjob_operator.domain.resources import pod_group as gang
from horovodjob_operator.domain.resources.template_merge import overlaid
from horovodjob_operator.errors import InvalidJob

SSH_TIMEOUT_SECONDS = 300
ELASTIC_PATIENCE_SECONDS = 60
# The least that Kubernetes has; the kubelet renews it in time.
TOKEN_SECONDS = 600
GPU_TOLERATIONS = (
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},
)
SPOT_TOLERATION = {"key": AKS_PRIORITY_TAINT, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
WORKER_SCRIPTS = ("environment.sh", "prepare.sh", "rank.sh", "ranks.sh", "script.sh", "session.sh", "worker.sh")


def owner_reference(job: HorovodJob) -> dict[str, Any]:
    """Ownership that lets Kubernetes delete the object with its job, and never holds the job's deletion up."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def secret(job: HorovodJob, contents: Mapping[str, str]) -> dict[str, Any]:
    """The job's keys and start scripts, immutable."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.secret_name(job),
            "namespace": job.metadata.namespace,
            "labels": names.object_labels(job) | {"app.kubernetes.io/component": "keys"},
            "ownerReferences": [owner_reference(job)],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()},
    }


def companions(job: HorovodJob, *, wanted: bool = True) -> list[dict[str, Any]]:
    """What the job has one of beside its Secret, each with the job's name; or those that it does not ask for."""
    own_pods = {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid}
    objects: list[dict[str, Any]] = []
    if job.spec.network.isolate is wanted:
        among_themselves = [{"from": [{"podSelector": {"matchLabels": own_pods}}]}]
        policy = {"podSelector": {"matchLabels": own_pods}, "policyTypes": ["Ingress"], "ingress": among_themselves}
        objects.append(_companion(job, "networking.k8s.io/v1", "NetworkPolicy", "isolation", policy))
    if job.spec.network.service is wanted:
        # The names of its pods in the DNS, as soon as they have an address.
        names_spec: dict[str, Any] = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": own_pods,
            "ports": [{"name": "ssh", "port": names.SSH_PORT, "protocol": "TCP"}],
        }
        objects.append(_companion(job, "v1", "Service", "names", names_spec))
    return objects


def pod_group(job: HorovodJob) -> dict[str, Any] | None:
    """What makes the job's pods one group, where they are to be one. Raises InvalidJob as the pods' builders do."""
    kind = job.spec.scheduling.gang
    if kind is Gang.NONE:
        return None
    spec = gang.group_spec(job, launcher_pod(job, 0, "", ""), worker_pod(job, 0, 0, ""))
    group = _companion(job, gang.API_VERSIONS[kind], "PodGroup", "gang", spec)
    group["metadata"]["labels"][LABEL_JOB_UID] = job.metadata.uid
    return group


def _companion(job: HorovodJob, version: str, kind: str, component: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": names.object_labels(job) | {"app.kubernetes.io/component": component},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def worker_pod(
    job: HorovodJob, index: int, attempt: int, progress_url: str, secret: str = "", spec_hash: str = ""
) -> dict[str, Any]:
    """The worker with this index: an ssh server in whose sessions ranks run; rank 0 posts to the URL, if there is one.

    Where ranks come and go, any worker can come to have rank 0. `secret` names the Secret that the launcher of a
    running attempt mounts; by default it is that of a new attempt. `spec_hash` is what all pods of the attempt carry.

    Raises InvalidJob for a template that has not the shape of a pod.
    """
    container = _container(job, Role.WORKER) | {
        "command": ["/bin/sh", f"{names.SECRET_DIRECTORY}/worker.sh"],
        "args": _preparation(job),
        "ports": [{"name": "ssh", "containerPort": names.SSH_PORT, "protocol": "TCP"}],
        "startupProbe": {
            "tcpSocket": {"port": names.SSH_PORT},
            "periodSeconds": 1,
            "failureThreshold": 2147483647,
        },
        "resources": _worker_resources(job, job.spec.worker.resources),
    }
    labels = names.labels(job, Role.WORKER, index, attempt, spec_hash)
    pod = _pod(job, Role.WORKER, names.worker_name(job, index), container, labels, secret)
    if progress_url and (index == 0 or job.spec.elastic):
        _let_report(pod["spec"], progress_url)
    if job.spec.spot:
        pod["spec"]["tolerations"].append(dict(SPOT_TOLERATION))
        preferred = [{"weight": 100, "preference": {"matchExpressions": [label]}} for label in _spot("In")]
        pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return _with_template(pod, job.spec.worker, Role.WORKER)


def _spot(operator: str) -> list[dict[str, Any]]:
    """Expressions of which one fits nodes that AKS can take away at any time, or all fit the others."""
    return [{"key": label, "operator": operator, "values": ["spot"]} for label in SPOT_LABELS]


def _let_report(pod: dict[str, Any], url: str) -> None:
    """Gives a worker that can have rank 0 what its reports of progress need: without elastic, the first one.

    The token says which pod it is and opens nothing: no API server takes one for this audience.
    """
    token = {"audience": names.PROGRESS_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": names.PROGRESS_TOKEN}
    # Readable for whatever user the image has; with fsGroup or runAsUser the kubelet sees to that itself.
    source = {"defaultMode": 0o444, "sources": [{"serviceAccountToken": token}]}
    pod["volumes"].append({"name": "horovodjob-progress", "projected": source})
    (container,) = pod["containers"]
    container["volumeMounts"].append(_mount("horovodjob-progress", names.PROGRESS_DIRECTORY, read_only=True))
    container["env"] += [
        {"name": "HOROVODJOB_PROGRESS_URL", "value": url},
        {"name": "HOROVODJOB_PROGRESS_TOKEN_FILE", "value": f"{names.PROGRESS_DIRECTORY}/{names.PROGRESS_TOKEN}"},
    ]


def launcher_pod(job: HorovodJob, attempt: int, hosts: str, progress_url: str, spec_hash: str = "") -> dict[str, Any]:
    """The launcher of this attempt: it waits until `hosts` is not empty, then runs mpirun.

    Raises InvalidJob for a template that has not the shape of a pod.
    """
    # Ready means that mpirun runs; the kubelet asks each second until it does, and never again.
    probe = {"exec": {"command": ["/bin/sh", "-c", f"[ -e {names.RUN_DIRECTORY}/started ]"]}}
    container = _container(job, Role.LAUNCHER) | {
        "command": ["/bin/sh", f"{names.SECRET_DIRECTORY}/launcher.sh"],
        "args": _launcher_arguments(job),
        "startupProbe": probe | {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2147483647},
        "resources": _dumped(job.spec.launcher.resources) or {"requests": job.spec.launcher_requests},
    }
    if job.spec.launcher.as_worker:
        container["args"] = [*_preparation(job), *container["args"]]
        container["resources"] = _worker_resources(job, job.spec.launcher.resources or job.spec.worker.resources)
    container["volumeMounts"].append(_mount("horovodjob-hosts", names.HOSTS_DIRECTORY, read_only=True))
    labels = names.labels(job, Role.LAUNCHER, 0, attempt, spec_hash)
    pod = _pod(job, Role.LAUNCHER, names.launcher_name(job), container, labels)
    if progress_url and job.spec.launcher.as_worker:
        _let_report(pod["spec"], progress_url)
    # mpirun and its ranks live as long as the launcher, and those of a worker may need all of the worker's time.
    if (seconds := _grace_seconds(job.spec.worker)) is not None:
        pod["spec"]["terminationGracePeriodSeconds"] = seconds
    if job.spec.spot:
        lasting = {"nodeSelectorTerms": [{"matchExpressions": _spot("NotIn")}]}
        pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": lasting}}
    pod["metadata"]["annotations"][ANNOTATION_HOSTS] = hosts
    field = {"path": "hosts", "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_HOSTS}']"}}
    pod["spec"]["volumes"].append({"name": "horovodjob-hosts", "downwardAPI": {"items": [field]}})
    return _with_template(pod, job.spec.launcher, Role.LAUNCHER)


def _launcher_arguments(job: HorovodJob) -> list[str]:
    """What starts the ranks, or mpirun's options and what it starts: each rank by its start script."""
    if job.spec.launcher_command:
        return list(job.spec.launcher_command)
    if elastic := job.spec.elastic:
        slots, lo_hi = job.spec.slots, map(str, elastic.cooldown_seconds)
        # The operator is the first to give up workers that do not come.
        timeout = job.spec.scheduling.timeout_seconds + ELASTIC_PATIENCE_SECONDS
        options = ["--min-ranks", str(elastic.min_replicas * slots), "--max-ranks", str(elastic.max_replicas * slots)]
        options += ["--timeout", str(timeout), "--cooldown", *lo_hi]
        if elastic.reset_limit:
            options += ["--reset-limit", str(elastic.reset_limit)]
        return ["python3", f"{names.SECRET_DIRECTORY}/elastic.py", *options, "--", *job.spec.argv]
    return [*job.spec.mpi.args, "/bin/sh", f"{names.SECRET_DIRECTORY}/rank.sh", *job.spec.argv]


def _grace_seconds(pods: RolePods) -> object:
    """The grace period of a template; the API server looks at what it is."""
    spec = (pods.template or {}).get("spec")
    return spec.get("terminationGracePeriodSeconds") if isinstance(spec, Mapping) else None


def _dumped(model: Model | None) -> dict[str, Any]:
    return model.model_dump(by_alias=True, exclude_none=True) if model else {}


def _preparation(job: HorovodJob) -> list[str]:
    """First argument of a pod that hosts ranks, where there is something to prepare."""
    return [job.spec.preparation.command] if job.spec.preparation else []


def _worker_resources(job: HorovodJob, given: Resources | None) -> dict[str, Any]:
    resources = _dumped(given)
    if job.spec.worker.gpus:
        gpus = {GPU_RESOURCE: job.spec.worker.gpus}
        resources["limits"] = gpus | resources.get("limits", {})
    return resources


def _mount(name: str, path: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _environment(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """Generated variables first, so that the user's values can refer to them."""
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
        "HOROVODJOB_HOSTFILE": names.HOSTFILE,
        "HOROVODJOB_SLOTS": str(job.spec.slots),
        "HOROVODJOB_SSH_PORT": str(names.SSH_PORT),
        "HOROVODJOB_SSH_TIMEOUT": str(SSH_TIMEOUT_SECONDS),
    }
    if role is Role.LAUNCHER:
        values["HOROVODJOB_MPI"] = job.spec.mpi.implementation
        if job.spec.launcher_command:
            values["HOROVODJOB_LAUNCHER_COMMAND"] = "1"
    if job.spec.elastic:
        values["HOROVODJOB_ELASTIC"] = "1"
    if logs:
        values["HOROVODJOB_LOGS"] = logs
    for given in job.spec.inputs or ():
        values[f"AZ_BATCHAI_INPUT_{given.id}"] = given.path
    for output in job.spec.outputs or ():
        path = f"{output.path_prefix.rstrip('/')}/{segment}/{output.path_suffix or ''}"
        values[f"AZ_BATCHAI_OUTPUT_{output.id}"] = path.rstrip("/")
    if job.spec.outputs:
        values["HOROVODJOB_OUTPUTS"] = " ".join(output.id for output in job.spec.outputs)
    if job.spec.script is not None:
        values["HOROVODJOB_SCRIPT"] = job.spec.script.path
    hosts_ranks = role is Role.WORKER or job.spec.launcher.as_worker
    if role is Role.LAUNCHER and hosts_ranks:
        values["HOROVODJOB_AS_WORKER"] = "1"
    if hosts_ranks and job.spec.preparation:
        values["HOROVODJOB_PREPARATION_TIMEOUT"] = str(job.spec.preparation.timeout_seconds)
    if job.spec.worker.gpus and not hosts_ranks:
        # An image whose runtime shows all GPUs by default would show the launcher GPUs that are others'.
        values["NVIDIA_VISIBLE_DEVICES"] = "void"
    generated: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    generated += [
        {"name": "HOROVODJOB_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {
            "name": "HOROVODJOB_ATTEMPT",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['horovodjob.dev/attempt']"}},
        },
    ]
    if role is Role.LAUNCHER:
        generated.append({"name": "HOROVODJOB_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return generated + [_dumped(variable) for variable in job.spec.env or ()]


def _container(job: HorovodJob, role: Role) -> dict[str, Any]:
    spec = job.spec
    if not spec.image:
        raise InvalidJob("spec.image is empty, and the operator has no default image: set spec.image")
    mounts = [
        _mount(names.SECRET_VOLUME, names.SECRET_DIRECTORY, read_only=True),
        _mount("horovodjob-run", names.RUN_DIRECTORY),
        _mount("horovodjob-temp", names.JOB_TEMP),
        *([_mount("horovodjob-shm", "/dev/shm")] if spec.shm_size is not None else []),
        *azure_files.mounts(job),
        *(_dumped(mount) for mount in spec.volume_mounts or ()),
    ]
    container: dict[str, Any] = {
        "name": role.value,
        "image": spec.image,
        "env": _environment(job, role),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.image_pull_policy:
        container["imagePullPolicy"] = spec.image_pull_policy
    if spec.env_from:
        container["envFrom"] = list(spec.env_from)
    if spec.pod_security is PodSecurity.RESTRICTED:
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    return container


def _keys_and_scripts(name: str, role: Role) -> list[dict[str, Any]]:
    """What a pod gets of the job's Secret with this name."""
    if role is Role.LAUNCHER:
        return [{"secret": {"name": name}}]
    # Workers answer ssh and never call: the private key stays with the launcher.
    keys = [{"key": key, "path": key} for key in ("ssh_host_ed25519_key", "authorized_keys")]
    scripts = [{"key": key, "path": key} for key in WORKER_SCRIPTS]
    # An attempt keeps the scripts that it began with: a newer operator must do without those that came later.
    return [{"secret": {"name": name, "items": keys}}, {"secret": {"name": name, "items": scripts, "optional": True}}]


def _volumes(job: HorovodJob, role: Role, secret: str) -> list[dict[str, Any]]:
    sources = _keys_and_scripts(secret or names.secret_name(job), role)
    volumes = [
        {"name": names.SECRET_VOLUME, "projected": {"sources": sources, "defaultMode": 0o444}},
        {"name": "horovodjob-run", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "horovodjob-temp", "emptyDir": {}},
    ]
    if job.spec.shm_size is not None:
        volumes.append({"name": "horovodjob-shm", "emptyDir": {"medium": "Memory", "sizeLimit": job.spec.shm_size}})
    volumes += azure_files.volumes(job, job.spec.launcher if role is Role.LAUNCHER else job.spec.worker)
    return volumes + [_dumped(volume) for volume in job.spec.volumes or ()]


def _pod(
    job: HorovodJob, role: Role, name: str, container: dict[str, Any], labels: dict[str, str], secret: str = ""
) -> dict[str, Any]:
    spec = job.spec
    queue_labels, queue_annotations = (
        {key: value for key, value in mapping.items() if key.startswith(KUEUE_PREFIX)}
        for mapping in (job.metadata.labels, job.metadata.annotations)
    )
    tolerations = [_dumped(toleration) for toleration in spec.tolerations or ()]
    # The launcher is placed in the pool, too, and a GPU pool of AKS has a taint.
    if spec.worker.gpus and (role is Role.WORKER or spec.launcher.as_worker or spec.pool):
        tolerations += [dict(toleration) for toleration in GPU_TOLERATIONS]
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": _volumes(job, role, secret),
        "tolerations": tolerations,
        "nodeSelector": {**(spec.node_selector or {}), **({AKS_POOL_LABEL: spec.pool} if spec.pool else {})},
    }
    if spec.network.service:
        pod_spec |= {"hostname": name, "subdomain": job.metadata.name}
    if spec.priority_class_name:
        pod_spec["priorityClassName"] = spec.priority_class_name
    if spec.service_account_name:
        pod_spec["serviceAccountName"] = spec.service_account_name
    if spec.image_pull_secrets:
        pod_spec["imagePullSecrets"] = [_dumped(reference) for reference in spec.image_pull_secrets]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": queue_labels | labels,
            "annotations": queue_annotations
            | {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "sidecar.istio.io/inject": "false"},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod_spec,
    }
    gang.join(pod, job)
    return pod


def _with_template(pod: dict[str, Any], pods: RolePods, role: Role) -> dict[str, Any]:
    """The pod with the user's template over it; what the operator lives on stays its own."""
    if not pods.template:
        return pod
    where = f"spec.{role.value}.template"
    template = {key: value for key, value in pods.template.items() if key in ("metadata", "spec")}
    unknown = sorted(set(pods.template) - set(template) - {"apiVersion", "kind"})
    if unknown:
        raise InvalidJob(f"{where} has the field {unknown[0]}; a pod template has metadata and spec")
    metadata = template.get("metadata") or {}
    if isinstance(metadata, Mapping):
        own = sorted(set(metadata) - {"labels", "annotations", "creationTimestamp"})
        if own:
            raise InvalidJob(
                f"{where}.metadata.{own[0]} cannot be set: of the metadata only labels and annotations can"
            )
        template["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    merged = overlaid(pod, template, where)
    _guard(merged, pod, where, role)
    return merged


def _guard(merged: dict[str, Any], pod: dict[str, Any], where: str, role: Role) -> None:
    """Raises InvalidJob where the template changed what the job needs to start, to be found and to be counted."""
    metadata, spec = merged.get("metadata"), merged.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise InvalidJob(f"{where}.spec and {where}.metadata must be objects")
    for key, value in pod["metadata"]["labels"].items():
        if (metadata.get("labels") or {}).get(key) != value:
            raise InvalidJob(f"{where}.metadata.labels: the label {key} is the operator's, remove it")
    if spec.get("restartPolicy") != "Never":
        raise InvalidJob(f"{where}.spec.restartPolicy must not be set: the operator restarts the whole job")
    containers = spec.get("containers") or ()
    own: Mapping[str, Any] = next((c for c in containers if c.get("name") == role.value), {})
    for field in ("command", "args"):
        if own.get(field) != pod["spec"]["containers"][0].get(field):
            raise InvalidJob(
                f"{where}.spec.containers[name={role.value}].{field} must not be set: spec.script, spec.command or "
                "spec.launcherCommand says what runs"
            )
