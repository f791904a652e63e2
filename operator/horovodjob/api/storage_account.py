"""Names that Azure Files and its CSI driver define."""

CSI_DRIVER = "file.csi.azure.com"
PUBLIC_CLOUD = "core.windows.net"
# Keys of the Secret that the CSI driver reads.
SECRET_ACCOUNT = "azurestorageaccountname"
SECRET_KEY = "azurestorageaccountkey"


def files_host(account: str) -> str:
    """Address of the shares of an account in the public cloud of Azure."""
    return f"{account}.file.{PUBLIC_CLOUD}"


def key_secret_name(account: str) -> str:
    """Default name of the Secret with the key of an account, as the CSI driver defines it."""
    return f"azure-storage-account-{account}-secret"
