"""Addresses that a server connects to for its viewers."""

import ipaddress
import socket
from typing import Any

import pytest

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import AddressRefused, FilesError
from horovodjob.azurefiles.server_transport import server_transport
from horovodjob.azurefiles.share import Share

HOST = "acc.file.core.windows.net"
PRIVATE = (ipaddress.ip_network("10.1.2.0/24"), ipaddress.ip_network("127.0.0.0/8"))


class Names:
    """A name server that gives other addresses each time, and the addresses that were connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers, self.connected = list(answers), list[str]()
        monkeypatch.setattr(socket, "getaddrinfo", self.look_up)
        monkeypatch.setattr(socket.socket, "connect", self.connect)

    def look_up(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        addresses = [host]
        if host == HOST:
            addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in each], socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    def connect(self, address: Any) -> None:
        self.connected.append(address[0])
        raise ConnectionRefusedError


def request(*networks: Any) -> None:
    account = Account("acc", f"https://{HOST}", "the key in Secret s", key="a2V5")
    Share(account, "myshare", transport=server_transport(networks)).check()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "169.254.169.254", "fe80::1"),
        *("10.0.0.1", "172.16.9.9", "192.168.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1", "224.0.0.1"),
        *("168.63.129.16", "64:ff9b::169.254.169.254", "64:ff9b::10.0.0.1", "2002:a00:1::1", "2002:7f00:1::1"),
    ],
)
def test_a_server_does_not_connect_to_itself_its_node_or_the_cluster(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    names = Names(monkeypatch, [address])
    with pytest.raises(AddressRefused, match=f"{HOST} has the address .*, which is not public"):
        request(*PRIVATE)
    assert names.connected == []


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovodjob.azurefiles.share.RETRIES", {"retry_total": 0})
    names = Names(monkeypatch, ["20.1.2.3"], ["127.0.0.1"])
    with pytest.raises(FilesError):
        request()
    assert names.connected == ["20.1.2.3"]


def test_the_administrator_can_allow_networks_but_not_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovodjob.azurefiles.share.RETRIES", {"retry_total": 0})
    names = Names(monkeypatch, ["127.0.0.1", "10.1.2.9"])
    with pytest.raises(FilesError):
        request(*PRIVATE)
    assert names.connected == ["10.1.2.9"]
