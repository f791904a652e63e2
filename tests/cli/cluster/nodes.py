"""Node objects as AKS makes them, and pods of jobs on them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from support.api_client import Api, ApiError, Object, wait_for
from support.azure_fakes.arm.server import SUBSCRIPTION

GROUP, AKS, POOL = "batchai.horovod", "aks", "gpunp"
GPU = "nvidia.com/gpu"
LABELS = {"kubernetes.azure.com/agentpool": POOL, "node.kubernetes.io/instance-type": "Standard_NC4as_T4_v3"}
ON_AZURE = (
    f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/MC_{GROUP}_{AKS}_eastus/providers/Microsoft.Compute"
    "/virtualMachineScaleSets/aks-pool-1-vmss/virtualMachines/{}"
)


class Nodes:
    """Makes Node objects as AKS does, and pods of jobs on them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._names: list[str] = []
        self._pods: list[str] = []

    def add(
        self,
        name: str,
        *,
        labels: Object = LABELS,
        gpus: int = 1,
        ready: str = "True",
        ready_for: timedelta = timedelta(0),
        conditions: tuple[str, ...] = (),
        on_azure: bool = False,
        **spec: Any,
    ) -> None:
        since = (datetime.now(UTC) - ready_for).strftime("%Y-%m-%dT%H:%M:%SZ")
        all_conditions = {"Ready": ready} | dict.fromkeys(conditions, "True")
        resources = {"cpu": "4", "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": since, "reason": "Test", "message": f"{kind}!"}
                for kind, value in all_conditions.items()
            ],
            "addresses": [{"type": "InternalIP", "address": "10.224.0.4"}],
        }
        provider = {"providerID": ON_AZURE.format(len(self._names))} if on_azure else {}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {**provider, **spec}, "status": status}
        self._api.create("/api/v1/nodes", body)
        self._names.append(name)

    def add_pod(
        self, node: str, *, phase: str = "Running", ready: str = "True", job: str = "train", **status: Any
    ) -> Object:
        """A pod of a job, bound to the node, if it is not empty."""
        namespace = f"/api/v1/namespaces/{self._namespace}"
        name = f"{job}-worker-{len(self._pods)}"
        wait_for("the service account", lambda: self._api.find(f"{namespace}/serviceaccounts/default"))
        container = {"name": "trainer", "image": "trainer:1"}
        spec = {"containers": [container], "automountServiceAccountToken": False} | ({"nodeName": node} if node else {})
        labels = {"horovodjob.dev/job": job, "horovodjob.dev/role": "worker"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        self._api.create(f"{namespace}/pods", body)
        self._pods.append(f"{namespace}/pods/{name}")
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}], **status}
        return self._api.patch(f"{self._pods[-1]}/status", {"status": status})

    def delete_all(self) -> None:
        """Deletes them, unless the pod garbage collector already did."""
        for path, body in [(pod, {"gracePeriodSeconds": 0}) for pod in self._pods] + [
            (f"/api/v1/nodes/{name}", None) for name in self._names
        ]:
            try:
                self._api.delete(path, body)
            except ApiError as error:
                if error.status != 404:
                    raise
