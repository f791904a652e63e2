"""The operations of the service, each with the access that it requires."""

import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aiohttp import web

from support.azure_fakes.files import listing
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.authorization import Access, Target
from support.azure_fakes.files.disk import Properties, existing, located, properties, share_directory, timestamp
from support.azure_fakes.files.errors import Refusal

MOST_RANGE_BYTES = 4 << 20
Operation = Callable[["Call"], web.Response]


class Call:
    """A request with its body and its target."""

    def __init__(self, request: web.Request, target: Target) -> None:
        self.request, self.target = request, target
        self.account: Account = target.account
        self.body = b""

    @property
    def endpoint(self) -> str:
        return f"{self.request.scheme}://{self.request.host}/"

    def file(self) -> Path:
        return existing(self.account, self.target.share, self.target.path, is_directory=False)

    def directory(self) -> Path:
        return existing(self.account, self.target.share, self.target.path, is_directory=True)


def create_share(call: Call) -> web.Response:
    path = call.account.directory / call.target.share
    if path.exists():
        raise Refusal("ShareAlreadyExists")
    path.mkdir()
    return web.Response(status=201, headers=_headers(properties(path)))


def show_share(call: Call) -> web.Response:
    path = share_directory(call.account, call.target.share)
    return web.Response(headers=_headers(properties(path)) | {"x-ms-share-quota": "5120"})


def create_directory(call: Call) -> web.Response:
    path = located(call.account, call.target.share, call.target.path)
    if path.exists():
        raise Refusal("ResourceAlreadyExists")
    path.mkdir()
    return web.Response(status=201, headers=_file_headers(properties(path)))


def show_directory(call: Call) -> web.Response:
    return web.Response(headers=_file_headers(properties(call.directory())))


def list_directory(call: Call) -> web.Response:
    path, target = call.directory(), call.target
    return _xml(listing.directory(path, target.share, target.path, call.request.query, call.endpoint))


def delete_directory(call: Call) -> web.Response:
    path = call.directory()
    if any(path.iterdir()):
        raise Refusal("DirectoryNotEmpty")
    path.rmdir()
    return web.Response(status=202)


def create_file(call: Call) -> web.Response:
    path = located(call.account, call.target.share, call.target.path)
    with path.open("wb") as file:
        file.truncate(int(call.request.headers["x-ms-content-length"]))
    return web.Response(status=201, headers=_file_headers(properties(path)))


def read_file(call: Call) -> web.Response:
    path = call.file()
    found = properties(path)
    if call.request.headers.get("If-Match", found.etag) not in ("*", found.etag):
        raise Refusal("ConditionNotMet")
    headers = _file_headers(found) | {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
    asked = _range(call.request)
    if asked is None:
        return web.Response(body=path.read_bytes(), headers=headers)
    start, end = asked[0], min(asked[1], found.size - 1)
    if start > end:
        raise Refusal("InvalidRange", headers={"Content-Range": f"bytes */{found.size}"})
    with path.open("rb") as file:
        file.seek(start)
        body = file.read(end - start + 1)
    headers["Content-Range"] = f"bytes {start}-{end}/{found.size}"
    return web.Response(status=206, body=body, headers=headers)


def show_file(call: Call) -> web.Response:
    found = properties(call.file())
    size = {"Content-Length": str(found.size), "Content-Type": "application/octet-stream"}
    return web.Response(headers=_file_headers(found) | size)


def write_range(call: Call) -> web.Response:
    path, asked = call.file(), _range(call.request)
    assert asked
    if len(call.body) != asked[1] - asked[0] + 1 or len(call.body) > MOST_RANGE_BYTES:
        raise Refusal("InvalidHeaderValue", "Content-Length")
    if asked[1] >= path.stat().st_size:
        raise Refusal("InvalidRange")
    with path.open("r+b") as file:
        file.seek(asked[0])
        file.write(call.body)
    return web.Response(status=201, headers=_headers(properties(path)))


def rename_file(call: Call) -> web.Response:
    return _rename(call, is_directory=False)


def rename_directory(call: Call) -> web.Response:
    return _rename(call, is_directory=True)


def _rename(call: Call, *, is_directory: bool) -> web.Response:
    target = call.target
    source = unquote(urlsplit(call.request.headers.get("x-ms-file-rename-source", "")).path).strip("/")
    source = source.removeprefix(f"{call.account.name}/")
    share, _, path = source.partition("/")
    old = existing(call.account, share, path, is_directory=is_directory)
    new = located(call.account, share, target.path)
    # A file is replaced if the request says so, a directory never.
    replaces = not is_directory and call.request.headers.get("x-ms-file-rename-replace-if-exists", "").lower() == "true"
    if new.exists() and not replaces:
        raise Refusal("ResourceAlreadyExists")
    old.replace(new)
    written = call.request.headers.get("x-ms-file-last-write-time", "preserve")
    if written not in ("preserve", "now"):
        seconds = datetime.fromisoformat(written).timestamp()
        os.utime(new, (seconds, seconds))
    return web.Response(headers=_file_headers(properties(new)))


def delete_file(call: Call) -> web.Response:
    call.file().unlink()
    return web.Response(status=202)


# By method, restype and comp; an empty path is the account's or the share's root.
OPERATIONS: dict[tuple[str, str, str], tuple[Operation, Access]] = {
    ("PUT", "share", ""): (create_share, Access("c", "cw")),
    ("GET", "share", ""): (show_share, Access("c", "r")),
    ("HEAD", "share", ""): (show_share, Access("c", "r")),
    ("PUT", "directory", ""): (create_directory, Access("o", "cw")),
    ("GET", "directory", ""): (show_directory, Access("o", "r")),
    ("HEAD", "directory", ""): (show_directory, Access("o", "r")),
    ("GET", "directory", "list"): (list_directory, Access("c", "l")),
    ("DELETE", "directory", ""): (delete_directory, Access("o", "d")),
    ("PUT", "directory", "rename"): (rename_directory, Access("o", "w")),
    ("PUT", "", ""): (create_file, Access("o", "cw")),
    ("GET", "", ""): (read_file, Access("o", "r")),
    ("HEAD", "", ""): (show_file, Access("o", "r")),
    ("PUT", "", "range"): (write_range, Access("o", "w")),
    ("PUT", "", "rename"): (rename_file, Access("o", "w")),
    ("DELETE", "", ""): (delete_file, Access("o", "d")),
}


def _xml(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/xml")


def _headers(found: Properties) -> dict[str, str]:
    return {"ETag": found.etag, "Last-Modified": found.last_modified}


def _file_headers(found: Properties) -> dict[str, str]:
    return _headers(found) | {
        "x-ms-type": "Directory" if found.is_directory else "File",
        "x-ms-server-encrypted": "true",
        "x-ms-file-attributes": "Directory" if found.is_directory else "Archive",
        "x-ms-file-creation-time": timestamp(found.created),
        "x-ms-file-last-write-time": timestamp(found.written),
        "x-ms-file-change-time": timestamp(found.changed),
        "x-ms-file-id": str(found.file_id),
        "x-ms-file-parent-id": "0",
        "x-ms-file-permission-key": "0*0",
    }


def _range(request: web.Request) -> tuple[int, int] | None:
    """First and last requested byte; x-ms-range takes precedence over Range."""
    text = request.headers.get("x-ms-range") or request.headers.get("Range")
    if text is None:
        return None
    if not (found := re.fullmatch(r"bytes=(\d+)-(\d*)", text)):
        raise Refusal("InvalidHeaderValue", "Range")
    return int(found[1]), int(found[2] or 1 << 62)
