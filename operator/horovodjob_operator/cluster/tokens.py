"""Whether tokens are genuine: the API server is asked (TokenReview), seldom and never by many at once."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.domain import names
from horovodjob_operator.domain.tokens import Claim, confirms
from horovodjob_operator.errors import Unavailable

KEPT_SECONDS = 300
KEPT_ANSWERS = 8192
AT_ONCE, WAITING = 4, 64
ANSWER_SECONDS = 5


class Tokens:
    """Answers of the API server, good ones kept for a while by the token's hash; the token itself is not."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._genuine: OrderedDict[bytes, float] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    def is_known(self, token: str) -> bool:
        """Whether the token was genuine a moment ago: asking costs nothing."""
        return self._genuine.get(token_hash(token), 0.0) > time.monotonic()

    async def is_genuine(self, token: str, claim: Claim, *, now: float) -> bool:
        """Whether the token is what it says of itself; `now` in seconds since 1970. Raises ClusterError."""
        if self.is_known(token):
            return True
        if self._waiting >= WAITING:
            raise Unavailable("too many tokens are to be reviewed at once")
        self._waiting += 1
        try:
            async with self._turns:
                genuine = await self._ask(token, claim)
        finally:
            self._waiting -= 1
        if genuine:
            self._keep(token_hash(token), min(KEPT_SECONDS, claim.expires_at - now))
        return genuine

    async def _ask(self, token: str, claim: Claim) -> bool:
        return confirms(await review_token(self._connection, token, names.PROGRESS_AUDIENCE), claim)

    def _keep(self, digest: bytes, seconds: float) -> None:
        self._genuine[digest] = time.monotonic() + seconds
        self._genuine.move_to_end(digest)
        if len(self._genuine) > KEPT_ANSWERS:
            self._genuine.popitem(last=False)


async def review_token(connection: Connection, token: str, *audiences: str) -> dict[str, Any]:
    """The status of a TokenReview; without audiences the token must be one for the API server. Raises ClusterError."""
    spec = {"token": token, "audiences": list(audiences)}
    return await review(connection, "authentication.k8s.io", "TokenReview", spec)


async def review(connection: Connection, group: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a review of this kind, which the API server makes at once. Raises ClusterError."""
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await connection.request("POST", f"/apis/{group}/v1/{kind.lower()}s", body)
    except TimeoutError as error:
        raise Unavailable(f"the API server did not answer the {kind} in time") from error
    status: dict[str, Any] = answer.get("status") or {}
    return status


def token_hash(token: str) -> bytes:
    """What a token is remembered by."""
    return hashlib.sha256(token.encode()).digest()
