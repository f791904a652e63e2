"""The shares of Azure Files that a job mounts: `spec.azureFiles`."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from horovodjob.api.base import Model, Name
from horovodjob.api.storage_account import files_host, key_secret_name

RELATIVE = "!self.{0}.startsWith('/') && !self.{0}.split('/').exists(part, part == '..')"
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
MountOption = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\s,]+$")]
RULES = (
    (
        "!has(self.relativeMountPath) || " + RELATIVE.format("relativeMountPath"),
        "relativeMountPath must be a path below $AZ_BATCHAI_JOB_MOUNT_ROOT without a leading / and without .., "
        "such as myshare",
    ),
    (
        "!has(self.directory) || " + RELATIVE.format("directory"),
        "directory must be a path on the share without a leading / and without .., such as cifar/data",
    ),
    (
        "!has(self.protocol) || self.protocol != 'nfs' || "
        "!has(self.secretName) && !has(self.clientID) && !has(self.mountOptions)",
        "protocol nfs takes no secretName, clientID or mountOptions: NFS shares have no keys, and their options need "
        "a PersistentVolume (spec.volumes)",
    ),
    (
        "!has(self.clientID) || !has(self.secretName)",
        "set secretName (an account key) or clientID (workload identity), not both",
    ),
)
VALIDATIONS: list[Any] = [{"rule": rule, "message": message} for rule, message in RULES]


class AzureFileShare(Model):
    """A share of Azure Files that is mounted in launcher and workers."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": VALIDATIONS})
    name: Annotated[str, StringConstraints(min_length=1, max_length=46, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = (
        Field(description="Name of this entry, unique in the list; also the default mount path.")
    )
    account: Annotated[str, StringConstraints(min_length=3, max_length=24, pattern=r"^[a-z0-9]+$")] = Field(
        description="Name of the storage account."
    )
    share: Annotated[str, StringConstraints(min_length=3, max_length=63, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")] = Field(
        description="Name of the share."
    )
    directory: RelativePath | None = Field(
        None,
        description="Directory of the share that is mounted in place of its root; it is created if it does not exist.",
    )
    secret_name: Name | None = Field(
        None,
        description="Secret in the namespace of the job with the keys azurestorageaccountname and "
        "azurestorageaccountkey; default azure-storage-account-<account>-secret.",
    )
    client_id: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[-0-9A-Za-z]+$")] | None = (
        Field(
            None,
            alias="clientID",
            description="Client ID of a managed identity for workload identity, in place of an account key. The "
            "identity must trust the service account of the job, and the CSI driver must have version 1.35.3 or newer "
            "(AKS 1.36).",
        )
    )
    relative_mount_path: RelativePath | None = Field(
        None, description="Mount path below $AZ_BATCHAI_JOB_MOUNT_ROOT; default: name."
    )
    read_only: bool = Field(False, description="Whether the mount is read-only.")
    mount_options: tuple[MountOption, ...] | None = Field(
        None,
        description="Options of mount.cifs, such as actimeo=1; each replaces the operator's default of the same name "
        "(dir_mode, file_mode, uid, gid, mfsymlinks, nobrl, cache, actimeo, nosharesock).",
        max_length=64,
    )
    protocol: Literal["smb", "nfs"] = Field(
        "smb", description="smb, with the CSI driver file.csi.azure.com, or nfs, for NFS shares of premium accounts."
    )
    server: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-.0-9A-Za-z]+$")] | None = Field(
        None,
        description="Address of the account if it is not <account>.file.core.windows.net, such as in another cloud or "
        "with a private endpoint. Clients with credentials of a user read only from hosts of Azure.",
    )

    @property
    def mount_path(self) -> str:
        """Path of the share below AZ_BATCHAI_JOB_MOUNT_ROOT."""
        return (self.relative_mount_path or self.name).strip("/")

    @property
    def key_secret(self) -> str:
        """Name of the Secret with the account's key."""
        return self.secret_name or key_secret_name(self.account)

    @property
    def nfs_source(self) -> dict[str, str]:
        """Fields of an `nfs` volume for a share that is mounted over NFS."""
        return {"server": self.server or files_host(self.account), "path": f"/{self.account}/{self.share}"}
