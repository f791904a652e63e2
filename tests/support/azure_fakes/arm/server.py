"""A fake of Azure Resource Manager with managed clusters of Kubernetes, and the keys of storage accounts.

    with Entra(tmp_path) as entra, ResourceManager(tmp_path, entra) as arm:
        arm.assign(client_id, Role.CONTRIBUTOR)
        arm.clusters.append(Cluster(SUBSCRIPTION, "batchai.horovod", "aks", "eastus", {"gpunp": new_pool("gpunp")}))

`ContainerServiceClient(credential, SUBSCRIPTION, base_url=arm.url)` talks to it, with `REQUESTS_CA_BUNDLE` set to
`arm.certificate`. A change of a pool is a long-running operation that ends after `arm.polls` polls, or once
`arm.hold()` is over.
"""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import jwt

from support.azure_fakes.arm.errors import (
    ArmError,
    cluster_not_found,
    group_not_found,
    not_authorized,
    operation_in_progress,
    pool_not_found,
    precondition_failed,
    throttled,
)
from support.azure_fakes.arm.resources import Cluster, Operation, Pool, check_quota, new_pool, validated
from support.azure_fakes.arm.storage import ACCOUNTS, StorageAccount, storage_answer
from support.azure_fakes.entra.server import Entra
from support.azure_fakes.https import HttpsServer, Request, Response

AUDIENCE = "https://management.azure.com"
SUBSCRIPTION = "00000000-0000-4000-8000-00000000abcd"
PROVIDER = "microsoft.containerservice"
NEVER = 10**9
PAGE_SIZE = 2
CLUSTERS = re.compile(
    rf"/subscriptions/(?P<subscription>[^/]+)(/resourcegroups/(?P<group>[^/]+))?/providers/{PROVIDER}"
    r"/managedclusters(/(?P<cluster>[^/]+)(/agentpools(?P<pools>(/(?P<pool>[^/]+))?)|/(?P<windows>maintenanceconfigurations))?)?",
    re.IGNORECASE,
)
OPERATIONS = re.compile(
    rf"/subscriptions/[^/]+/providers/{PROVIDER}/locations/[^/]+/operations/(?P<id>[^/]+)",
    re.IGNORECASE,
)


class Role(StrEnum):
    """What a principal may do in the subscription."""

    READER = "Reader"
    CONTRIBUTOR = "Azure Kubernetes Service Contributor Role"
    KEY_OPERATOR = "Storage Account Key Operator Service Role"
    KEY_READER = "Reader and Data Access"


