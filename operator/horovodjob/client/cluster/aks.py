"""Agent pools of Azure Kubernetes Service, through azure-mgmt-containerservice and azure-identity."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob.client.errors import ClientError, NotFound

Object = dict[str, Any]
# A custom cloud or a test sets it to replace https://management.azure.com.
ENDPOINT = "AZURE_RESOURCE_MANAGER_ENDPOINT"
PROVIDER_PREFIX = "azure://"
ROLE = "Azure Kubernetes Service Contributor Role"
# Polling interval of an operation, unless the service requests another one.
POLL_SECONDS = 5
BUSY_POLL_SECONDS = 2
BUSY_MINUTES = 30
# Only these refusals end by themselves: others have the same code, such as those of a cluster that is stopped.
IN_PROGRESS = re.compile(r"in[ -]progress|aka\.ms/aks-pending-operation", re.IGNORECASE)
# The window in which AKS replaces the images of nodes.
NODE_IMAGE_WINDOW = "aksManagedNodeOSUpgradeSchedule"
CONFLICTS = 5
MAX_NODES = 1000
SUBNET = re.compile(
    r"/subscriptions/[^\s']+/providers/Microsoft\.Network/virtualNetworks/[^/\s']+/subnets/[^/\s',)]+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ClusterReference:
    """What is known about the AKS cluster without a request to Azure."""

    subscription: str
    group: str | None = None
    cluster: str | None = None
    node_group: str | None = None


def cluster_reference(
    nodes: Sequence[Object], subscription: str | None, group: str | None, cluster: str | None
) -> ClusterReference | None:
    """The AKS cluster of these nodes; None if they are not on Azure and no option names it."""
    for node in nodes:
        provider_id = node["spec"].get("providerID", "")
        if provider_id.startswith(PROVIDER_PREFIX):
            from azure.mgmt.core.tools import parse_resource_id

            parts = parse_resource_id(provider_id.removeprefix(PROVIDER_PREFIX))
            return ClusterReference(
                subscription or str(parts["subscription"]), group, cluster, str(parts["resource_group"])
            )
    return ClusterReference(subscription, group, cluster) if subscription and cluster else None


class ManagedCluster:
    """An AKS cluster. Its methods raise errors of Azure as ClientError."""

    def __init__(self, place: ClusterReference) -> None:
        self._client = client(place.subscription)
        self.subscription = place.subscription
        with azure_errors(f"resource group {place.group}" if place.group else f"subscription {place.subscription}"):
            self.group, self.name = find_cluster(self._client, place)

    def pools(self) -> list[Any]:
        """The agent pools."""
        with azure_errors(self.title):
            return list(self._client.agent_pools.list(self.group, self.name))

    def pool(self, name: str) -> Any:
        """One agent pool. Raises NotFound."""
        with azure_errors(f"node pool {name} of {self.title}"):
            return self._client.agent_pools.get(self.group, self.name, name)

    def node_image_channel(self) -> str:
        """The channel by which AKS replaces the images of running nodes."""
        with azure_errors(self.title):
            profile = self._client.managed_clusters.get(self.group, self.name).auto_upgrade_profile
        channel = getattr(profile, "node_os_upgrade_channel", None) or "NodeImage"
        return str(getattr(channel, "value", channel))

    def maintenance_windows(self) -> list[str]:
        """Names of the maintenance configurations."""
        with azure_errors(f"maintenance configurations of {self.title}"):
            found = self._client.maintenance_configurations.list_by_managed_cluster(self.group, self.name)
            return [str(each.name) for each in found]

    @property
    def title(self) -> str:
        return f"AKS cluster {self.name} in resource group {self.group}"

    def create(self, name: str, pool: Any, *, follow: bool, busy: Callable[[str], None]) -> Any:
        """Begin the creation of a pool that does not exist, as `change` does. Raises ClientError if it exists."""
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceExistsError

        absent = {"match_condition": MatchConditions.IfMissing}
        try:
            return self._begin(name, lambda: (pool, absent), follow=follow, busy=busy)
        except ClientError as error:
            if not isinstance(error.__cause__, ResourceExistsError):
                raise
            raise ClientError(f"another client has just created node pool {name}; repeat the command") from error

    def creation_request(self, name: str, pool: Any) -> Object:
        """Method, URL and body of the request that `create` sends. Sends nothing."""
        sending = client(self.subscription, per_call_policies=[_request_capture()])
        try:
            sending.agent_pools.begin_create_or_update(self.group, self.name, name, pool, polling=False)
        except CapturedRequest as captured:
            return captured.request
        raise AssertionError("the client has sent the request")

    def change(self, name: str, edit: Callable[[Any], None], *, follow: bool, busy: Callable[[str], None]) -> Any:
        """Begin an operation that edits the pool, and return its poller, for `wait` if `follow` is true.

        While another operation runs on the cluster, waits and calls `busy` with the limit and the service's message.
        """
        from azure.core import MatchConditions

        def edited() -> tuple[Any, Object]:
            pool = self.pool(name)
            edit(pool)
            return pool, {"etag": pool.e_tag, "match_condition": MatchConditions.IfNotModified} if pool.e_tag else {}

        return self._begin(name, edited, follow=follow, busy=busy)

    def _begin(
        self, name: str, request: Callable[[], tuple[Any, Object]], *, follow: bool, busy: Callable[[str], None]
    ) -> Any:
        """Send the pool and the conditions of a request, again while the cluster is busy or the pool has changed."""
        from azure.core.exceptions import ResourceModifiedError

        deadline = time.monotonic() + BUSY_MINUTES * 60
        conflicts = 0
        while True:
            pool, conditions = request()
            try:
                with azure_errors(f"node pool {name} of {self.title}"):
                    return self._client.agent_pools.begin_create_or_update(
                        self.group, self.name, name, pool, polling=follow, polling_interval=POLL_SECONDS, **conditions
                    )
            except OperationInProgress as error:
                if time.monotonic() > deadline:
                    raise
                busy(f"waiting up to {BUSY_MINUTES} minutes: {error.message}")
                time.sleep(BUSY_POLL_SECONDS)
            except ClientError as error:
                conflicts += 1
                if not isinstance(error.__cause__, ResourceModifiedError) or conflicts == CONFLICTS:
                    raise

    def wait(self, name: str, poller: Any, *, progress: Callable[[str], None]) -> Any:
        """The pool at the end of the operation; `progress` gets the operation's status as it changes."""
        with azure_errors(f"node pool {name} of {self.title}"):
            while not poller.done():
                progress(poller.status())
                poller.wait(0.2)
            return poller.result()


