"""What rank 0 needs to report its progress: the URL of the operator, and a token that identifies its pod."""

from typing import Any

from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.storage import volume_mount

VOLUME = "horovodjob-progress"
# The shortest lifetime that Kubernetes accepts; the kubelet renews the token in time.
TOKEN_SECONDS = 600


def add_progress_reporting(pod_spec: dict[str, Any], url: str) -> None:
    """Adds the URL and the token to a pod that can host rank 0.

    The audience of the token is not the API server's, so it grants no API access.
    """
    token = {
        "audience": names.PROGRESS_AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
        "path": names.PROGRESS_TOKEN,
    }
    # Readable for any user of the image; with fsGroup or runAsUser the kubelet restricts the mode itself.
    source = {"defaultMode": 0o444, "sources": [{"serviceAccountToken": token}]}
    pod_spec["volumes"].append({"name": VOLUME, "projected": source})
    (container,) = pod_spec["containers"]
    container["volumeMounts"].append(volume_mount(VOLUME, names.PROGRESS_DIRECTORY, read_only=True))
    container["env"] += [
        {"name": "HOROVODJOB_PROGRESS_URL", "value": url},
        {"name": "HOROVODJOB_PROGRESS_TOKEN_FILE", "value": f"{names.PROGRESS_DIRECTORY}/{names.PROGRESS_TOKEN}"},
    ]
