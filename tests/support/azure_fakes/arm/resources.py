"""Managed clusters, their agent pools and operations on them, validated as the service does."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from support.azure_fakes.arm.errors import ArmError, quota_exceeded

POOL_TYPE = "Microsoft.ContainerService/managedClusters/agentPools"
CLUSTER_TYPE = "Microsoft.ContainerService/managedClusters"
# A PUT without these removes them.
REPLACED = ("nodeLabels", "nodeTaints", "tags")
# vCPUs of the sizes that tests use.
CORES = {"Standard_NC4as_T4_v3": 4, "Standard_NC24ads_A100_v4": 24, "Standard_D4s_v5": 4}


@dataclass
class Pool:
    """An agent pool: `properties` as the REST API shows them."""

    name: str
    properties: dict[str, Any]
    etag: str = field(default_factory=lambda: str(uuid.uuid4()))

    def body(self, cluster_id: str) -> dict[str, Any]:
        identity = {"id": f"{cluster_id}/agentPools/{self.name}", "name": self.name, "type": POOL_TYPE}
        return {**identity, "properties": {**self.properties, "eTag": self.etag}}


@dataclass
class Cluster:
    """A managed cluster with its pools."""

    subscription: str
    group: str
    name: str
    location: str
    pools: dict[str, Pool] = field(default_factory=dict)
    node_os_channel: str = "NodeImage"
    maintenance: list[str] = field(default_factory=list)
    """Names of the maintenance configurations."""

    @property
    def id(self) -> str:
        scope = f"/subscriptions/{self.subscription}/resourcegroups/{self.group}"
        return f"{scope}/providers/{CLUSTER_TYPE}/{self.name}"

    @property
    def node_group(self) -> str:
        """The resource group of the nodes, which is not the cluster's own."""
        return f"MC_{self.group}_{self.name}_{self.location}"

    def body(self) -> dict[str, Any]:
        profiles = [{"name": pool.name, **pool.properties} for pool in self.pools.values()]
        properties = {
            "provisioningState": "Succeeded",
            "agentPoolProfiles": profiles,
            "nodeResourceGroup": self.node_group,
            "autoUpgradeProfile": {"nodeOSUpgradeChannel": self.node_os_channel},
        }
        identity = {"id": self.id, "name": self.name, "type": CLUSTER_TYPE, "location": self.location}
        return {**identity, "properties": properties}

    def maintenance_bodies(self) -> list[dict[str, Any]]:
        return [{"id": f"{self.id}/maintenanceConfigurations/{name}", "name": name} for name in self.maintenance]

    def cores(self) -> int:
        return sum(CORES.get(pool.properties["vmSize"], 1) * pool.properties["count"] for pool in self.pools.values())


@dataclass
class Operation:
    """A long-running operation: it ends after `polls_left` polls."""

    kind: str
    cluster: Cluster
    pool: Pool
    polls_left: int
    error: ArmError | None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    status: str = "InProgress"

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"name": self.id, "status": self.status, "startTime": self.started}
        if self.status == "Failed" and self.error:
            body["error"] = {"code": self.error.code, "message": self.error.message}
        return body


def new_pool(name: str, **properties: Any) -> Pool:
    """A pool of GPU nodes, with these properties of the REST API."""
    defaults = {
        "count": 1,
        "vmSize": "Standard_NC4as_T4_v3",
        "osType": "Linux",
        "mode": "User",
        "type": "VirtualMachineScaleSets",
        "enableAutoScaling": False,
        "scaleSetPriority": "Regular",
        "provisioningState": "Succeeded",
        "powerState": {"code": "Running"},
        "nodeTaints": ["sku=gpu:NoSchedule"],
    }
    return Pool(name, {key: value for key, value in {**defaults, **properties}.items() if value is not None})


def validated(wanted: dict[str, Any], current: dict[str, Any] | None) -> dict[str, Any]:
    """The properties of a PUT with the service's defaults. Raises ArmError."""
    before = {**new_pool("").properties, **(current or {})}
    properties = {**{key: value for key, value in before.items() if key not in REPLACED}, **wanted}
    properties = {key: value for key, value in properties.items() if value is not None and key != "eTag"}
    limits = [key for key in ("minCount", "maxCount") if wanted.get(key) is not None]
    if len(limits) != (2 if properties["enableAutoScaling"] else 0):
        raise ArmError(400, "InvalidParameter", "minCount and maxCount are those of enableAutoScaling.")
    if not limits:
        properties.pop("minCount", None)
        properties.pop("maxCount", None)
    return properties


def check_quota(cluster: Cluster, properties: dict[str, Any], current: dict[str, Any] | None, quota: int) -> None:
    """Raises ArmError if the subscription has too few vCPUs for the new nodes."""
    cores = CORES.get(properties["vmSize"], 1)
    more = cores * (properties["count"] - (current or {}).get("count", 0))
    remaining = quota - cluster.cores()
    if more > remaining:
        raise quota_exceeded(more, max(remaining, 0), f"{properties['vmSize']} Family", cluster.location)
