"""Who sends a report: what a token says of itself, and what the API server says of the token."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.observed import Pod


@dataclass(frozen=True, slots=True)
class Claim:
    """Which pod a token says that it is bound to; the API server knows whether that is true."""

    namespace: str
    pod: str
    uid: str
    expires_at: float
    """Seconds since 1970."""

    @property
    def job(self) -> str:
        """Name of the job whose pod it would be."""
        launcher = f"-{Role.LAUNCHER}"
        of_launcher = self.pod.endswith(launcher)
        return self.pod.removesuffix(launcher) if of_launcher else self.pod.rpartition(f"-{Role.WORKER}-")[0]


def claim_of(token: str) -> Claim | None:
    """What a token says of itself, None for what is no token of a pod for this purpose."""
    try:
        payload = token.split(".")[1]
        told = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if names.PROGRESS_AUDIENCE not in told["aud"]:
            return None
        bound = told["kubernetes.io"]
        pod = bound["pod"]
        return Claim(str(bound["namespace"]), str(pod["name"]), str(pod["uid"]), float(told["exp"]))
    except (LookupError, TypeError, ValueError, binascii.Error, RecursionError, OverflowError):
        return None


def confirms(review: Mapping[str, Any], claim: Claim) -> bool:
    """Whether the status of a TokenReview says that the claim is true."""
    user = review.get("user") or {}
    extra = user.get("extra") or {}
    return (
        review.get("authenticated") is True
        and names.PROGRESS_AUDIENCE in (review.get("audiences") or ())
        and str(user.get("username", "")).startswith(f"system:serviceaccount:{claim.namespace}:")
        and extra.get("authentication.kubernetes.io/pod-name") == [claim.pod]
        and extra.get("authentication.kubernetes.io/pod-uid") == [claim.uid]
    )


def may_report(job: HorovodJob, pod: Pod) -> bool:
    """Whether rank 0 of the job can be in this pod: the first replica's, or any where ranks come and go."""
    can_have_rank_0 = pod.index == 0 or job.spec.elastic is not None
    hosts_ranks = pod.role is Role.WORKER or job.spec.launcher.as_worker
    return pod.owner_uid == job.metadata.uid and hosts_ranks and can_have_rank_0 and pod.alive
