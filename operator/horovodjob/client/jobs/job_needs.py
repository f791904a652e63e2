"""What a job needs and only the user can provide, as far as it is known before the job is created."""

from typing import Any

from horovodjob.api.constants import LABEL_QUEUE
from horovodjob.api.managed_by import is_managed_by_operator
from horovodjob.client.cluster.claims import check_claims, claim_names
from horovodjob.client.cluster.default_image import default_image
from horovodjob.client.cluster.queues import check_queue
from horovodjob.client.errors import ClientError

Object = dict[str, Any]


def check(job: Object) -> None:
    """Raises ClientError for a missing image, claim or queue. What the user may not read is not checked."""
    metadata, spec = job["metadata"], job["spec"]
    namespace = metadata["namespace"]
    gpus = spec.get("worker", {}).get("gpus", 1)
    if not spec.get("image") and is_managed_by_operator(spec) and default_image(namespace, gpus) == "":
        raise ClientError(
            f"the job has no image, and neither the operator nor namespace {namespace} has a default image: use "
            "`image=`, or set spec.image"
        )
    check_claims(claim_names(spec.get("volumes", ())), namespace)
    if queue := (metadata.get("labels") or {}).get(LABEL_QUEUE):
        check_queue(str(queue), namespace)
