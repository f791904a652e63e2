"""A client of the fork server: `python -I -S fork_client.py SOCKET [-m MODULE | -c CODE | SCRIPT] [ARGUMENT ...]`.

It imports little, because many tests start one for each command.
"""

import marshal
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
STREAMS = (0, 1, 2)
NUMBER_BYTES = 4


def run(path: str, arguments: list[str]) -> None:
    """Exit with the exit code, or by the signal, of the process that the server forks for this client."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: connection.sendall(bytes([received])))
    body = marshal.dumps([arguments, dict(os.environ), os.getcwd()])
    socket.send_fds(connection, [len(body).to_bytes(NUMBER_BYTES, "big")], STREAMS)
    connection.sendall(body)
    status = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    if not status:
        sys.exit("the fork server has ended")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
