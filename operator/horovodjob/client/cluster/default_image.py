"""The image of jobs without one: the annotation of their namespace, or the setting of the operator."""

import json
from contextlib import suppress
from typing import Any

from horovodjob.api.constants import ANNOTATION_JOB_DEFAULTS, OPERATOR_APP_NAME
from horovodjob.client.cluster import kube

Object = dict[str, Any]
DEFAULTS, NAMESPACES = "HOROVODJOB_OPERATOR_JOB_DEFAULTS", "HOROVODJOB_OPERATOR_NAMESPACES"
SELECTOR = f"app.kubernetes.io/name={OPERATOR_APP_NAME},app.kubernetes.io/component!=dashboard"


def default_image(namespace: str, gpus: int = 0) -> str | None:
    """The default image of workers with so many GPUs, empty if there is none; None if the user may not read it."""
    if image := namespace_image(namespace, gpus):
        return image
    return operator_image(namespace, gpus)


def namespace_image(namespace: str, gpus: int = 0) -> str:
    """The image of the annotation with which an administrator sets the defaults of a namespace."""
    from kubernetes.client import ApiException

    with suppress(ApiException):
        annotations = kube.plain(kube.core().read_namespace(namespace))["metadata"].get("annotations") or {}
        return _image_of(annotations.get(ANNOTATION_JOB_DEFAULTS, ""), gpus) or ""
    return ""


def operator_image(namespace: str, gpus: int = 0) -> str | None:
    """The default image of the operators that can watch the namespace, empty if none has one; None if unknown."""
    from kubernetes.client import ApiException, AppsV1Api

    try:
        found = AppsV1Api(kube.client()).list_deployment_for_all_namespaces(label_selector=SELECTOR)
    except ApiException as error:
        if error.status not in (401, 403, 404):
            raise
        return None
    images = [_image(each, gpus) for each in kube.plain(found)["items"] if _watches(each, namespace)]
    known = [image for image in images if image is not None]
    return next(filter(None, known), "") if known and len(known) == len(images) else next(filter(None, known), None)


def _watches(deployment: Object, namespace: str) -> bool:
    """Whether the operator can watch the namespace; one with a selector can."""
    variable = _variable(deployment, NAMESPACES) or {}
    names = [each.strip() for each in variable.get("value", "").split(",") if each.strip()]
    return not names or namespace in names


def _image(deployment: Object, gpus: int) -> str | None:
    variable = _variable(deployment, DEFAULTS)
    if variable is None:
        return ""
    return None if "valueFrom" in variable else _image_of(variable.get("value", ""), gpus)


def _variable(deployment: Object, name: str) -> Object | None:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == name:
                return dict(variable)
    return None


def _image_of(defaults: str, gpus: int) -> str | None:
    """The image in the defaults; None if they cannot be read."""
    try:
        images = json.loads(defaults or "{}")
        return str((gpus and images.get("gpuImage")) or images.get("image") or "")
    except (ValueError, AttributeError):
        return None