class OperationInProgress(ClientError):
    """Another operation runs on the cluster."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(
            f"{where} has been busy for {BUSY_MINUTES} minutes: {message}; repeat the command when that ends, or stop "
            "it with `az aks operation-abort`"
        )
        self.message = message


class CapturedRequest(Exception):
    """A request that is not sent: method, URL and body."""

    def __init__(self, request: Object) -> None:
        super().__init__(request["url"])
        self.request = request


def _request_capture() -> Any:
    """A policy of the client that raises CapturedRequest before the client signs in."""
    import json

    from azure.core.pipeline.policies import SansIOHTTPPolicy

    class Capture(SansIOHTTPPolicy):  # type: ignore[type-arg]
        def on_request(self, request: Any) -> None:
            http = request.http_request
            raise CapturedRequest({"method": http.method, "url": http.url, "body": json.loads(http.content)})

    return Capture()


def client(subscription: str, **settings: Any) -> Any:
    """The client for one subscription."""
    from azure.mgmt.containerservice import ContainerServiceClient

    return ContainerServiceClient(
        credential(), subscription, base_url=endpoint(), retry_total=4, permit_redirects=False, **settings
    )


def endpoint() -> str | None:
    """The address of Azure Resource Manager, if the environment sets one."""
    address = os.environ.get(ENDPOINT)
    if address and not address.startswith("https://"):
        raise ClientError(f"{ENDPOINT}={address} is not an https:// address; tokens are sent only over TLS")
    return address or None


def credential() -> Any:
    """DefaultAzureCredential: environment, workload identity, managed identity, Azure CLI and more, in its order."""
    import logging

    from azure.identity import AzureAuthorityHosts, DefaultAzureCredential

    # The exception has the reasons that the credentials log.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    authority = os.environ.get("AZURE_AUTHORITY_HOST", AzureAuthorityHosts.AZURE_PUBLIC_CLOUD)
    known = {value for name, value in vars(AzureAuthorityHosts).items() if name.startswith("AZURE_")}
    private = authority.removeprefix("https://").rstrip("/") not in known
    # azure-identity can discover only the authorities of Microsoft's own clouds.
    return DefaultAzureCredential(disable_instance_discovery=private)


def find_cluster(client: Any, place: ClusterReference) -> tuple[str, str]:
    """Resource group and name of the AKS cluster. The nodes' resource group is not the cluster's own."""
    from azure.mgmt.core.tools import parse_resource_id

    if place.group and place.cluster:
        return place.group, place.cluster
    if place.group:
        clusters = list(client.managed_clusters.list_by_resource_group(place.group))
        where = f"resource group {place.group}"
    else:
        clusters = list(client.managed_clusters.list())
        where = f"subscription {place.subscription}"
    if place.cluster:
        clusters = [each for each in clusters if same_name(each.name, place.cluster)]
        what = f"named {place.cluster}"
    else:
        clusters = [each for each in clusters if same_name(each.node_resource_group, place.node_group)]
        what = f"with the node resource group {place.node_group}"
    if len(clusters) != 1:
        count = len(clusters) or "no"
        raise NotFound(f"{where} has {count} AKS cluster {what}; name it with `resource_group=` and `aks_cluster=`")
    return str(parse_resource_id(clusters[0].id)["resource_group"]), str(clusters[0].name)


def same_name(one: str | None, other: str | None) -> bool:
    """Whether two names are equal; Azure ignores case."""
    return (one or "").casefold() == (other or "").casefold()


@contextlib.contextmanager
def azure_errors(where: str) -> Iterator[None]:
    """Raises errors of Azure in the block as ClientError."""
    from azure.core.exceptions import AzureError

    try:
        yield
    except AzureError as error:
        raise cli_error(error, where) from error


def cli_error(error: Any, where: str) -> ClientError:
    """The error as a message for the user."""
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

    detail = getattr(error, "error", None)
    message = " ".join(str(getattr(detail, "message", None) or error.message).split()).rstrip(".")
    code = str(getattr(detail, "code", None) or "")
    if isinstance(error, ClientAuthenticationError):
        remedy = "run `az login`, or set AZURE_CLIENT_ID and its related variables"
        return ClientError(f"Azure sign-in failed: {credential_reason(message)}; {remedy}")
    if isinstance(error, HttpResponseError):
        return refused_request(error.status_code, code, message, where)
    return ClientError(f"no connection to Azure for {where}: {message}; check the network, and {ENDPOINT} if it is set")


def refused_request(status: int | None, code: str, message: str, where: str) -> ClientError:
    """The error of a refused request, by the code of the response."""
    if code == "LinkedAuthorizationFailed" and (subnet := SUBNET.search(message)):
        remedy = f"az role assignment create --role 'Network Contributor' --assignee <you> --scope {subnet[0]}"
        return ClientError(f"you have no right to use the subnet of {where}: {message}; request the role: {remedy}")
    if code in ("AuthorizationFailed", "LinkedAuthorizationFailed"):
        role = "Reader" if "/read'" in message else ROLE
        remedy = f"request the role: az role assignment create --role '{role}' --assignee <you> --scope <cluster id>"
        return ClientError(f"you have no right to {where}: {message}; {remedy}")
    if status == 404:
        return NotFound(f"{where} does not exist: {message}")
    if "quota" in f"{code} {message}".lower():
        remedy = "request more vCPUs of this family (https://aka.ms/AzureQuota), or choose a smaller number of nodes"
        return ClientError(f"{where}: the subscription's quota is exceeded: {message}; {remedy}")
    if status == 409 and IN_PROGRESS.search(message):
        return OperationInProgress(where, message)
    if re.search("AllocationFail|SkuNotAvailable|OverconstrainedAllocation", code):
        return ClientError(
            f"{where}: Azure has no capacity for this VM size: {message}; try later, or another size or region"
        )
    if status == 429:
        return ClientError(f"Azure throttles requests: {message}; try again later")
    return ClientError(f"{where}: {message}" + (f" ({code})" if code and code not in message else ""))


def credential_reason(message: str) -> str:
    """The reason why a credential failed, without the list of all attempts."""
    found = re.search(r"AADSTS\d+: .*?(?= Trace ID|$)", message)
    return found[0].rstrip(". ") if found else "no credential found"
