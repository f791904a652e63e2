"""The hostfile: an annotation of the launcher, which a downward API volume shows as a file."""

from collections.abc import Iterable
from typing import Any

from horovodjob.api.constants import ANNOTATION_HOSTS
from horovodjob_operator.domain import names
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.resources.parts.storage import volume_mount

VOLUME = "horovodjob-hosts"


def hostfile(pods: Iterable[Pod], slots: int) -> str:
    """One line a host, such as `10.88.0.7 slots=1`."""
    return "".join(f"{pod.address} slots={slots}\n" for pod in pods)


def add_hostfile(pod: dict[str, Any], content: str) -> None:
    """Adds the annotation to a generated launcher, and the volume with the file."""
    pod["metadata"]["annotations"][ANNOTATION_HOSTS] = content
    item = {
        "path": names.HOSTS_FILE,
        "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_HOSTS}']"},
    }
    pod["spec"]["volumes"].append({"name": VOLUME, "downwardAPI": {"items": [item]}})
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"].append(volume_mount(VOLUME, names.HOSTS_DIRECTORY, read_only=True))
