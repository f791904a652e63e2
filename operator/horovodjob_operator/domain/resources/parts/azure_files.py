"""The volumes of `spec.azureFiles`, and remedies for failed mounts."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import PodSecurity
from horovodjob.api.job import HorovodJob
from horovodjob.api.replicas import RolePods
from horovodjob.api.storage_account import CSI_DRIVER, SECRET_ACCOUNT, SECRET_KEY
from horovodjob_operator.domain import names

# User and group of the trainer image.
IMAGE_USER = 1000
OWNERSHIP = ("uid", "gid")
# SMB has no owners and modes: a mount sets the same for all files. HDF5 and SQLite lock byte ranges, which fails across
# SMB clients (nobrl). Each mount has its own connection, so a broken connection affects one mount (nosharesock).
SMB_OPTIONS = (
    "dir_mode=0777",
    "file_mode=0777",
    "mfsymlinks",
    "nobrl",
    "nosharesock",
    "cache=strict",
    "actimeo=30",
)
PORT_CLOSED = "the node cannot reach port 445 of the account: open it in network security group and firewall"
# mount.cifs has one message for all of them.
KEY_DENIED = (
    "the account's key is not the one in the Secret, or the account's firewall refuses the node: compare with "
    "az storage account keys list --account-name {accounts}; or the account allows no keys, which "
    "az storage account show --name {accounts} --query allowSharedKeyAccess prints as false: "
    "set clientID in spec.azureFiles in place of the Secret"
)
IDENTITY_DENIED = (
    "the managed identity of clientID lacks the role 'Storage File Data SMB MI Admin' on account {accounts}, or the "
    "account does not allow OAuth over SMB: az storage account update --name {accounts} --enable-smb-oauth true; or "
    "the account's firewall refuses the node"
)
# Parts of messages of mount.cifs, the driver and the kubelet in lower case, and what the user can do.
REMEDIES = (
    (
        ("not found in the list of registered csi drivers",),
        "the node has no Azure Files driver: az aks update --enable-file-driver",
    ),
    (
        ("secrets ", "not found"),
        "create it in namespace {namespace}: kubectl create secret generic NAME --namespace {namespace} "
        f"--from-literal={SECRET_ACCOUNT}=ACCOUNT --from-literal={SECRET_KEY}=KEY",
    ),
    (
        ("accountkey is empty",),
        f"the Secret needs the keys {SECRET_ACCOUNT} and {SECRET_KEY}",
    ),
    (
        ("mount error(13)",),
        KEY_DENIED,
    ),
    (
        ("inline volume secret ", " is not authorized to get it"),
        "the driver runs with --inline-volume-secret-authz=enforce: grant it with kubectl create role read-share-keys "
        "--namespace {namespace} --verb=get --resource=secrets {secrets} && kubectl create rolebinding "
        "read-share-keys --namespace {namespace} --role=read-share-keys "
        "--serviceaccount={namespace}:{service_account}; shares with clientID need no Secret",
    ),
    (
        ("access denied by server while mounting",),
        "the account requires secure transfer, which mounts over NFS from a node have not: mount a PersistentVolume "
        "with encryptInTransit (docs/aks.md), or the account's network rules refuse the node",
    ),
    (
        ("mount error(2)",),
        "the share does not exist: create it with az storage share-rm create --storage-account {accounts} --name SHARE",
    ),
    (
        ("could not resolve address",),
        "no such storage account: correct spec.azureFiles (account {accounts}), or the node's DNS",
    ),
    (("mount operation timed out",), PORT_CLOSED),
    # ETIMEDOUT, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EINPROGRESS
    *(((f"mount error({number})",), PORT_CLOSED) for number in (110, 111, 112, 113, 115)),
)


def mount_remedy(job: HorovodJob, warning: str) -> str:
    """What the user can do about a failed mount, given the kubelet's warning; empty if no remedy is known."""
    text = warning.lower()
    shares = job.spec.azure_files or ()
    remedy = next((words for patterns, words in REMEDIES if all(pattern in text for pattern in patterns)), "")
    if not shares or not remedy:
        return ""
    shares = tuple(share for share in shares if f'"{_volume_name(share)}"' in text) or shares
    if remedy == KEY_DENIED and all(share.client_id for share in shares):
        remedy = IDENTITY_DENIED
    return remedy.format(
        namespace=job.metadata.namespace,
        accounts=", ".join(dict.fromkeys(share.account for share in shares)),
        secrets=" ".join(f"--resource-name={name}" for name in _key_secrets(job)),
        service_account=job.spec.service_account_name or "default",
    )


