"""Short-lived pods that mount volumes of a job, in which `hvj` runs commands while the job has no pods."""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from horovodjob.api.constants import ANNOTATION_JOB_DEFAULTS, LABEL_ROLE
from horovodjob.azurefiles.errors import Unavailable
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.claims import claim_names, unbound_claims
from horovodjob.client.cluster.default_image import default_image
from horovodjob.client.errors import ClientError
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message

Object = dict[str, Any]
ROLE = "files"
# A new disk belongs to root: the kubelet gives it to this group, which all pods of a job with it have.
SECURITY_CONTEXT = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}
START_SECONDS = 300
NOTICE_SECONDS = 10
LIFETIME_SECONDS = 6 * 3600  # of a pod that outlives `hvj`, which was killed


def volume_pod(job: Object, volumes: Sequence[Object], mounts: Sequence[Object]) -> Object:
    """A pod with these volumes, under Pod Security `restricted` if the job's pods are. Raises ClientError."""
    metadata, spec = job["metadata"], job["spec"]
    container: Object = {
        "name": ROLE,
        "image": _image(job),
        "command": ["sleep", str(LIFETIME_SECONDS)],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    if pull_policy := spec.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy
    if spec.get("podSecurity", "Restricted") == "Restricted":
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    template = (spec.get("worker", {}).get("template") or {}).get("spec") or {}
    kept = {key: spec[key] for key in ("nodeSelector", "tolerations", "imagePullSecrets") if spec.get(key)}
    pod: Object = {
        "metadata": {
            "name": f"{metadata['name'][:48]}-files-{secrets.token_hex(4)}",
            "namespace": metadata["namespace"],
            "labels": {LABEL_ROLE: ROLE, "app.kubernetes.io/managed-by": "hvj"},
        },
        "spec": {
            **kept,
            "activeDeadlineSeconds": LIFETIME_SECONDS,
            "automountServiceAccountToken": False,
            "containers": [container],
            "restartPolicy": "Never",
            "securityContext": template.get("securityContext") or {},
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
        },
    }
    if "uid" in metadata:
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


def started(wanted: Object, purpose: str, limit: WaitLimit) -> Object:
    """The new pod, as soon as it runs; `wanted` gets its UID. The caller deletes it, also after an error.

    Raises TimedOut, Unavailable after five minutes if the limit has no time, ApiException.
    """
    name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
    pod: Object = kube.plain(kube.core().create_namespaced_pod(namespace, wanted))
    wanted["metadata"]["uid"] = pod["metadata"]["uid"]
    begin = time.monotonic()
    deadline, has_notice = begin + START_SECONDS, False
    while not is_running(pod):
        if not has_notice and time.monotonic() > begin + NOTICE_SECONDS:
            has_notice = True
            message(f"waiting for pod {name}: {_reasons(pod)}")
        is_late = not limit.has_time and time.monotonic() > deadline
        if is_late or pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            raise Unavailable(
                f"pod {name}, which {purpose}, did not start: {_reasons(pod)}; "
                f"see `kubectl describe pod {name} -n {namespace}`"
            )
        limit.check_time(f"pod {name}, which {purpose}, did not start")
        time.sleep(0.5)
        pod = kube.plain(kube.core().read_namespaced_pod(name, namespace))
    return pod


def delete(pod: Object) -> None:
    """Delete the pod, by UID if its creation has been answered; otherwise its name has random digits."""
    from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions

    metadata = pod["metadata"]
    uid = {"preconditions": V1Preconditions(uid=metadata["uid"])} if "uid" in metadata else {}
    with suppress(ApiException):
        kube.core().delete_namespaced_pod(
            metadata["name"], metadata["namespace"], body=V1DeleteOptions(grace_period_seconds=0, **uid)
        )


def is_running(pod: Object) -> bool:
    """Whether the pod's container runs, so that it can run commands."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    role = pod["metadata"]["labels"][LABEL_ROLE]
    running = any(status["name"] == role and "running" in status.get("state", {}) for status in statuses)
    return running and not pod["metadata"].get("deletionTimestamp")


def _image(job: Object) -> str:
    """The image of the job: its own, that of its pods, or the default of its namespace. Raises ClientError."""
    if image := job["spec"].get("image"):
        return str(image)
    for pod in kube.pods(job) if "uid" in job["metadata"] else ():
        for container in pod["spec"]["containers"]:
            if container["name"] == pod["metadata"]["labels"][LABEL_ROLE]:
                return str(container["image"])
    if image := default_image(job["metadata"]["namespace"]):
        return image
    raise ClientError(
        "a pod that mounts the volume needs the image of the job, and only the operator knows its default image: "
        f"create the job with `image=`, or set the annotation {ANNOTATION_JOB_DEFAULTS} of the namespace"
    )


def _reasons(pod: Object) -> str:
    claims = unbound_claims(claim_names(pod["spec"].get("volumes", ())), pod["metadata"]["namespace"])
    return "; ".join([_reason(pod), *claims])


def _reason(pod: Object) -> str:
    status = pod.get("status", {})
    waiting = [each["state"]["waiting"] for each in status.get("containerStatuses", []) if each["state"].get("waiting")]
    conditions = [each for each in status.get("conditions", []) if each.get("status") == "False"]
    for found in (*waiting, *conditions):
        if words := found.get("message") or found.get("reason"):
            return str(words)
    return str(status.get("phase", "Pending"))
