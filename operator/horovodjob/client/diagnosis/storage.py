"""Shares on Azure Files: the CSI driver, the Secret with the account's key, the share itself."""

import base64
import binascii
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.storage_account import CSI_DRIVER, SECRET_ACCOUNT, SECRET_KEY
from horovodjob.azurefiles.credentials import (
    CONNECTION_STRING,
    SERVICE_ENDPOINT,
    Account,
    Options,
    choose_account,
)
from horovodjob.azurefiles.errors import FilesError, HostNotAllowed, ShareNotFound, Unavailable
from horovodjob.azurefiles.hosts import ALLOWED_HOSTS
from horovodjob.client.cluster import aks
from horovodjob.client.cluster.default_gpus import are_own_machines
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Forbidden, Object, Outcome, join_names
from horovodjob.client.diagnosis.gpus import worker_nodes

BLOB_DRIVER = "blob.csi.azure.com"
# The command that installs a driver on AKS, and on another cluster. AKS has that of Azure Files by default.
INSTALL: dict[str, tuple[str | None, str | None]] = {
    driver: (
        f"az aks update --resource-group <group> --name <cluster> --enable-{name}-driver",
        f"helm install {chart} {chart} --namespace kube-system --repo "
        f"https://raw.githubusercontent.com/kubernetes-sigs/{chart}/master/charts",
    )
    for driver, name, chart in (
        (CSI_DRIVER, "file", "azurefile-csi-driver"),
        (BLOB_DRIVER, "blob", "blob-csi-driver"),
    )
}
# Earlier versions of the driver do not mount inline volumes with the token of a service account.
TOKEN_MOUNTS = (1, 35, 3)
DRIVER_IMAGE = re.compile(r"/azurefile-csi:v?(\d+)\.(\d+)\.(\d+)")
UPGRADE = (
    "az aks upgrade --resource-group <group> --name <cluster> --kubernetes-version 1.36",
    "helm upgrade azurefile-csi-driver azurefile-csi-driver --namespace kube-system --repo "
    "https://raw.githubusercontent.com/kubernetes-sigs/azurefile-csi-driver/master/charts",
)
PLUGINS = {CSI_DRIVER: " -l app=csi-azurefile-node", BLOB_DRIVER: " -l app=csi-blob-node"}


def driver(facts: Facts) -> Iterator[CheckResult]:
    """The CSI drivers of the job's volumes are registered and run on the nodes."""
    for name in inline_drivers(facts):
        yield from registered_driver(facts, name, f"which mounts a volume of {facts.subject}")
    if facts.spec and not any(share.protocol == "smb" for share in facts.spec.azure_files or ()):
        yield CheckResult("CSI driver", Outcome.OK, f"{facts.subject} mounts no share of Azure Files over SMB")
        return
    yield from registered_driver(facts, CSI_DRIVER, "which mounts shares of Azure Files")
    if facts.spec and any(share.client_id for share in facts.spec.azure_files or ()):
        yield driver_version(facts)


def driver_version(facts: Facts) -> CheckResult:
    """Whether the driver of Azure Files can mount a share with a managed identity, by the image of its DaemonSet."""
    need = f"clientID needs {'.'.join(map(str, TOKEN_MOUNTS))} or newer"
    try:
        containers = [
            container for each in facts.daemon_sets for container in each["spec"]["template"]["spec"]["containers"]
        ]
    except Forbidden as error:
        return CheckResult("CSI driver", Outcome.NOT_CHECKED, f"version of {CSI_DRIVER}: {error}; {need}")
    found = [match for each in containers if (match := DRIVER_IMAGE.search(each.get("image", "")))]
    if not found:
        message = f"version of {CSI_DRIVER}: no DaemonSet has an image azurefile-csi with a version; {need}"
        return CheckResult("CSI driver", Outcome.NOT_CHECKED, message)
    oldest = min(tuple(map(int, match.groups())) for match in found)
    message = f"{CSI_DRIVER} has version {'.'.join(map(str, oldest))}"
    if oldest >= TOKEN_MOUNTS:
        return CheckResult("CSI driver", Outcome.OK, f"{message}; {need}")
    on_aks = aks.cluster_reference(facts.nodes, None, None, None) is not None
    return CheckResult("CSI driver", Outcome.BLOCKS, f"{message}, and {need} (AKS 1.36)", UPGRADE[0 if on_aks else 1])


def inline_drivers(facts: Facts) -> list[str]:
    """Other CSI drivers that volumes of the job name, each once."""
    volumes = [volume.model_extra or {} for volume in (facts.spec.volumes if facts.spec else None) or ()]
    found = {str(volume["csi"].get("driver")) for volume in volumes if isinstance(volume.get("csi"), dict)}
    return sorted(found - {CSI_DRIVER})


