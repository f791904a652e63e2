"""An AKS cluster on the fakes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.cluster.nodes import AKS, GROUP, POOL
from support.azure_fakes.arm.resources import Cluster, new_pool
from support.azure_fakes.arm.server import SUBSCRIPTION, ResourceManager, Role
from support.azure_fakes.entra.server import TENANT, Entra, federated_token

CLIENT = "11111111-0000-4000-8000-000000000002"
IDENTITY = ("https://issuer", "system:serviceaccount:training:pool-operator")


@contextmanager
def aks_cluster(directory: Path) -> Iterator[tuple[ResourceManager, dict[str, str]]]:
    """The fake of Azure Resource Manager, and the environment of a pod with workload identity."""
    token = directory / "token"
    token.write_text(federated_token(*IDENTITY))
    with Entra(directory) as entra, ResourceManager(directory, entra) as arm:
        entra.register(CLIENT, identity=IDENTITY)
        arm.assign(CLIENT, Role.CONTRIBUTOR)
        pools = {"system": new_pool("system", mode="System", vmSize="Standard_D4s_v5"), POOL: new_pool(POOL, count=0)}
        elsewhere = Cluster(SUBSCRIPTION, "other", "elsewhere", "westeurope")
        arm.clusters += [elsewhere, Cluster(SUBSCRIPTION, GROUP, AKS, "eastus", pools)]
        yield (
            arm,
            {
                "AZURE_TOKEN_CREDENTIALS": "WorkloadIdentityCredential",
                "AZURE_CLIENT_ID": CLIENT,
                "AZURE_TENANT_ID": TENANT,
                "AZURE_FEDERATED_TOKEN_FILE": str(token),
                "AZURE_AUTHORITY_HOST": entra.url,
                "AZURE_RESOURCE_MANAGER_ENDPOINT": arm.url,
                "REQUESTS_CA_BUNDLE": str(arm.certificate),
            },
        )
