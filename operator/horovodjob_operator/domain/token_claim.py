"""Authentication of progress reports: the claim of a token, and its confirmation by a TokenReview. Pure."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """The pod that a token claims to be bound to; only the API server can confirm the claim."""

    namespace: str
    pod: str
    uid: str
    expires_at: float
    """Seconds since 1970."""

    @property
    def job(self) -> str:
        """Name of the job that has a pod with this name."""
        return names.job_name(self.pod)


def token_claim(token: str) -> TokenClaim | None:
    """The claim of a token; None if it is not a pod-bound token for progress reports."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if names.PROGRESS_AUDIENCE not in claims["aud"]:
            return None
        bound = claims["kubernetes.io"]
        pod = bound["pod"]
        return TokenClaim(str(bound["namespace"]), str(pod["name"]), str(pod["uid"]), float(claims["exp"]))
    except (LookupError, TypeError, ValueError, binascii.Error, RecursionError, OverflowError):
        return None


def is_confirmed(claim: TokenClaim, review: Mapping[str, Any]) -> bool:
    """Whether the status of a TokenReview confirms the claim."""
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
    """Whether rank 0 of the job can run in this pod: in replica 0, or in any pod of an elastic job."""
    can_have_rank_0 = pod.index == 0 or job.spec.elastic is not None
    hosts_ranks = pod.role is Role.WORKER or job.spec.launcher.as_worker
    return pod.owner_uid == job.metadata.uid and hosts_ranks and can_have_rank_0 and pod.is_active
