"""A client of the fork server: `python -I -S fork_client.py SOCKET [-m MODULE | -c CODE | SCRIPT] [ARGUMENT ...]`.

It imports little, because many tests start one for each command.
"""

import marshal
import os
import signal
import socket
import sys
from collections.abc import Sequence

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
STREAMS = (0, 1, 2)
NUMBER_BYTES = 4


def send_request(
    connection: socket.socket, arguments: list[str], environment: dict[str, str], streams: Sequence[int]
) -> int:
    """The process ID of the program that the server forks; its wait status follows when it has ended."""
    body = marshal.dumps([arguments, environment, os.getcwd()])
    socket.send_fds(connection, [len(body).to_bytes(NUMBER_BYTES, "big")], streams)
    connection.sendall(body)
    return receive_number(connection)


def receive_number(connection: socket.socket, flags: int = socket.MSG_WAITALL) -> int:
    """The next number from the server."""
    number = connection.recv(NUMBER_BYTES, flags)
    if not number:
        raise EOFError("the fork server has ended")
    return int.from_bytes(number, "big")


def run(path: str, arguments: list[str]) -> None:
    """Exit with the exit code, or by the signal, of the process that the server forks for this client."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: connection.sendall(bytes([received])))
    send_request(connection, arguments, dict(os.environ), STREAMS)
    code = os.waitstatus_to_exitcode(receive_number(connection))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
