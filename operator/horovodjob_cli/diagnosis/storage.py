"""Shares on Azure Files: the CSI driver, the Secret with the account's key, the share itself."""

import base64
import binascii
import os
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
from horovodjob.azurefiles.errors import FilesError, ShareNotFound, Unavailable
from horovodjob_cli import aks
from horovodjob_cli.diagnosis.facts import Facts, Object, named
from horovodjob_cli.diagnosis.finding import Finding, Result
from horovodjob_cli.diagnosis.gpus import worker_nodes

INSTALL_ON_AKS = "az aks update --resource-group <group> --name <cluster> --enable-file-driver"
INSTALL = (
    "helm install azurefile-csi-driver azurefile-csi-driver --namespace kube-system --repo "
    "https://raw.githubusercontent.com/kubernetes-sigs/azurefile-csi-driver/master/charts"
)


def driver(facts: Facts) -> Iterator[Finding]:
    """The CSI driver for Azure Files is registered, and on the nodes."""
    if facts.spec and not any(share.protocol == "smb" for share in facts.spec.azure_files or ()):
        yield Finding("CSI driver", Result.OK, f"{facts.subject} mounts no share of Azure Files over SMB")
        return
    command = INSTALL_ON_AKS if aks.place(facts.nodes, None, None, None) else INSTALL
    if facts.get(f"/apis/storage.k8s.io/v1/csidrivers/{CSI_DRIVER}") is None:
        message = f"the CSI driver {CSI_DRIVER}, which mounts shares of Azure Files, is not installed"
        yield Finding("CSI driver", Result.BLOCKS, message, command)
        return
    nodes = {node["metadata"]["name"] for node in worker_nodes(facts)}
    equipped = {each["metadata"]["name"] for each in facts.list("/apis/storage.k8s.io/v1/csinodes") if has_driver(each)}
    without = sorted(nodes - equipped)
    if nodes and len(without) == len(nodes):
        message = f"the CSI driver {CSI_DRIVER} is registered, and runs on no node for workers"
        yield Finding("CSI driver", Result.BLOCKS, message, "kubectl get pods -n kube-system -l app=csi-azurefile-node")
    elif without:
        message = f"the CSI driver {CSI_DRIVER} does not run on node {named(without)}"
        command = "kubectl get pods -n kube-system -o wide -l app=csi-azurefile-node"
        yield Finding("CSI driver", Result.WARNING, message, command)
    else:
        yield Finding("CSI driver", Result.OK, f"{CSI_DRIVER} is installed")


def has_driver(csi_node: Object) -> bool:
    return any(each["name"] == CSI_DRIVER for each in csi_node["spec"].get("drivers") or [])


def secrets(facts: Facts) -> Iterator[Finding]:
    """Each share's Secret has a key that the account accepts, and the share exists."""
    if facts.spec is None:
        yield Finding("storage", Result.NOT_CHECKED, "no job is given, so no share is known", "hvj doctor -f job.yaml")
        return
    for share in facts.spec.azure_files or ():
        yield from share_secret(facts, share)


def share_secret(facts: Facts, share: AzureFileShare) -> Iterator[Finding]:
    """One share of the job."""
    where = f"share {share.share} of storage account {share.account}"
    if share.protocol == "nfs" or share.client_id:
        how = "over NFS" if share.protocol == "nfs" else f"by the managed identity {share.client_id}"
        yield Finding("storage", Result.OK, f"{where} is mounted {how}, without a key")
        return
    name = share.key_secret
    create = (
        f"kubectl create secret generic {name} -n {facts.namespace} --from-literal={SECRET_ACCOUNT}={share.account} "
        f'--from-literal={SECRET_KEY}="$(az storage account keys list -n {share.account} --query [0].value -o tsv)"'
    )
    renew = f"kubectl delete secret {name} -n {facts.namespace} && {create}"
    values = secret_values(facts, name)
    if values is None:
        message = f"Secret {name} with the key of {where} does not exist in namespace {facts.namespace}"
        yield Finding("storage", Result.BLOCKS, message, create)
        return
    if trouble := secret_trouble(values, share):
        yield Finding("storage", Result.BLOCKS, f"Secret {name} in namespace {facts.namespace}: {trouble}", renew)
        return
    yield tried(values, share, name, renew)


def secret_values(facts: Facts, name: str) -> dict[str, str] | None:
    """The decoded values of a Secret, of the file or of the cluster; what is no text counts as empty."""
    own = next((each for each in facts.secrets if each["metadata"]["name"] == name), None)
    secret = own or facts.get(f"/api/v1/namespaces/{facts.namespace}/secrets/{name}")
    if secret is None:
        return None
    encoded = secret.get("data") or {}
    values = {key: base64.b64decode(value).decode(errors="ignore") for key, value in encoded.items()}
    return values | dict(secret.get("stringData") or {})


def secret_trouble(values: dict[str, str], share: AzureFileShare) -> str | None:
    """What is wrong with the values themselves."""
    if missing := [key for key in (SECRET_ACCOUNT, SECRET_KEY) if not values.get(key, "").strip()]:
        return f"{' and '.join(missing)} is missing or empty"
    if values[SECRET_ACCOUNT].strip() != share.account:
        return f"it is for storage account {values[SECRET_ACCOUNT].strip()}, and the job mounts {share.account}"
    try:
        base64.b64decode(values[SECRET_KEY].strip(), validate=True)
    except binascii.Error:
        return f"{SECRET_KEY} is not an account key, which is 64 bytes in base64"
    return None


def tried(values: dict[str, str], share: AzureFileShare, name: str, renew: str) -> Finding:
    """Whether the account accepts the key, where it can be reached from here."""
    from horovodjob.azurefiles.share import Share

    where = f"share {share.share} of storage account {share.account}"
    try:
        Share(account_of(share, values, name), share.share).check()
    except ShareNotFound as error:
        command = f"hvj storage share create --name {share.share} --account-name {share.account}"
        return Finding("storage", Result.BLOCKS, str(error), command)
    except Unavailable as error:
        return Finding("storage", Result.NOT_CHECKED, f"the key in Secret {name}: {error}")
    except FilesError as error:
        return Finding("storage", Result.BLOCKS, str(error), renew)
    return Finding("storage", Result.OK, f"{where} accepts the key in Secret {name}")


def account_of(share: AzureFileShare, values: dict[str, str], name: str) -> Account:
    """The account with the key of the Secret, at the endpoint that the environment names for it, if it does."""
    environment = {key: value for key, value in os.environ.items() if key in (SERVICE_ENDPOINT, CONNECTION_STRING)}
    account = choose_account(share.account, Options(key=values[SECRET_KEY].strip()), environment)
    if share.server and not environment:
        account = replace(account, endpoint=f"https://{share.server}")
    return replace(account, source=f"the key in Secret {name}")
