"""A command in a pod, as `kubectl exec` runs it."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from horovodjob.api.constants import LABEL_ROLE
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import streams
from horovodjob.client.errors import ClientError

Object = dict[str, Any]
# Channels of the protocol v4.channel.k8s.io and its successor.
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CHUNK = 65536
# Load balancers close connections that are idle for some minutes.
HEARTBEAT_SECONDS = 60
Wait = Callable[[], None]
Check = Callable[[], None]


def run(pod: Object, command: Sequence[str], *, stdin: bool, tty: bool) -> int:
    """Run a command in the pod's container and return its exit code."""
    session = _session(pod, command, stdin=stdin, tty=tty)
    with contextlib.closing(session), _terminal(session) if tty and stdin else contextlib.nullcontext():
        if stdin:
            threading.Thread(target=_send_input, args=(session,), daemon=True).start()
        _copy_output(session)
    return _exit_code(session.read_channel(ERROR), pod)


def output(pod: Object, command: Sequence[str]) -> tuple[int, bytes]:
    """Exit code and standard output of a command in the pod's container."""
    from websocket import WebSocketException

    session = _session(pod, command, stdin=False, tty=False)
    written = bytearray()
    with contextlib.closing(session):
        while session.is_open():
            try:
                session.update(timeout=None)
            except (WebSocketException, OSError) as error:
                raise ClientError(f"the connection to pod {pod['metadata']['name']} was lost: {error}") from None
            written += session.read_channel(STDOUT)
    return _exit_code(session.read_channel(ERROR), pod), bytes(written)


def send(pod: Object, command: Sequence[str], data: Iterable[bytes]) -> tuple[int, bytes]:
    """Exit code and standard error of a command that reads the data, and knows its end, in the pod's container."""
    from websocket import WebSocketException

    session = _session(pod, command, stdin=True, tty=False)
    written = bytearray()
    with contextlib.closing(session):
        for part in data:
            try:
                session.update()
                if not session.is_open():
                    break
                session.write_channel(STDIN, part)
            except (WebSocketException, OSError):
                break  # the command has ended: what it reported may have arrived
        while session.is_open():
            _update(session)
            written += session.read_channel(STDERR)
    return _exit_code(session.read_channel(ERROR), pod), bytes(written)


@contextlib.contextmanager
def server(
    pod: Object, command: Sequence[str], ready: re.Pattern[str], check: Check, *, name: str
) -> Iterator[tuple[re.Match[str], Wait]]:
    """Runs a server in the pod. Gives the match of its output when it is ready, and a function that waits for its end.

    The command must end with its standard input, which is closed at the end. `check` is called each second until the
    server is ready, and can raise. Raises ClientError if the server ends.
    """
    session = _session(pod, command, stdin=True, tty=False)
    written = ""

    def read(timeout: float | None) -> None:
        nonlocal written
        if not session.is_open():
            last = written.strip().rpartition("\n")[2] or "it wrote no error"
            raise ClientError(f"{name} in pod {pod['metadata']['name']} has ended: {last}")
        _update(session, timeout)
        written += (session.read_channel(STDOUT) + session.read_channel(STDERR)).decode(errors="replace")

    def wait() -> None:
        nonlocal written
        while True:
            written = written[-CHUNK:]
            read(HEARTBEAT_SECONDS)
            if session.is_open():
                session.write_channel(STDIN, b"\n")

    with contextlib.closing(session):
        while not (found := ready.search(written)):
            read(1)
            check()
        yield found, wait


def _update(session: Any, timeout: float | None = None) -> None:
    """Wait for output. Raises ClientError for a lost connection."""
    from websocket import WebSocketException

    try:
        session.update(timeout=timeout)
    except (WebSocketException, OSError) as error:
        raise ClientError(f"the connection to the pod was lost: {error}; the command may still be running") from None


def _session(pod: Object, command: Sequence[str], *, stdin: bool, tty: bool) -> Any:
    from kubernetes.client import ApiClient, ApiException, CoreV1Api

    metadata = pod["metadata"]
    # `stream` temporarily changes the client, and another thread may use the shared one for a watch.
    core = CoreV1Api(ApiClient(kube.client().configuration))
    try:
        session = streams().stream(
            core.connect_get_namespaced_pod_exec,
            metadata["name"],
            metadata["namespace"],
            container=metadata["labels"][LABEL_ROLE],
            command=list(command),
            stdin=stdin,
            stdout=True,
            stderr=not tty,
            tty=tty,
            binary=True,
            _preload_content=False,
        )
    except ApiException as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # the client makes an ApiException of it
            raise KeyboardInterrupt from None
        raise
    # Otherwise the client keeps a second copy of all output in memory.
    session._all = SimpleNamespace(write=len)
    return session


def _copy_output(session: Any) -> None:
    outputs = {STDOUT: sys.stdout.buffer, STDERR: sys.stderr.buffer}
    while session.is_open():
        _update(session)
        for channel, output in outputs.items():
            if data := session.read_channel(channel):
                output.write(data)
                output.flush()


def _send_input(session: Any) -> None:
    # The session ends with the command, and this thread with the program.
    with contextlib.suppress(Exception):
        while data := os.read(sys.stdin.fileno(), CHUNK):
            session.write_channel(STDIN, data)
        session.close_channel(STDIN)


@contextlib.contextmanager
def _terminal(session: Any) -> Iterator[None]:
    """Raw terminal mode: passes each key and the size of the terminal to the command; whole lines on Windows."""
    try:
        import termios
        import tty
    except ImportError:
        yield
        return

    def resize(*_: object) -> None:
        columns, lines = shutil.get_terminal_size()
        session.write_channel(RESIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    signal.signal(signal.SIGWINCH, resize)
    try:
        resize()
        yield
    finally:
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _exit_code(status: bytes, pod: Object) -> int:
    """The exit code that the kubelet reports when the command has ended. Raises ClientError if it did not run."""
    if not status:
        raise ClientError(f"the connection to pod {pod['metadata']['name']} ended before the command did")
    outcome = json.loads(status)
    if outcome.get("status") == "Success":
        return 0
    for cause in outcome.get("details", {}).get("causes", []):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ClientError(f"the command did not run in pod {pod['metadata']['name']}: {outcome.get('message')}")
