"""Connections of a server for its viewers: to public addresses and to networks that the administrator has named.

A server reaches what its viewers and the authors of jobs cannot: itself, the metadata service of its node, the Services
of the cluster. The name of a host is resolved once for each connection, and the connection is made to that address, so
another answer of the DNS has no effect.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

import requests
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter
from urllib3 import HTTPSConnectionPool, Retry
from urllib3.connection import HTTPSConnection

from horovodjob.azurefiles.errors import AddressRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Azure's host of a virtual machine, which has a public address: settings of the node, with secrets.
AZURE_HOST = ipaddress.ip_address("168.63.129.16")
NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052


def server_transport(networks: Sequence[Network]) -> RequestsTransport:
    """A transport for clients of the Azure SDK. Raises AddressRefused when a connection is opened."""
    session = requests.Session()
    session.adapters.clear()  # no plain HTTP
    session.mount("https://", _Adapter(networks))
    return RequestsTransport(session=session)


def allowed_address(host: str, port: int, networks: Sequence[Network]) -> str:
    """The first address of the host, of those that a server may connect to. Raises AddressRefused."""
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for each in found:
        if _is_allowed(ipaddress.ip_address(each.partition("%")[0]), networks):
            return each
    raise AddressRefused(
        f"{host} has the address {found[0]}, which is not public; if it is a private endpoint of the storage account, "
        "the administrator can allow its network (dashboard.storageNetworks)"
    )


def _is_allowed(address: Address, networks: Sequence[Network]) -> bool:
    address = _destination(address)
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    return address != AZURE_HOST and (address.is_global or any(address in network for network in networks))


def _destination(address: Address) -> Address:
    """The address at which a packet arrives: some of IPv6 stand for one of IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    translated = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
    return address.ipv4_mapped or address.sixtofour or translated or address


class _Adapter(HTTPAdapter):
    """Opens its connections to allowed addresses."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        super().__init__(max_retries=Retry(total=False, redirect=False, raise_on_status=False))

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        networks = self._networks

        class Connection(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                name = self._dns_host
                self._dns_host = allowed_address(name, self.port, networks)
                try:
                    return super()._new_conn()
                finally:
                    self._dns_host = name  # by which the certificate is verified

        pool = type("Pool", (HTTPSConnectionPool,), {"ConnectionCls": Connection})
        self.poolmanager.pool_classes_by_scheme = {"https": pool}