class ResourceManager(HttpsServer):
    """The part of Azure Resource Manager that node pools and keys of storage accounts need."""

    def __init__(self, directory: Path, entra: Entra) -> None:
        self.clusters: list[Cluster] = []
        self.accounts: list[StorageAccount] = []
        self.requests: list[tuple[str, str]] = []
        self.polls = 2
        self.poll_milliseconds = 20
        self.vcpu_quota = NEVER
        self.on_change: Callable[[Cluster, Pool], None] = lambda cluster, pool: None
        self._entra = entra
        self._roles: dict[str, Role | None] = {}
        self._operations: dict[str, Operation] = {}
        self._throttled: list[int] = []
        self._next_error: ArmError | None = None
        self._refusal: ArmError | None = None
        self._interference: dict[str, Any] = {}
        self._held = False
        self._lock = threading.RLock()
        super().__init__(self._answer, directory)

    def assign(self, client_id: str, role: Role | None) -> None:
        """Assigns the application this role, or none, on all subscriptions."""
        self._roles[client_id] = role

    def throttle(self, requests: int, *, seconds: int = 1) -> None:
        """Responds to the next requests with 429."""
        self._throttled = [seconds] * requests

    def fail_next_operation(self, code: str, message: str) -> None:
        """Makes the next long-running operation fail."""
        self._next_error = ArmError(409, code, message)

    def refuse_changes(self, status: int, code: str, message: str) -> None:
        """Makes every change of a pool fail at once; with status 0 no longer."""
        self._refusal = ArmError(status, code, message) if status else None

    def interfere(self, **properties: Any) -> None:
        """Simulates another client that changes or creates the pool between the next GET and its PUT."""
        self._interference = properties

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Within the block no operation ends."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _answer(self, request: Request) -> Response:
        with self._lock:
            self.requests.append((request.method, request.path))
            try:
                return self._dispatch(request)
            except ArmError as error:
                return error.response()

    def _dispatch(self, request: Request) -> Response:
        principal = self._principal(request)
        if self._throttled:
            raise throttled(request.path.split("/")[2], self._throttled.pop(0))
        if found := OPERATIONS.fullmatch(request.path):
            return self._look_at(found["id"])
        if found := ACCOUNTS.fullmatch(request.path):
            body = storage_answer(self.accounts, found, principal, self._roles.get(principal))
            return self._page(request, body) if isinstance(body, list) else Response(200, body)
        if not (found := CLUSTERS.fullmatch(request.path)):
            raise ArmError(404, "InvalidResourceType", f"The resource type of '{request.path}' could not be found.")
        self._authorize(principal, request, found)
        subscription, group, name, pool = found["subscription"], found["group"], found["cluster"], found["pool"]
        clusters = self._clusters(subscription, group)
        if name is None:
            return self._page(request, [cluster.body() for cluster in clusters])
        cluster = next((each for each in clusters if each.name.lower() == name.lower()), None)
        if cluster is None:
            raise cluster_not_found(group, name)
        if found["windows"]:
            return self._page(request, cluster.maintenance_bodies())
        if found["pools"] is None:
            return Response(200, cluster.body())
        if pool is None:
            return self._page(request, [each.body(cluster.id) for each in cluster.pools.values()])
        if request.method == "PUT":
            return self._put(request, cluster, pool)
        if found_pool := cluster.pools.get(pool.lower()):
            return self._pool_response(200, cluster, found_pool)
        raise pool_not_found(pool)

    def _principal(self, request: Request) -> str:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            return str(self._entra.claims(token, AUDIENCE)["appid"])
        except jwt.InvalidTokenError as error:
            raise ArmError(401, "InvalidAuthenticationToken", f"The access token is invalid: {error}") from None

    def _authorize(self, principal: str, request: Request, found: re.Match[str]) -> None:
        role = self._roles.get(principal)
        verb = "read" if request.method == "GET" else "write"
        if role is Role.CONTRIBUTOR or (role is Role.READER and verb == "read"):
            return
        kinds = {"pools": "managedClusters/agentPools", "windows": "managedClusters/maintenanceConfigurations"}
        kind = next((kind for part, kind in kinds.items() if found[part] is not None), "managedClusters")
        raise not_authorized(principal, f"Microsoft.ContainerService/{kind}/{verb}", request.path)

    def _clusters(self, subscription: str, group: str | None) -> list[Cluster]:
        """Clusters of a subscription or a resource group; identifiers are case-insensitive, as in the service."""
        known = [each for each in self.clusters if each.subscription.lower() == subscription.lower()]
        if group is None:
            return known
        if not (in_group := [each for each in known if each.group.lower() == group.lower()]):
            raise group_not_found(group)
        return in_group

    def _page(self, request: Request, items: list[dict[str, Any]]) -> Response:
        start = int(request.query.get("$skiptoken", "0"))
        body: dict[str, Any] = {"value": items[start : start + PAGE_SIZE]}
        if start + PAGE_SIZE < len(items):
            query = f"api-version={request.query['api-version']}&$skiptoken={start + PAGE_SIZE}"
            body["nextLink"] = f"{self.url}{request.path}?{query}"
        return Response(200, body)

    def _pool_response(self, status: int, cluster: Cluster, pool: Pool, operation: Operation | None = None) -> Response:
        headers = {"ETag": f'"{pool.etag}"'} | (self._links(operation) if operation else {})
        return Response(status, pool.body(cluster.id), headers)

    def _put(self, request: Request, cluster: Cluster, name: str) -> Response:
        pool = cluster.pools.get(name)
        if self._interference:
            pool = cluster.pools.setdefault(name, new_pool(name))
            pool.properties |= self._interference
            pool.etag, self._interference = "another", {}
        if pool and request.headers.get("if-none-match") == "*":
            raise precondition_failed()
        expected = request.headers.get("if-match", "*").strip('"')
        if expected != "*" and (pool is None or expected != pool.etag):
            raise precondition_failed()
        self._refuse_while_busy(cluster)
        if self._refusal:
            raise self._refusal
        current = pool.properties if pool else None
        properties = validated(json.loads(request.body).get("properties", {}), current)
        check_quota(cluster, properties, current, self.vcpu_quota)
        status, kind, state = 200, "update agentpool", "Updating"
        if pool is None:
            pool = cluster.pools[name] = new_pool(name)
            status, kind, state = 201, "create agentpool", "Creating"
        elif properties["count"] != pool.properties["count"]:
            kind, state = "scale agentpool", "Scaling"
        pool.properties = properties
        operation = self._begin(kind, cluster, pool, state)
        return self._pool_response(status, cluster, pool, operation)

    def _begin(self, kind: str, cluster: Cluster, pool: Pool, state: str) -> Operation:
        error, self._next_error = self._next_error, None
        operation = Operation(kind, cluster, pool, self.polls, error)
        pool.properties["provisioningState"] = state
        pool.etag = operation.id
        self._operations[operation.id] = operation
        return operation

    def _refuse_while_busy(self, cluster: Cluster) -> None:
        for operation in self._operations.values():
            if operation.cluster is cluster and operation.status == "InProgress":
                self._advance(operation)
                raise operation_in_progress(operation.kind, operation.started)

    def _links(self, operation: Operation) -> dict[str, str]:
        base = f"{self.url}/subscriptions/{operation.cluster.subscription}/providers/Microsoft.ContainerService"
        location = f"{base}/locations/{operation.cluster.location}"
        return {
            "Azure-AsyncOperation": f"{location}/operations/{operation.id}?api-version=2016-03-30",
            "x-ms-retry-after-ms": str(self.poll_milliseconds),
        }

    def _look_at(self, identifier: str) -> Response:
        operation = self._operations[identifier]
        self._advance(operation)
        return Response(200, operation.body(), {"x-ms-retry-after-ms": str(self.poll_milliseconds)})

    def _advance(self, operation: Operation) -> None:
        """One poll of the operation, which may be the last."""
        if self._held or operation.status != "InProgress":
            return
        operation.polls_left -= 1
        if operation.polls_left > 0:
            return
        operation.status = "Failed" if operation.error else "Succeeded"
        operation.pool.properties["provisioningState"] = operation.status
        self.on_change(operation.cluster, operation.pool)
