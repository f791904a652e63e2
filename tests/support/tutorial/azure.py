"""The Azure resources of the tutorial: a pool of four GPU nodes that can be resized, and a storage account.

The nodes are real nodes of the local cluster that advertise GPUs they do not have. The storage account is the local
cluster's SMB server; a fake of the Files REST API serves the same directories, and a fake of Azure Resource Manager
resizes the pool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster.command_line import invoke
from localcluster.settings import Cluster
from support.azure_fakes.arm.resources import Cluster as ManagedCluster
from support.azure_fakes.arm.resources import new_pool
from support.azure_fakes.arm.server import SUBSCRIPTION, ResourceManager, Role
from support.azure_fakes.entra.server import TENANT, Entra
from support.azure_fakes.files.accounts import Account, new_key
from support.azure_fakes.files.server import FilesService

POOL, NODES = "nc6cluster", 4
VM_SIZE = "Standard_NC4as_T4_v3"
STORAGE_ACCOUNT = "mystorageaccount"
GROUP, AKS = "batchai.horovod", "batchai"
CLIENT, SECRET = "11111111-0000-4000-8000-000000000002", "the secret of a service principal"


@contextmanager
def azure(local: Cluster, directory: Path) -> Iterator[dict[str, str]]:
    """The environment of `hvj` for the pool and the account, which exist inside the context."""

    def resize(count: int) -> None:
        labels = {"kubernetes.azure.com/agentpool": POOL, "node.kubernetes.io/instance-type": VM_SIZE}
        options = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
        invoke(local, "nodes", str(count), "--prefix", POOL, *options, "--taint", "sku=gpu:NoSchedule", "--gpus", "1")

    resize(NODES)
    key = invoke(local, "storage", "create", STORAGE_ACCOUNT)
    account = Account(STORAGE_ACCOUNT, local.azure_files / STORAGE_ACCOUNT, keys=[key, new_key()])
    try:
        with FilesService([account]) as files, Entra(directory) as entra, ResourceManager(directory, entra) as arm:
            pools = {POOL: new_pool(POOL, count=NODES, vmSize=VM_SIZE)}
            arm.clusters.append(ManagedCluster(SUBSCRIPTION, GROUP, AKS, "eastus", pools))
            arm.on_change = lambda cluster, pool: resize(pool.properties["count"])
            entra.register(CLIENT, secret=SECRET)
            arm.assign(CLIENT, Role.CONTRIBUTOR)
            yield {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{local.cache / 'bin'}:{os.environ['PATH']}",
                "KUBECONFIG": str(local.kubeconfig),
                "AZURE_BATCHAI_STORAGE_ACCOUNT": STORAGE_ACCOUNT,
                "AZURE_BATCHAI_STORAGE_KEY": key,
                "AZURE_STORAGE_SERVICE_ENDPOINT": files.url(STORAGE_ACCOUNT),
                "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
                "AZURE_AKS_CLUSTER_NAME": AKS,
                "AZURE_TENANT_ID": TENANT,
                "AZURE_CLIENT_ID": CLIENT,
                "AZURE_CLIENT_SECRET": SECRET,
                "AZURE_AUTHORITY_HOST": entra.url,
                "AZURE_RESOURCE_MANAGER_ENDPOINT": arm.url,
                "REQUESTS_CA_BUNDLE": str(arm.certificate),
            }
    finally:
        invoke(local, "storage", "remove", STORAGE_ACCOUNT)
        resize(0)
