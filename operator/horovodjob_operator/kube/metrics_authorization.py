"""Authorization of requests for metrics: a TokenReview, and a SubjectAccessReview of its user."""

from http import HTTPStatus
from typing import Any

from horovodjob_operator.errors import ClusterError
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.token_review import ReviewResults, review, review_token
from horovodjob_operator.metrics import PATH

ALLOWED_SECONDS, DENIED_SECONDS = 60, 10
MAX_CACHED_RESULTS = 1024
MAX_WAITING_REVIEWS = 32
Denial = tuple[HTTPStatus, str]
"""Status of the response, and a sentence with the reason."""

NO_TOKEN: Denial = (
    HTTPStatus.UNAUTHORIZED,
    f"{PATH} requires a bearer token: send that of a service account in the header Authorization",
)
INVALID_TOKEN: Denial = (
    HTTPStatus.UNAUTHORIZED,
    "the API server does not accept the token: it is expired, or not for this cluster",
)
BUSY: Denial = (HTTPStatus.SERVICE_UNAVAILABLE, "too many tokens wait for their review: try again")


class MetricsAuthorization:
    """Decides who can read the metrics, and caches the decisions for a short time."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._results = ReviewResults[Denial | None](MAX_CACHED_RESULTS)
        self._waiting = 0

    async def denial(self, authorization: str) -> Denial | None:
        """Why a client with this header cannot read the metrics; None if it can."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        if found := self._results.get(token):
            return found[0]
        if self._waiting >= MAX_WAITING_REVIEWS:
            return BUSY
        self._waiting += 1
        try:
            result = await self._review(token)
        except ClusterError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"the API server did not review the token: {error}"
        finally:
            self._waiting -= 1
        self._results.put(token, result, DENIED_SECONDS if result else ALLOWED_SECONDS)
        return result

    async def _review(self, token: str) -> Denial | None:
        """The decision of the API server. Raises ClusterError."""
        status = await review_token(self._client, token)
        if not status.get("authenticated"):
            return INVALID_TOKEN
        user: dict[str, Any] = status["user"]
        spec = {"user": user["username"], "nonResourceAttributes": {"path": PATH, "verb": "get"}}
        spec |= {key: user[key] for key in ("uid", "groups", "extra") if key in user}
        access = await review(self._client, "authorization.k8s.io", "SubjectAccessReview", spec)
        if access.get("allowed"):
            return None
        advice = "bind it to a ClusterRole with that right, such as horovodjob-metrics-reader"
        return (
            HTTPStatus.FORBIDDEN,
            f"{user['username']} has no right to `get` the nonResourceURL {PATH}: {advice}",
        )
