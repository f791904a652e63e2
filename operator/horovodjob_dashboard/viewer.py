"""Who looks at the pages: a client of the API server with their rights, and the feeds that they share with others."""

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, translated
from horovodjob_dashboard.job_feed import JobFeed

# For so long, an answer of the API server about a viewer's right is valid, also for a watch that others have opened.
REVIEW_SECONDS = 30.0
# A viewer without an open page for this long has left.
ABSENT_SECONDS = 300
ALL = ""


class SignedOut(Exception):
    """The request has no viewer; the message is a sentence."""


class NamespaceNeeded(ClientError):
    """The viewer may not list the jobs of all namespaces, and has chosen none."""


class Right(NamedTuple):
    """A right in a namespace, or in all, as a review of the API server has it."""

    verb: str
    resource: str
    namespace: str
    subresource: str = ""
    name: str = ""
    group: str = ""


class Feeds:
    """The watches of a cluster: one for all namespaces, and one for each namespace that somebody chose."""

    def __init__(self, review_seconds: float = REVIEW_SECONDS) -> None:
        self.review_seconds = review_seconds
        self._feeds: dict[str, JobFeed] = {}

    def join(self, client: Any, namespace: str) -> JobFeed:
        """The feed of a namespace, or of all, for a client that may list and watch its jobs."""
        feed = self._feeds.get(namespace)
        if feed is None or feed.is_over:
            feed = self._feeds[namespace] = JobFeed(namespace)
            feed.join(client)
            feed.start()
        feed.join(client)
        return feed

    def leave(self, client: Any, namespace: str | None = None) -> None:
        """Ends the part of a client in the feed of a namespace, by default in all feeds."""
        for each in self._feeds.values():
            if namespace in (None, each.namespace):
                each.leave(client)

    def sweep(self) -> None:
        """Ends the parts of viewers who have left, and forgets feeds without viewers."""
        for each in self._feeds.values():
            each.leave_unused(ABSENT_SECONDS)
        self._feeds = {namespace: feed for namespace, feed in self._feeds.items() if not feed.is_over}


class Viewer:
    """Somebody with rights of their own.

    `user` is a name that no two viewers share; `cluster` is the name of the cluster on the pages. `only` limits the
    list to one namespace; `default` is the namespace of a viewer who may not list all and has chosen none. `storage`
    says where credentials for shares come from: also from the environment if this process is the viewer's own.
    """

    def __init__(
        self,
        client: Any,
        feeds: Feeds,
        *,
        user: str,
        cluster: str,
        only: str = "",
        default: str = "",
        storage: Options,
    ) -> None:
        self.client, self.user, self.cluster, self.storage = client, user, cluster, storage
        self.has_left = asyncio.Event()
        self.seen = time.monotonic()
        self._feeds, self._only, self._default = feeds, only, default
        self.review_seconds = feeds.review_seconds
        self._reviews: dict[Right, tuple[float, bool]] = {}

    async def feed(self, namespace: str = "") -> JobFeed:
        """The jobs of all namespaces if the viewer may list and watch them, else those of this namespace.

        Raises NamespaceNeeded, and the API server's refusal.
        """
        self.seen = time.monotonic()
        wanted = self._only or namespace or self._default
        for each in (self._only or ALL, wanted):
            if await self._may_watch(each):
                return self._feeds.join(self.client, each)
            self._feeds.leave(self.client, each)
        refusal = await asyncio.to_thread(_refusal, self.client, wanted)
        if wanted:
            raise refusal
        raise NamespaceNeeded(str(translated(refusal) or refusal))

    def leave(self) -> None:
        """Ends the streams and the watches of the viewer."""
        self.has_left.set()
        self._feeds.leave(self.client)

    async def may(self, right: Right) -> bool:
        """What the API server answers about a right, or has answered a short time ago."""
        reviewed, allowed = self._reviews.get(right, (-math.inf, False))
        if time.monotonic() - reviewed >= self.review_seconds:
            allowed = await asyncio.to_thread(_review, self.client, right)
            self._reviews[right] = time.monotonic(), allowed
        return allowed

    async def loses(self, rights: Iterable[Right], namespace: str) -> None:
        """Returns when the viewer no longer has one of the rights that they have now, or may not see the jobs.

        Raises the API server's refusal.
        """
        held = [right for right in rights if await self.may(right)]
        while True:
            await asyncio.sleep(self.review_seconds)
            await self.feed(namespace)
            for right in held:
                if not await self.may(right):
                    return

    async def _may_watch(self, namespace: str) -> bool:
        jobs = Right("list", kube.JOBS["plural"], namespace, group=kube.JOBS["group"])
        return await self.may(jobs) and await self.may(jobs._replace(verb="watch"))


def _review(client: Any, right: Right) -> bool:
    from kubernetes.client import AuthorizationV1Api

    review = {"spec": {"resourceAttributes": right._asdict()}}
    return bool(AuthorizationV1Api(client).create_self_subject_access_review(review).status.allowed)


def _refusal(client: Any, namespace: str) -> Exception:
    """The refusal of the API server, in its own words."""
    from kubernetes.client import ApiException, CustomObjectsApi

    custom = CustomObjectsApi(client)
    try:
        if namespace:
            custom.list_namespaced_custom_object(**kube.JOBS, namespace=namespace, limit=1)
        else:
            custom.list_cluster_custom_object(**kube.JOBS, limit=1)
    except ApiException as error:
        refusal: Exception = error
        return refusal
    where = f"namespace {namespace}" if namespace else "all namespaces"
    return ClientError(f"you may list the jobs of {where}, and not watch them; ask the administrator for this right")
