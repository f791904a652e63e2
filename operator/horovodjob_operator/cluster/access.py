"""Who may read the metrics: the API server authenticates the token (TokenReview) and authorizes its user."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.cluster.tokens import review, review_token, token_hash
from horovodjob_operator.errors import ClusterError

PATH = "/metrics"
ALLOWED_SECONDS, REFUSED_SECONDS = 60, 10
KEPT_ANSWERS = 1024
WAITING = 32


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request gets no metrics."""

    status: int
    """Of HTTP."""
    sentence: str


NO_TOKEN = Refusal(401, f"{PATH} requires a bearer token: send that of a service account in the header Authorization")
BAD_TOKEN = Refusal(401, "the API server does not accept the token: it is expired, or not for this cluster")
BUSY = Refusal(503, "too many tokens wait for their review: try again")


class MetricsAccess:
    """Answers of the API server, kept briefly by the token's hash; the token itself is not kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: OrderedDict[bytes, tuple[float, Refusal | None]] = OrderedDict()
        self._waiting = 0

    async def refusal(self, authorization: str) -> Refusal | None:
        """Why the sender of this header may not read the metrics; None for one who may."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        digest = token_hash(token)
        until, answer = self._kept.get(digest, (0.0, None))
        if time.monotonic() < until:
            return answer
        if self._waiting >= WAITING:
            return BUSY
        self._waiting += 1
        try:
            answer = await self._review(token)
        except ClusterError as error:
            return Refusal(503, f"the API server did not review the token: {error}")
        finally:
            self._waiting -= 1
        self._keep(digest, answer)
        return answer

    async def _review(self, token: str) -> Refusal | None:
        """The API server's answer. Raises ClusterError."""
        status = await review_token(self._connection, token)
        if not status.get("authenticated"):
            return BAD_TOKEN
        user: dict[str, Any] = status["user"]
        spec = {"user": user["username"], "nonResourceAttributes": {"path": PATH, "verb": "get"}}
        spec |= {key: user[key] for key in ("uid", "groups", "extra") if key in user}
        access = await review(self._connection, "authorization.k8s.io", "SubjectAccessReview", spec)
        if access.get("allowed"):
            return None
        advice = "bind it to a ClusterRole with that right, such as horovodjob-metrics-reader"
        return Refusal(403, f"{user['username']} has no right to `get` the nonResourceURL {PATH}: {advice}")

    def _keep(self, digest: bytes, answer: Refusal | None) -> None:
        self._kept[digest] = (time.monotonic() + (REFUSED_SECONDS if answer else ALLOWED_SECONDS), answer)
        self._kept.move_to_end(digest)
        if len(self._kept) > KEPT_ANSWERS:
            self._kept.popitem(last=False)
