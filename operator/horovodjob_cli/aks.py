"""Agent pools of Azure Kubernetes Service, through azure-mgmt-containerservice and azure-identity."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob_cli.errors import CliError, NotFound

Object = dict[str, Any]
# What a custom cloud, or a test, names in the place of https://management.azure.com.
ENDPOINT = "AZURE_RESOURCE_MANAGER_ENDPOINT"
PROVIDER_PREFIX = "azure://"
ROLE = "Azure Kubernetes Service Contributor Role"
# Between looks at an operation, where the service does not ask for another delay.
POLL_SECONDS = 5
BUSY_POLL_SECONDS = 2
BUSY_SECONDS = 3600
CONFLICTS = 5
MAX_NODES = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the AKS cluster is, as far as it is known without asking Azure."""

    subscription: str
    group: str | None = None
    cluster: str | None = None
    node_group: str | None = None


def place(nodes: Sequence[Object], subscription: str | None, group: str | None, cluster: str | None) -> Place | None:
    """Where the AKS cluster of these nodes is; None if they are not on Azure and nothing else names it."""
    for node in nodes:
        provider_id = node["spec"].get("providerID", "")
        if provider_id.startswith(PROVIDER_PREFIX):
            from azure.mgmt.core.tools import parse_resource_id

            parts = parse_resource_id(provider_id.removeprefix(PROVIDER_PREFIX))
            return Place(subscription or str(parts["subscription"]), group, cluster, str(parts["resource_group"]))
    return Place(subscription, group, cluster) if subscription and cluster else None


class ManagedCluster:
    """An AKS cluster. Errors of Azure come as CliError."""

    def __init__(self, place: Place) -> None:
        self._client = client(place.subscription)
        self.subscription = place.subscription
        with sentences(f"resource group {place.group}" if place.group else f"subscription {place.subscription}"):
            self.group, self.name = located(self._client, place)

    def pools(self) -> list[Any]:
        """The agent pools."""
        with sentences(self.title):
            return list(self._client.agent_pools.list(self.group, self.name))

    def pool(self, name: str) -> Any:
        """One agent pool. Raises NotFound."""
        with sentences(f"node pool {name} of {self.title}"):
            return self._client.agent_pools.get(self.group, self.name, name)

    @property
    def title(self) -> str:
        return f"AKS cluster {self.name} in resource group {self.group}"

    def change(self, name: str, edit: Callable[[Any], None], *, follow: bool, busy: Callable[[str], None]) -> Any:
        """Begin an operation that edits the pool, and give its poller, for `wait` if it is to `follow` the operation.

        While another operation runs on the cluster, waits and calls `busy` with the service's words.
        """
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceModifiedError

        deadline = time.monotonic() + BUSY_SECONDS
        conflicts = 0
        while True:
            pool = self.pool(name)
            edit(pool)
            unchanged = {"etag": pool.e_tag, "match_condition": MatchConditions.IfNotModified} if pool.e_tag else {}
            try:
                with sentences(f"node pool {name} of {self.title}"):
                    return self._client.agent_pools.begin_create_or_update(
                        self.group, self.name, name, pool, polling=follow, polling_interval=POLL_SECONDS, **unchanged
                    )
            except OperationInProgress as error:
                if time.monotonic() > deadline:
                    raise
                busy(error.words)
                time.sleep(BUSY_POLL_SECONDS)
            except CliError as error:
                conflicts += 1
                if not isinstance(error.__cause__, ResourceModifiedError) or conflicts == CONFLICTS:
                    raise

    def wait(self, name: str, poller: Any, *, progress: Callable[[str], None]) -> Any:
        """The pool at the end of the operation; `progress` gets the operation's status as it changes."""
        with sentences(f"node pool {name} of {self.title}"):
            while not poller.done():
                progress(poller.status())
                poller.wait(0.2)
            return poller.result()


class OperationInProgress(CliError):
    """Another operation runs on the cluster; `words` are the service's."""

    def __init__(self, where: str, words: str) -> None:
        super().__init__(f"{where} is busy: {words}; wait for it to end, or stop it with `az aks operation-abort`")
        self.words = words


