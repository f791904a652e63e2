"""Names that Azure Files and its CSI driver have given to their parts."""

CSI_DRIVER = "file.csi.azure.com"
PUBLIC_CLOUD = "core.windows.net"
# Keys of the Secret that the CSI driver reads.
SECRET_ACCOUNT = "azurestorageaccountname"
SECRET_KEY = "azurestorageaccountkey"


def files_host(account: str) -> str:
    """Address of an account's shares in Azure's public cloud."""
    return f"{account}.file.{PUBLIC_CLOUD}"


def key_secret_name(account: str) -> str:
    """Name of the Secret with an account's key, as the CSI driver names it by default."""
    return f"azure-storage-account-{account}-secret"
