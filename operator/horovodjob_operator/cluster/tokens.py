"""Whether tokens are genuine: the API server is asked (TokenReview), seldom and never by many at once."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jwt

from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.domain import names
from horovodjob_operator.domain.token_claim import TokenClaim, is_confirmed
from horovodjob_operator.errors import ClusterError, Unavailable

GENUINE_SECONDS, REFUSED_SECONDS = 300, 30
KEPT_ANSWERS = 8192
AT_ONCE, WAITING = 4, 64
ANSWER_SECONDS = 5
KEYS_PATH, KEYS_TYPE = "/openid/v1/jwks", "application/jwk-set+json"
# A token of a key that is not known makes the keys be fetched again, at most this often.
KEYS_SECONDS = 10
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")


class SigningKeys:
    """The public keys of service account tokens, as the API server publishes them (OpenID Connect discovery).

    Whoever can read a pod can write a token that names it. Without the signature such a token would take the
    reviews of the pod's own.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_at = -float(KEYS_SECONDS)
        self._fetching = asyncio.Lock()

    async def may_have_signed(self, token: str) -> bool:
        """Whether the signature is right; also where the API server does not publish its keys."""
        try:
            name = jwt.get_unverified_header(token).get("kid")
            if name not in self._keys:
                await self._fetch()
            if self._keys:
                jwt.PyJWS().decode(token, self._keys[name], algorithms=ALGORITHMS)
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            return False
        return True

    async def _fetch(self) -> None:
        async with self._fetching:
            if time.monotonic() - self._fetched_at < KEYS_SECONDS:
                return
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    found = await self._connection.request("GET", KEYS_PATH, accept=KEYS_TYPE)
                self._keys = {key.key_id: key for key in jwt.PyJWKSet.from_dict(found).keys}
            except (ClusterError, TimeoutError, jwt.PyJWKSetError, ValueError):
                pass  # those that are known stay
            self._fetched_at = time.monotonic()


class Tokens:
    """Answers of the API server, kept for a while by the token's hash; the token itself is not."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys = SigningKeys(connection)
        self._answers: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    def known(self, token: str) -> bool | None:
        """Whether the token was genuine a moment ago; None where nobody has asked. It costs nothing."""
        genuine, until = self._answers.get(token_hash(token), (None, 0.0))
        return genuine if until > time.monotonic() else None

    async def may_be_genuine(self, token: str) -> bool:
        """Whether it is worth a review: the API server has signed the token, or does not publish its keys."""
        return await self._keys.may_have_signed(token)

    async def is_genuine(self, token: str, claim: TokenClaim, *, now: float) -> bool:
        """Whether the token is what it says of itself; `now` in seconds since 1970. Raises ClusterError."""
        if (known := self.known(token)) is not None:
            return known
        if self._waiting >= WAITING:
            raise Unavailable("too many tokens are to be reviewed at once")
        self._waiting += 1
        try:
            async with self._turns:
                genuine = await self._ask(token, claim)
        finally:
            self._waiting -= 1
        seconds = min(GENUINE_SECONDS, claim.expires_at - now) if genuine else REFUSED_SECONDS
        self._keep(token_hash(token), genuine, seconds)
        return genuine

    async def _ask(self, token: str, claim: TokenClaim) -> bool:
        return is_confirmed(claim, await review_token(self._connection, token, names.PROGRESS_AUDIENCE))

    def _keep(self, digest: bytes, genuine: bool, seconds: float) -> None:
        self._answers[digest] = (genuine, time.monotonic() + seconds)
        self._answers.move_to_end(digest)
        if len(self._answers) > KEPT_ANSWERS:
            self._answers.popitem(last=False)


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
