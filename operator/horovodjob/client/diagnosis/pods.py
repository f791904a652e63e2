"""The state of the job: its condition, its image and its pull secrets."""

import shlex
from collections.abc import Iterator

from horovodjob.api.constants import LABEL_JOB
from horovodjob.client.cluster.default_image import default_image
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Forbidden, Object, Outcome

PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
LISTED_IMAGES = 50  # a kubelet reports its largest ones
SUSPECTS = ("Failed", "BackOff", "InspectFailed", "ErrImageNeverPull")


def stalled(facts: Facts) -> Iterator[CheckResult]:
    """The operator's condition of a job that cannot continue."""
    for condition in ((facts.job or {}).get("status") or {}).get("conditions", []):
        if condition["type"] == "Stalled" and condition["status"] == "True":
            name = facts.job["metadata"]["name"] if facts.job else ""
            message = f"{facts.subject} is stalled: {condition['reason']}: {condition['message']}"
            yield CheckResult(
                "job", Outcome.BLOCKS, message, f"kubectl describe horovodjob {name} -n {facts.namespace}"
            )


def image(facts: Facts) -> Iterator[CheckResult]:
    """There is an image, the pull secrets exist, and no pod of the job, or of the namespace's jobs, waits for it."""
    default = default_image_of(facts)
    failures = [*missing_image(facts, default), *missing_pull_secrets(facts), *failed_pulls(facts)]
    failures = failures or [*unloaded_image(facts, default or "")]
    yield from failures
    if not failures:
        words = f"; jobs without one get {default}" if default else ""
        yield CheckResult("image", Outcome.OK, f"no pod of {facts.subject} waits for an image{words}")


def default_image_of(facts: Facts) -> str | None:
    """The image of the job, or of any without GPUs, if it names none: empty for none, None if unknown or unused."""
    if facts.spec is None:
        return default_image(facts.namespace)
    return None if facts.spec.image else default_image(facts.namespace, facts.spec.worker.gpus)


def unloaded_image(facts: Facts, default: str) -> Iterator[CheckResult]:
    """A default image of no registry, such as that of kind, which nodes look for in their own default registry."""
    host = default.partition("/")[0]
    if not default or "." in host or ":" in host or host == "localhost":
        return
    try:
        listed = [node["status"].get("images") or [] for node in facts.nodes]
    except Forbidden:
        return
    names = {name for images in listed for each in images for name in each.get("names") or ()}
    if not listed or max(map(len, listed)) >= LISTED_IMAGES or any(each.endswith(f"/{default}") for each in names):
        return
    message = (
        f"jobs without an image get {default}, which no node has, and it names no registry: the nodes pull it from "
        "their default registry; load it on the nodes, or set image.registry of the operator's chart"
    )
    yield CheckResult("image", Outcome.WARNING, message, f"kind load docker-image {default}")


def missing_image(facts: Facts, default: str | None) -> Iterator[CheckResult]:
    """Reports a job without image where there is no default one; without a job, that there is no default one."""
    if default != "":
        return
    command = (
        "helm upgrade horovodjob-operator charts/horovodjob-operator --namespace horovodjob-system "
        "--reset-then-reuse-values --set jobDefaults.image=<image>"
    )
    missing = f"neither the operator nor namespace {facts.namespace} has a default image"
    if facts.spec is not None:
        yield CheckResult("image", Outcome.BLOCKS, f"{facts.subject} has no image, and {missing}", command)
    else:
        message = f"{missing}: each job needs an image, such as that of `hvj run --image`"
        yield CheckResult("image", Outcome.WARNING, message, command)


def missing_pull_secrets(facts: Facts) -> Iterator[CheckResult]:
    own = {each["metadata"]["name"] for each in facts.secrets}
    for reference in (facts.spec.image_pull_secrets if facts.spec else None) or ():
        name = reference.name
        if name in own or facts.get(f"/api/v1/namespaces/{facts.namespace}/secrets/{name}"):
            continue
        message = f"Secret {name} of imagePullSecrets does not exist in namespace {facts.namespace}"
        command = (
            f"kubectl create secret docker-registry {shlex.quote(name)} -n {facts.namespace} "
            "--docker-server=<registry> --docker-username=<user> --docker-password=<password>"
        )
        yield CheckResult("image", Outcome.BLOCKS, message, command)


def failed_pulls(facts: Facts) -> Iterator[CheckResult]:
    """One result for each image that a kubelet cannot pull."""
    name = facts.job["metadata"]["name"] if facts.job and "uid" in facts.job["metadata"] else None
    selector = f"{LABEL_JOB}={name}" if name else LABEL_JOB
    pods = facts.list(f"/api/v1/namespaces/{facts.namespace}/pods", selector)
    seen = set()
    for pod in pods:
        for wanted, words in pull_failures(facts, pod):
            if wanted in seen:
                continue
            seen.add(wanted)
            where = pod["metadata"]["name"]
            message = f"image {wanted} cannot be pulled (pod {where}): {words}"
            command = f"kubectl describe pod {where} -n {facts.namespace}"
            yield CheckResult("image", Outcome.BLOCKS, message, command)


def pull_failures(facts: Facts, pod: Object) -> Iterator[tuple[str, str]]:
    """Images of a pod that cannot be pulled, each with the message of the kubelet or the registry."""
    if pod["status"].get("phase") != "Pending":
        return
    statuses = pod["status"].get("containerStatuses") or []
    for container in [*statuses, *(pod["status"].get("initContainerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in PULL_FAILURES:
            yield container["image"], pull_event(facts, pod) or one_line(waiting.get("message") or waiting["reason"])
            return
    if not statuses and (words := pull_event(facts, pod)):
        yield pod["spec"]["containers"][0]["image"], words


def pull_event(facts: Facts, pod: Object) -> str | None:
    """The message of an event about a failed pull."""
    path = f"/api/v1/namespaces/{facts.namespace}/events"
    found = facts.get(path, fieldSelector=f"involvedObject.uid={pod['metadata']['uid']}")
    events = found["items"] if found else []
    words = [each.get("message") or "" for each in events if each.get("reason") in SUSPECTS]
    pulls = [each for each in words if "pull" in each.lower()]
    return one_line(max(pulls, key=len)) if pulls else None


def one_line(words: str) -> str:
    return " ".join(words.split())