def registered_driver(facts: Facts, driver: str, purpose: str) -> Iterator[CheckResult]:
    """The CSI driver is registered and runs on the nodes."""
    on_aks = aks.cluster_reference(facts.nodes, None, None, None) is not None
    install, plugin = INSTALL.get(driver, (None, None)), PLUGINS.get(driver, "")
    if facts.get(f"/apis/storage.k8s.io/v1/csidrivers/{driver}") is None:
        message = f"the CSI driver {driver}, {purpose}, is not installed"
        if facts.spec is None and are_own_machines(facts.nodes):
            yield CheckResult("CSI driver", Outcome.OK, f"{message}; other volumes of a job do not need it")
            return
        yield CheckResult("CSI driver", Outcome.BLOCKS, message, install[0 if on_aks else 1])
        return
    nodes = {node["metadata"]["name"] for node in worker_nodes(facts)}
    equipped = {
        each["metadata"]["name"] for each in facts.list("/apis/storage.k8s.io/v1/csinodes") if has_driver(each, driver)
    }
    without = sorted(nodes - equipped)
    if nodes and len(without) == len(nodes):
        message = f"the CSI driver {driver} is registered but runs on no node for workers"
        yield CheckResult("CSI driver", Outcome.BLOCKS, message, f"kubectl get pods -n kube-system{plugin}")
    elif without:
        message = f"the CSI driver {driver} does not run on node {join_names(without)}"
        command = f"kubectl get pods -n kube-system -o wide{plugin}"
        yield CheckResult("CSI driver", Outcome.WARNING, message, command)
    else:
        yield CheckResult("CSI driver", Outcome.OK, f"{driver} is installed")


def has_driver(csi_node: Object, driver: str) -> bool:
    return any(each["name"] == driver for each in csi_node["spec"].get("drivers") or [])


def secrets(facts: Facts) -> Iterator[CheckResult]:
    """Each share's Secret has a key that the account accepts, and the share exists."""
    if facts.spec is None:
        yield CheckResult(
            "storage", Outcome.NOT_CHECKED, "no job is named, so the shares are unknown", "hvj doctor -f job.yaml"
        )
        return
    for share in facts.spec.azure_files or ():
        yield from share_secret(facts, share)


def share_secret(facts: Facts, share: AzureFileShare) -> Iterator[CheckResult]:
    """One share of the job."""
    where = f"share {share.share} of storage account {share.account}"
    if share.protocol == "nfs" or share.client_id:
        how = "over NFS" if share.protocol == "nfs" else f"by the managed identity {share.client_id}"
        yield CheckResult("storage", Outcome.OK, f"{where} is mounted {how}, without a key")
        return
    name = share.key_secret
    word = shlex.quote(name)  # in a job, it is any text
    create = (
        f"kubectl create secret generic {word} -n {facts.namespace} --from-literal={SECRET_ACCOUNT}={share.account} "
        f'--from-literal={SECRET_KEY}="$(az storage account keys list -n {share.account} --query [0].value -o tsv)"'
    )
    renew = f"kubectl delete secret {word} -n {facts.namespace} && {create}"
    values = secret_values(facts, name)
    if values is None:
        message = f"Secret {name} with the key of {where} does not exist in namespace {facts.namespace}"
        yield CheckResult("storage", Outcome.BLOCKS, message, create)
        return
    if problem := secret_error(values, share):
        yield CheckResult("storage", Outcome.BLOCKS, f"Secret {name} in namespace {facts.namespace}: {problem}", renew)
        return
    yield check_key(values, share, name, renew)


def secret_values(facts: Facts, name: str) -> dict[str, str] | None:
    """The decoded values of a Secret, from the file or the cluster; without bytes that are not UTF-8."""
    own = next((each for each in facts.secrets if each["metadata"]["name"] == name), None)
    secret = own or facts.get(f"/api/v1/namespaces/{facts.namespace}/secrets/{name}")
    if secret is None:
        return None
    encoded = secret.get("data") or {}
    values = {key: base64.b64decode(value).decode(errors="ignore") for key, value in encoded.items()}
    return values | dict(secret.get("stringData") or {})


def secret_error(values: dict[str, str], share: AzureFileShare) -> str | None:
    """The error in the values of a Secret, if any."""
    if missing := [key for key in (SECRET_ACCOUNT, SECRET_KEY) if not values.get(key, "").strip()]:
        return f"{' and '.join(missing)} is missing or empty"
    if values[SECRET_ACCOUNT].strip() != share.account:
        return f"it is for storage account {values[SECRET_ACCOUNT].strip()}, and the job mounts {share.account}"
    try:
        base64.b64decode(values[SECRET_KEY].strip(), validate=True)
    except binascii.Error:
        return f"{SECRET_KEY} is not an account key, which is 64 bytes in base64"
    return None


def check_key(values: dict[str, str], share: AzureFileShare, name: str, renew: str) -> CheckResult:
    """Whether the account accepts the key; `not checked` if the account is unreachable."""
    from horovodjob.azurefiles.share import Share

    where = f"share {share.share} of storage account {share.account}"
    try:
        Share(account_of(share, values, name), share.share).check()
    except ShareNotFound as error:
        command = f"hvj storage share create --name {share.share} --account-name {share.account}"
        return CheckResult("storage", Outcome.BLOCKS, str(error), command)
    except (Unavailable, HostNotAllowed) as error:
        return CheckResult("storage", Outcome.NOT_CHECKED, f"the key in Secret {name}: {error}")
    except FilesError as error:
        return CheckResult("storage", Outcome.BLOCKS, str(error), renew)
    return CheckResult("storage", Outcome.OK, f"{where} accepts the key in Secret {name}")


def account_of(share: AzureFileShare, values: dict[str, str], name: str) -> Account:
    """The account with the key of the Secret, at the endpoint that the environment sets, if any."""
    variables = (SERVICE_ENDPOINT, CONNECTION_STRING, ALLOWED_HOSTS)
    environment = {key: value for key, value in os.environ.items() if key in variables}
    options = Options(account=share.account, key=values[SECRET_KEY].strip())
    account = choose_account(share.account, options, environment, server=share.server or "")
    return replace(account, source=f"the key in Secret {name}")
