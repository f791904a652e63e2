"""Questions to the watch processes of other ranks, over connections between their pods."""

import hmac
import json
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TIMEOUT_SECONDS = 5.0
ANSWER_SECONDS = 20.0  # the stacks of a rank on a busy node come line by line
MAX_BYTES = 1 << 17
AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """The watch process of a rank."""

    rank: int
    host: str
    addresses: tuple[str, ...]
    port: int


def listen() -> socket.socket:
    """A socket for the questions of rank 0, in each family of addresses that the host has."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=16, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=16)


def own_addresses() -> tuple[str, ...]:
    """The addresses by which other pods can reach this one: that of the default route first."""
    found = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))  # sends nothing
            found.append(str(probe.getsockname()[0]))
    return tuple(found) or ("127.0.0.1",)


def ask(peers: Sequence[Peer], question: str, token: str) -> dict[int, dict[str, Any]]:
    """The answers by rank; those that do not answer in time are missing."""
    if not peers:
        return {}
    with ThreadPoolExecutor(min(AT_A_TIME, len(peers))) as pool:
        answers = pool.map(lambda peer: _ask(peer, question, token), peers)
        return {peer.rank: answer for peer, answer in zip(peers, answers, strict=True) if answer is not None}


def _ask(peer: Peer, question: str, token: str) -> dict[str, Any] | None:
    for address in peer.addresses:
        with suppress(OSError, ValueError):
            answer = json.loads(_answer(address, peer.port, question, token))
            return answer if isinstance(answer, dict) else None
    return None


def _answer(address: str, port: int, question: str, token: str) -> bytes:
    with socket.create_connection((address, port), TIMEOUT_SECONDS) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(json.dumps({"token": token, "question": question}).encode() + b"\n")
        return _line(connection)


def deputy_rank(ranks: Sequence[Mapping[str, Any]]) -> int | None:
    """The first rank on another host than rank 0: its watch acts when that of rank 0 cannot."""
    hosts = {each["rank"]: each["host"] for each in ranks}
    return min((rank for rank, host in hosts.items() if host != hosts[0]), default=None)


def is_alive(peer: Peer, token: str) -> bool:
    """Whether a watch process answers, or at least its host, which refuses connections when the process has ended."""
    for address in peer.addresses:
        try:
            if _answer(address, peer.port, "usage", token):
                return True
        except ConnectionRefusedError:
            return True
        except OSError:
            continue
    return False


def question(connection: socket.socket, token: str) -> str:
    """The question of a peer that knows the token; empty for others."""
    connection.settimeout(TIMEOUT_SECONDS)
    with suppress(OSError, ValueError):
        message = json.loads(_line(connection))
        if isinstance(message, dict) and hmac.compare_digest(str(message.get("token")), token):
            return str(message.get("question"))
    return ""


def _line(connection: socket.socket) -> bytes:
    content = b""
    while not content.endswith(b"\n") and len(content) < MAX_BYTES:
        chunk = connection.recv(65536)
        if not chunk:
            break
        content += chunk
    return content
