"""URLs of shares: https://<account>.file.<suffix>/<share>[/<directory>], in any cloud."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from horovodjob.api.storage_account import files_host
from horovodjob.azurefiles.errors import InvalidLocation

SHARE_NAME = re.compile(r"[a-z0-9](-?[a-z0-9])+")
EXAMPLE = f"https://{files_host('myaccount')}/myshare/directory"


@dataclass(frozen=True, slots=True)
class ShareUrl:
    """The parts of a share's URL; `path` has no slash at either end."""

    endpoint: str
    account: str
    share: str
    path: str = ""


def parse_share_url(url: str) -> ShareUrl:
    """The parts of a share's URL. Raises InvalidLocation.

    The path of an emulator's URL begins with the account: http://127.0.0.1:10004/myaccount/myshare.
    """
    parts = urlsplit(url.strip())
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    host = parts.hostname or ""
    account = host.partition(".")[0]
    endpoint = f"{parts.scheme}://{parts.netloc}"
    if ".file." not in host:
        if not _is_emulator(host) or not segments:
            raise InvalidLocation(f"{url!r} is not the URL of a share, which looks like {EXAMPLE}")
        account = segments.pop(0)
        endpoint = f"{endpoint}/{account}"
    if parts.scheme not in ("https", "http") or not segments:
        raise InvalidLocation(f"{url!r} is not the URL of a share, which looks like {EXAMPLE}")
    check_share_name(segments[0])
    return ShareUrl(endpoint, account, segments[0], share_path("/".join(segments[1:])))


def account_of_endpoint(endpoint: str) -> str:
    """Name of the account that an endpoint belongs to."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    return host.partition(".")[0] if ".file." in host else parts.path.strip("/")


def check_share_name(name: str) -> None:
    """Raises InvalidLocation for a name that no share can have."""
    if not 3 <= len(name) <= 63 or not SHARE_NAME.fullmatch(name):
        raise InvalidLocation(
            f"share name {name!r}: 3 to 63 lower-case letters, digits and single hyphens, and no hyphen at the ends"
        )


def share_path(path: str) -> str:
    """The path of a file or directory, without slashes at its ends and without `.`. Raises InvalidLocation for `..`."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidLocation(f"path {path!r} is outside of the share: use a path without ..")
    for part in parts:
        if len(part) > 255:
            raise InvalidLocation(f"path {path!r}: a name has {len(part)} characters; Azure Files allows 255")
        if found := re.search(r'[":|<>*?\x00-\x1f]', part):
            raise InvalidLocation(f"path {path!r} has the character {found[0]!r}, which Azure Files does not allow")
    return "/".join(parts)


def _is_emulator(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
