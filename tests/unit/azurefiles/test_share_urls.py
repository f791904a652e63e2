"""URLs and paths of shares."""

import pytest

from horovodjob.azurefiles.errors import InvalidLocation
from horovodjob.azurefiles.location import ShareUrl, parse_share_url, share_path

PUBLIC = "https://mystorageaccount.file.core.windows.net"
CHINA = "https://acc.file.core.chinacloudapi.cn"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (f"{PUBLIC}/myshare", ShareUrl(PUBLIC, "mystorageaccount", "myshare")),
        (f" {PUBLIC}/myshare/ ", ShareUrl(PUBLIC, "mystorageaccount", "myshare")),
        (f"{PUBLIC}/batchshare/logs/2%20018", ShareUrl(PUBLIC, "mystorageaccount", "batchshare", "logs/2 018")),
        (f"{CHINA}/myshare/a/", ShareUrl(CHINA, "acc", "myshare", "a")),
        ("http://127.0.0.1:10004/acc/myshare/a", ShareUrl("http://127.0.0.1:10004/acc", "acc", "myshare", "a")),
        ("http://localhost:10004/acc/myshare", ShareUrl("http://localhost:10004/acc", "acc", "myshare")),
    ],
)
def test_a_url_has_endpoint_account_share_and_path(url: str, parts: ShareUrl) -> None:
    assert parse_share_url(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "myshare",
        "https://mystorageaccount.blob.core.windows.net/container",
        PUBLIC,
        f"{PUBLIC}/Upper",
        f"{PUBLIC}/my--share",
        f"{PUBLIC}/myshare/../other",
        "ftp://mystorageaccount.file.core.windows.net/myshare",
        "https://example.com/acc/myshare",
    ],
)
def test_a_url_that_is_not_of_a_share_is_rejected(url: str) -> None:
    with pytest.raises(InvalidLocation, match="share"):
        parse_share_url(url)


@pytest.mark.parametrize(
    ("text", "path"), [("", ""), (".", ""), ("/", ""), ("/a//b/", "a/b"), ("./a/./b", "a/b"), ("a\\b", "a/b")]
)
def test_a_path_has_no_slashes_at_its_ends(text: str, path: str) -> None:
    assert share_path(text) == path


@pytest.mark.parametrize("path", ["..", "a/../../b", "a:b", "a?", 'a"b', "a\nb", "a" * 256])
def test_a_path_that_azure_files_does_not_support_is_rejected(path: str) -> None:
    with pytest.raises(InvalidLocation, match="path"):
        share_path(path)
