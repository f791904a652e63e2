"""azure-mgmt-containerservice, unpatched, against the fake of Azure Resource Manager."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.mgmt.containerservice import ContainerServiceClient
from azure.mgmt.containerservice.models import AgentPool

from support.azure_fakes.arm.resources import Cluster, new_pool
from support.azure_fakes.arm.server import AUDIENCE, SUBSCRIPTION, ResourceManager, Role
from support.azure_fakes.entra.server import Entra

GROUP, AKS, POOL = "batchai.horovod", "aks", "gpunp"
CLIENT = "11111111-0000-4000-8000-000000000002"


class Signed:
    """A credential with a fixed token."""

    def __init__(self, entra: Entra, audience: str = AUDIENCE, expires_in: int = 3600) -> None:
        self._token = entra.token(CLIENT, audience, expires_in=expires_in)

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return AccessToken(self._token, 2**33)


@pytest.fixture
def entra(tmp_path: Path) -> Iterator[Entra]:
    with Entra(tmp_path) as entra:
        yield entra


@pytest.fixture
def arm(tmp_path: Path, entra: Entra) -> Iterator[ResourceManager]:
    """A subscription with one AKS cluster, in which the application is a contributor."""
    with ResourceManager(tmp_path, entra) as arm:
        pools = {"system": new_pool("system", mode="System", vmSize="Standard_D4s_v5"), POOL: new_pool(POOL)}
        arm.clusters.append(Cluster(SUBSCRIPTION, GROUP, AKS, "eastus", pools))
        arm.assign(CLIENT, Role.CONTRIBUTOR)
        yield arm


@pytest.fixture
def client(arm: ResourceManager, entra: Entra) -> ContainerServiceClient:
    return new_client(arm, Signed(entra))


def new_client(
    arm: ResourceManager, credential: Signed, subscription: str = SUBSCRIPTION, **options: Any
) -> ContainerServiceClient:
    options |= {"connection_verify": str(arm.certificate)}
    return ContainerServiceClient(credential, subscription, base_url=arm.url, **options)


def scaled(client: ContainerServiceClient, count: int, name: str = POOL) -> AgentPool:
    """The pool after a PUT with this count and the end of the operation."""
    pool = client.agent_pools.get(GROUP, AKS, name)
    pool.count = count
    return client.agent_pools.begin_create_or_update(GROUP, AKS, name, pool).result()


def test_a_pool_is_scaled_by_a_long_running_operation(client: ContainerServiceClient, arm: ResourceManager) -> None:
    pool = scaled(client, 4)
    assert (pool.count, pool.provisioning_state) == (4, "Succeeded")
    assert sum("/operations/" in path for _, path in arm.requests) == arm.polls


def test_a_pool_with_a_running_operation_reports_it(client: ContainerServiceClient, arm: ResourceManager) -> None:
    with arm.hold():
        poller = client.agent_pools.begin_create_or_update(GROUP, AKS, POOL, AgentPool({"properties": {"count": 3}}))
        assert client.agent_pools.get(GROUP, AKS, POOL).provisioning_state == "Scaling"
        assert not poller.done()
    assert poller.result().provisioning_state == "Succeeded"


def test_a_second_operation_is_rejected_while_one_runs(client: ContainerServiceClient, arm: ResourceManager) -> None:
    arm.begin("upgrade agentpool", arm.clusters[0], arm.clusters[0].pools["system"])
    with arm.hold(), pytest.raises(ResourceExistsError, match=r"OperationNotAllowed.*in progress upgrade"):
        scaled(client, 4)


def test_a_failed_operation_returns_its_error(client: ContainerServiceClient, arm: ResourceManager) -> None:
    arm.fail_next_operation("AllocationFailed", "We do not have sufficient capacity for the requested VM size.")
    with pytest.raises(HttpResponseError, match=r"AllocationFailed.*sufficient capacity"):
        scaled(client, 4)
    assert client.agent_pools.get(GROUP, AKS, POOL).provisioning_state == "Failed"


def test_a_pool_is_created_and_deleted(client: ContainerServiceClient) -> None:
    body = AgentPool({"properties": {"count": 0, "vmSize": "Standard_NC4as_T4_v3", "mode": "User"}})
    assert client.agent_pools.begin_create_or_update(GROUP, AKS, "spot", body).result().count == 0
    client.agent_pools.begin_delete(GROUP, AKS, "spot").result()
    with pytest.raises(ResourceNotFoundError):
        client.agent_pools.get(GROUP, AKS, "spot")


def test_lists_are_paged(client: ContainerServiceClient, arm: ResourceManager) -> None:
    for name in ("one", "two", "three"):
        arm.clusters[0].pools[name] = new_pool(name)
    names = [pool.name for pool in client.agent_pools.list(GROUP, AKS)]
    assert names == ["system", POOL, "one", "two", "three"]
    assert [cluster.node_resource_group for cluster in client.managed_clusters.list()] == [f"MC_{GROUP}_{AKS}_eastus"]


def test_a_change_based_on_an_old_version_is_rejected(client: ContainerServiceClient) -> None:
    old = client.agent_pools.get(GROUP, AKS, POOL)
    scaled(client, 2)
    with pytest.raises(ResourceModifiedError):
        client.agent_pools.begin_create_or_update(
            GROUP, AKS, POOL, old, etag=old.e_tag, match_condition=MatchConditions.IfNotModified
        )


@pytest.mark.parametrize(
    ("name", "properties", "code"),
    [
        ("system", {"count": 0}, "InvalidParameter"),
        (POOL, {"count": 1001}, "InvalidParameter"),
        (POOL, {"minCount": 0, "maxCount": 4}, "InvalidParameter"),
        (POOL, {"enableAutoScaling": True, "minCount": 5, "maxCount": 4}, "InvalidParameter"),
        (POOL, {"vmSize": "Standard_NC6"}, "PropertyChangeNotAllowed"),
        ("Not_A_Name", {"count": 1}, "InvalidParameter"),
        (POOL, {"count": 100}, "InsufficientVCPUQuota"),
    ],
)
def test_an_invalid_change_of_a_pool_is_rejected(
    client: ContainerServiceClient, arm: ResourceManager, name: str, properties: dict[str, object], code: str
) -> None:
    arm.vcpu_quota = 100
    with pytest.raises(HttpResponseError, match=code):
        client.agent_pools.begin_create_or_update(GROUP, AKS, name, AgentPool({"properties": properties}))


def test_the_sdk_retries_a_throttled_request(client: ContainerServiceClient, arm: ResourceManager) -> None:
    arm.throttle(1)
    assert client.agent_pools.get(GROUP, AKS, POOL).count == 1
    assert len(arm.requests) == 2


def test_a_missing_resource_is_reported_by_name(
    client: ContainerServiceClient, arm: ResourceManager, entra: Entra
) -> None:
    for group, aks, pool, code in (
        (GROUP, AKS, "none", "NotFound"),
        (GROUP, "none", POOL, "ResourceNotFound"),
        ("none", AKS, POOL, "ResourceGroupNotFound"),
    ):
        with pytest.raises(ResourceNotFoundError, match=code):
            client.agent_pools.get(group, aks, pool)
    with pytest.raises(ResourceNotFoundError, match="SubscriptionNotFound"):
        new_client(arm, Signed(entra), "00000000-0000-4000-8000-00000000ffff").agent_pools.get(GROUP, AKS, POOL)


def test_a_reader_cannot_scale(client: ContainerServiceClient, arm: ResourceManager) -> None:
    arm.assign(CLIENT, Role.READER)
    with pytest.raises(HttpResponseError, match=r"AuthorizationFailed.*managedClusters/agentPools/write"):
        scaled(client, 4)


@pytest.mark.parametrize(
    ("audience", "expires_in", "code"),
    [
        ("https://storage.azure.com", 3600, "InvalidAuthenticationTokenAudience"),
        (AUDIENCE, -60, "ExpiredAuthenticationToken"),
    ],
)
def test_an_invalid_token_is_rejected(
    arm: ResourceManager, entra: Entra, audience: str, expires_in: int, code: str
) -> None:
    with pytest.raises(ClientAuthenticationError, match=code):
        new_client(arm, Signed(entra, audience, expires_in)).agent_pools.get(GROUP, AKS, POOL)


def test_an_invalid_api_version_is_rejected(arm: ResourceManager, entra: Entra) -> None:
    with pytest.raises(HttpResponseError, match="InvalidApiVersionParameter"):
        new_client(arm, Signed(entra), api_version="latest").agent_pools.get(GROUP, AKS, POOL)