def client(subscription: str) -> Any:
    """The client for one subscription."""
    from azure.mgmt.containerservice import ContainerServiceClient

    endpoint = os.environ.get(ENDPOINT)
    if endpoint and not endpoint.startswith("https://"):
        raise CliError(f"{ENDPOINT}={endpoint} is not an https:// address, and tokens are sent over TLS only")
    return ContainerServiceClient(credential(), subscription, base_url=endpoint or None, retry_total=4)


def credential() -> Any:
    """DefaultAzureCredential: environment, workload identity, managed identity, Azure CLI and more, in its order."""
    import logging

    from azure.identity import AzureAuthorityHosts, DefaultAzureCredential

    # The reasons that the credentials log are in the exception too.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    authority = os.environ.get("AZURE_AUTHORITY_HOST", AzureAuthorityHosts.AZURE_PUBLIC_CLOUD)
    known = {value for name, value in vars(AzureAuthorityHosts).items() if name.startswith("AZURE_")}
    private = authority.removeprefix("https://").rstrip("/") not in known
    # Only Microsoft's own clouds are in the directory of authorities that azure-identity would look into.
    return DefaultAzureCredential(disable_instance_discovery=private)


def located(client: Any, place: Place) -> tuple[str, str]:
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
        clusters = [each for each in clusters if same(each.name, place.cluster)]
        what = f"named {place.cluster}"
    else:
        clusters = [each for each in clusters if same(each.node_resource_group, place.node_group)]
        what = f"with the node resource group {place.node_group}"
    if len(clusters) != 1:
        count = len(clusters) or "no"
        raise NotFound(f"{where} has {count} AKS cluster {what}; name it with --resource-group and --aks-cluster")
    return str(parse_resource_id(clusters[0].id)["resource_group"]), str(clusters[0].name)


def same(one: str | None, other: str | None) -> bool:
    """Names of Azure are compared without case."""
    return (one or "").casefold() == (other or "").casefold()


@contextlib.contextmanager
def sentences(where: str) -> Iterator[None]:
    """Errors of Azure within the block as CliError: what, where and what to do."""
    from azure.core.exceptions import AzureError

    try:
        yield
    except AzureError as error:
        raise sentence(error, where) from error


def sentence(error: Any, where: str) -> CliError:
    """The error as a user reads it."""
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

    detail = getattr(error, "error", None)
    words = " ".join(str(getattr(detail, "message", None) or error.message).split()).rstrip(".")
    code = str(getattr(detail, "code", None) or "")
    if isinstance(error, ClientAuthenticationError):
        remedy = "run `az login`, or set AZURE_CLIENT_ID and the variables that belong to it"
        return CliError(f"Azure does not know who you are: {first_reason(words)}; {remedy}")
    if isinstance(error, HttpResponseError):
        return refusal(error.status_code, code, words, where)
    return CliError(f"no connection to Azure for {where}: {words}; check the network, and {ENDPOINT} if it is set")


def refusal(status: int | None, code: str, words: str, where: str) -> CliError:
    """What the service refuses, by the code of its answer."""
    if code in ("AuthorizationFailed", "LinkedAuthorizationFailed"):
        role = "Reader" if "/read'" in words else ROLE
        remedy = f"ask for the role: az role assignment create --role '{role}' --assignee <you> --scope <cluster id>"
        return CliError(f"you have no right to {where}: {words}; {remedy}")
    if status == 404:
        return NotFound(f"{where} does not exist: {words}")
    if "quota" in f"{code} {words}".lower():
        remedy = "ask for more vCPUs of this family (https://aka.ms/AzureQuota), or choose a smaller number of nodes"
        return CliError(f"{where}: the subscription's quota is exceeded: {words}; {remedy}")
    if code == "OperationNotAllowed" and status == 409:
        return OperationInProgress(where, words)
    if re.search("AllocationFail|SkuNotAvailable|OverconstrainedAllocation", code):
        return CliError(f"{where}: Azure has no such machines free: {words}; try later, or another size or region")
    if status == 429:
        return CliError(f"Azure throttles requests: {words}; try again later")
    return CliError(f"{where}: {words}" + (f" ({code})" if code and code not in words else ""))


def first_reason(words: str) -> str:
    """What went wrong with a credential, without the list of all that were tried."""
    found = re.search(r"AADSTS\d+: .*?(?= Trace ID|$)", words)
    return found[0].rstrip(". ") if found else "no credential found"
