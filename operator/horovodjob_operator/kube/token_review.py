"""Review of the tokens of progress reports (TokenReview): rare, and with few requests at a time."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import jwt

from horovodjob_operator.domain import names
from horovodjob_operator.domain.progress_report import TokenClaim, is_confirmed
from horovodjob_operator.errors import ClusterError, Unavailable
from horovodjob_operator.kube.requests.api_client import ApiClient

CONFIRMED_SECONDS, REFUSED_SECONDS = 300, 30
MAX_CACHED_RESULTS = 8192
MAX_CONCURRENT_REVIEWS, MAX_WAITING_REVIEWS = 4, 64
REVIEW_TIMEOUT_SECONDS = 5
KEYS_PATH, KEYS_TYPE = "/openid/v1/jwks", "application/jwk-set+json"
# A token with an unknown key causes a new request for the keys, at most this often.
KEYS_SECONDS = 10
T = TypeVar("T")
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")


class SigningKeys:
    """The public keys of service account tokens, as the API server publishes them (OpenID Connect discovery).

    Anyone who can read a pod can write a token that names it. Without a check of the signature, such tokens would use
    up the reviews of that pod.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_at = -float(KEYS_SECONDS)
        self._fetching = asyncio.Lock()

    async def may_have_signed(self, token: str) -> bool:
        """Whether the signature is valid; also true if the API server does not publish its keys."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            if key_id not in self._keys:
                await self._fetch()
            if self._keys:
                jwt.PyJWS().decode(token, self._keys[key_id], algorithms=ALGORITHMS)
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            return False
        return True

    async def _fetch(self) -> None:
        async with self._fetching:
            if time.monotonic() - self._fetched_at < KEYS_SECONDS:
                return
            try:
                async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS):
                    answer = await self._client.request("GET", KEYS_PATH, accept=KEYS_TYPE)
                self._keys = {key.key_id: key for key in jwt.PyJWKSet.from_dict(answer).keys}
            except (ClusterError, TimeoutError, jwt.PyJWKSetError, ValueError):
                pass  # The previous keys remain in use.
            self._fetched_at = time.monotonic()


class ReviewResults(Generic[T]):
    """Results of reviews for some time, by the hash of the token; the token is not stored."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._results: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def get(self, token: str) -> tuple[T] | None:
        """The result of a recent review; None without one."""
        found = self._results.get(_hash(token))
        return (found[0],) if found and time.monotonic() < found[1] else None

    def put(self, token: str, result: T, seconds: float) -> None:
        """Stores a result for this time, and drops the oldest of too many."""
        self._results[_hash(token)] = result, time.monotonic() + seconds
        self._results.move_to_end(_hash(token))
        if len(self._results) > self._size:
            self._results.popitem(last=False)


class TokenReviewer:
    """Reviews tokens of progress reports, and caches the results."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._keys = SigningKeys(client)
        self._results = ReviewResults[bool](MAX_CACHED_RESULTS)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        self._waiting = 0

    def cached_result(self, token: str) -> bool | None:
        """Whether a recent review confirmed the token; None without one."""
        found = self._results.get(token)
        return found[0] if found else None

    async def may_be_signed(self, token: str) -> bool:
        """Whether a review can confirm the token: its signature is valid, or cannot be verified here."""
        return await self._keys.may_have_signed(token)

    async def confirms(self, token: str, claim: TokenClaim, *, now: float) -> bool:
        """Whether the API server confirms the claim of the token; `now` in seconds since 1970. Raises ClusterError."""
        if (cached := self.cached_result(token)) is not None:
            return cached
        if self._waiting >= MAX_WAITING_REVIEWS:
            raise Unavailable("too many tokens wait for their review")
        self._waiting += 1
        try:
            async with self._slots:
                result = is_confirmed(claim, await review_token(self._client, token, names.PROGRESS_AUDIENCE))
        finally:
            self._waiting -= 1
        seconds = min(CONFIRMED_SECONDS, claim.expires_at - now) if result else REFUSED_SECONDS
        self._results.put(token, result, seconds)
        return result


async def review_token(client: ApiClient, token: str, *audiences: str) -> dict[str, Any]:
    """Status of a TokenReview; without audiences, the token must be one for the API server. Raises ClusterError."""
    spec = {"token": token, "audiences": list(audiences)}
    return await review(client, "authentication.k8s.io", "TokenReview", spec)


async def review(client: ApiClient, group: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Status of a review of this kind. Raises ClusterError."""
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    try:
        async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS):
            answer = await client.request("POST", f"/apis/{group}/v1/{kind.lower()}s", body)
    except TimeoutError as error:
        raise Unavailable(f"the API server did not answer the {kind} in time") from error
    status: dict[str, Any] = answer.get("status") or {}
    return status


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