def _key_secrets(job: HorovodJob) -> list[str]:
    """The Secrets with keys that the pods of the job mount, each once."""
    shares = (share for share in job.spec.azure_files or () if share.protocol == "smb" and not share.client_id)
    return list(dict.fromkeys(share.key_secret for share in shares))


def volumes(job: HorovodJob, pods: RolePods) -> list[dict[str, Any]]:
    """A volume for each share; its files belong to the user of these pods."""
    return [_volume(share, _smb_options(job, pods, share)) for share in job.spec.azure_files or ()]


def mounts(job: HorovodJob) -> list[dict[str, Any]]:
    """Where the shares appear in the containers.

    The kubelet creates a `subPath` that does not exist; the driver creates a `folderName` only since version 1.34.
    """
    return [
        {"name": _volume_name(share), "mountPath": f"{names.MOUNT_ROOT}/{share.mount_path}"}
        | ({"subPath": share.directory.strip("/")} if share.directory else {})
        | ({"readOnly": True} if share.read_only else {})
        for share in job.spec.azure_files or ()
    ]


def _volume_name(share: AzureFileShare) -> str:
    return f"horovodjob-share-{share.name}"


def _volume(share: AzureFileShare, options: Iterable[str]) -> dict[str, Any]:
    volume: dict[str, Any] = {"name": _volume_name(share)}
    if share.protocol == "nfs":
        # The driver supports NFS only for PersistentVolumes, not for inline volumes.
        return volume | {"nfs": {**share.nfs_source, "readOnly": share.read_only}}
    attributes = {"shareName": share.share, "mountOptions": ",".join(options)}
    if share.client_id:
        attributes |= {
            "storageAccount": share.account,
            "clientID": share.client_id,
            "mountWithWorkloadIdentityToken": "true",
        }
    else:
        attributes["secretName"] = share.key_secret
    if share.server:
        attributes["server"] = share.server
    return volume | {"csi": {"driver": CSI_DRIVER, "readOnly": share.read_only, "volumeAttributes": attributes}}


def _smb_options(job: HorovodJob, pods: RolePods, share: AzureFileShare) -> list[str]:
    """The defaults, each replaced by the user's option of the same name; `brl` replaces `nobrl`."""
    owner = (f"{name}={number}" for name, number in zip(OWNERSHIP, _user(job, pods), strict=True))
    read_only = ("ro",) if share.read_only else ()
    options = share.mount_options or ()
    names_set = {option_name(option) for option in options}
    defaults = (*SMB_OPTIONS, *owner, *read_only)
    return [*(option for option in defaults if option_name(option) not in names_set), *options]


def option_name(option: str) -> str:
    """The name by which options of mount.cifs replace each other: that of `nobrl` is `brl`."""
    return option.partition("=")[0].removeprefix("no")


def _user(job: HorovodJob, pods: RolePods) -> tuple[int, int]:
    """User and group of the pods, as far as the job sets them."""
    user = 0 if job.spec.pod_security is PodSecurity.BASELINE else IMAGE_USER
    contexts = list(_security_contexts(pods.template))
    uids = (context.get("runAsUser") for context in contexts)
    uid = next((value for value in uids if isinstance(value, int)), user)
    gids = (context.get(field) for field in ("fsGroup", "runAsGroup") for context in contexts)
    return uid, next((value for value in gids if isinstance(value, int)), user)


def _security_contexts(template: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Security contexts of a template, that of a container before that of the pod."""
    spec = (template or {}).get("spec")
    if not isinstance(spec, Mapping):
        return
    containers = spec.get("containers")
    for owner in (*(containers if isinstance(containers, list) else ()), spec):
        context = owner.get("securityContext") if isinstance(owner, Mapping) else None
        if isinstance(context, Mapping):
            yield context


def script_on_share(job: HorovodJob) -> tuple[AzureFileShare, str] | None:
    """The share that contains `spec.script` and the path on it; None for a script in the image or on another volume."""
    if job.spec.script is None:
        return None
    path = job.spec.script.path.replace("$(AZ_BATCHAI_JOB_MOUNT_ROOT)", names.MOUNT_ROOT)
    # If one mount is below another, the deepest mount contains the file.
    for share in sorted(job.spec.azure_files or (), key=lambda share: len(share.mount_path), reverse=True):
        inside = path.removeprefix(f"{names.MOUNT_ROOT}/{share.mount_path}/")
        if inside != path:
            return share, "/".join(part for part in ((share.directory or "").strip("/"), inside) if part)
    return None
