"""A kubelet's server, which the API server asks for logs and commands."""

import asyncio
import json
import ssl
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from localcluster.control_plane.pki import Certificate, make_certificate
from localcluster.control_plane.standalone import LOOPBACK, ControlPlane, free_ports
from support.api_client import Api

NODE = "tvm-1"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PORT_DATA, PORT_ERROR = 0, 1
CHUNK = 65536
# What a terminal sends for Ctrl-D.
END_OF_TRANSMISSION = b"\x04"
# A line at which the connection breaks, the first time.
BREAK = "the connection breaks here"


class Log:
    """The log of a container; lines can be added while a client follows it."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, bytes]] = []
        self._ended = False
        self.broken = threading.Event()
        # After so many bytes a connection ends, also within a line; each counts once.
        self.cuts: list[int] = []

    def write(self, *lines: str) -> None:
        """More lines, each a nanosecond later."""
        start = len(self._pieces)
        for number, line in enumerate(lines, start):
            self.write_at(f"2026-11-22T12:00:00.{number:09}Z", f"{line}\n".encode())

    def write_at(self, stamp: str, piece: bytes) -> None:
        """A line with this time, or a part of one without its newline."""
        self._pieces.append((stamp, piece))

    def end(self) -> None:
        """The container has ended."""
        self._ended = True

    async def read(self, start: int, follow: bool) -> list[tuple[str, bytes]] | None:
        """Pieces from this index on; waits for more if followed. None at the end."""
        while follow and not self._ended and len(self._pieces) <= start:
            await asyncio.sleep(0.02)
        return self._pieces[start:] or None


class Kubelet:
    """A node with an HTTPS server for its containers."""

    def __init__(self, control_plane: ControlPlane, api: Api, node: str = NODE) -> None:
        self._node = node
        self.logs: dict[str, Log] = {}
        self.commands: list[list[str]] = []
        self.pods: list[str] = []
        self.sizes: list[dict[str, int]] = []
        self.answer: Callable[[list[str], bytes], tuple[bytes, bytes, int]] = lambda command, stdin: (b"", b"", 0)
        # With an environment, commands run on this machine and `answer` is not asked.
        self.environment: dict[str, str] | None = None
        # Directories of this machine that those commands have instead of volumes at these paths.
        self.mounts: dict[str, Path] = {}
        self._control_plane, self._api = control_plane, api
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def log(self, namespace: str, pod: str) -> Log:
        """The log of a pod's container."""
        return self.logs.setdefault(f"{namespace}/{pod}", Log())

    def __enter__(self) -> Self:
        (port,) = free_ports(1)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(port), self._loop).result()
        self._api.create("/api/v1/nodes", {"metadata": {"name": self._node}})
        endpoint = {"kubeletEndpoint": {"Port": port}}
        address = {"type": "InternalIP", "address": LOOPBACK}
        status = {
            "addresses": [address],
            "daemonEndpoints": endpoint,
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        }
        self._api.patch(f"/api/v1/nodes/{self._node}/status", {"status": status})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._api.delete(f"/api/v1/nodes/{self._node}")  # a command of another test may read all nodes
        for log in self.logs.values():
            log.end()
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, port: int) -> None:
        pki = self._control_plane.directory / "pki"
        make_certificate(pki, Certificate("serving", f"/CN={self._node}", server=True, addresses=(f"IP:{LOOPBACK}",)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pki / "serving.crt", pki / "serving.key")
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._print_log)
        application.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        application.router.add_post("/exec/{namespace}/{pod}/{container}", self._exec)
        application.router.add_get("/portForward/{namespace}/{pod}", self._forward_port)
        # A log that nobody reads any more is not followed.
        self._runner = web.AppRunner(application, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, port, ssl_context=context).start()

    async def _print_log(self, request: web.Request) -> web.StreamResponse:
        log = self.log(request.match_info["namespace"], request.match_info["pod"])
        follow, since = request.query.get("follow") == "true", request.query.get("sinceTime", "")
        response = web.StreamResponse()
        read, sent, is_new_line = 0, 0, True
        cut = log.cuts.pop(0) if log.cuts else 0
        while (pieces := await log.read(read, follow)) is not None:
            await response.prepare(request)  # a kubelet's response begins with the first line
            for stamp, piece in pieces:
                read += 1
                if piece == f"{BREAK}\n".encode() and not log.broken.is_set():
                    log.broken.set()
                    assert request.transport
                    request.transport.abort()
                    return response
                if stamp < since:
                    continue
                has_stamp = is_new_line and request.query.get("timestamps") == "true"
                data, is_new_line = (f"{stamp} ".encode() if has_stamp else b"") + piece, piece.endswith(b"\n")
                if cut and sent + len(data) >= cut:
                    await response.write(data[: cut - sent])
                    return response
                await response.write(data)
                sent += len(data)
            if not follow:
                break
        await response.prepare(request)
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        command = request.query.getall("command")
        self.commands.append(command)
        self.pods.append(request.match_info["pod"])
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        if self.environment is not None:
            await self._run(socket, command)
            return socket
        stdin = b""
        if request.query.get("input") in ("1", "true"):
            async for message in socket:
                channel, data = message.data[0], message.data[1:]
                if channel == RESIZE:
                    self.sizes.append(json.loads(data))
                elif channel == STDIN:
                    stdin += data
                if channel == CLOSE or stdin.endswith(END_OF_TRANSMISSION):
                    break
        stdout, stderr, code = self.answer(command, stdin)
        await socket.send_bytes(bytes([STDOUT]) + stdout)
        await socket.send_bytes(bytes([STDERR]) + stderr)
        await socket.send_bytes(bytes([ERROR]) + json.dumps(exit_status(code)).encode())
        await socket.close()
        return socket

    def _on_this_machine(self, word: str) -> str:
        """A path of the container below one of its mounts, where it is on this machine; other words as they are."""
        for mount, path in self.mounts.items():
            if f"{word}/".startswith(f"{mount}/"):
                return f"{path}{word[len(mount) :]}"
        return word

    async def _run(self, socket: web.WebSocketResponse, command: list[str]) -> None:
        """Runs the command on this machine; its standard input ends with the connection."""
        process = await asyncio.create_subprocess_exec(
            *map(self._on_this_machine, command),
            env=self.environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )

        async def copy(channel: int, stream: asyncio.StreamReader | None) -> None:
            assert stream
            while data := await stream.read(CHUNK):
                await socket.send_bytes(bytes([channel]) + data)

        async def end() -> None:
            await asyncio.gather(copy(STDOUT, process.stdout), copy(STDERR, process.stderr))
            await socket.send_bytes(bytes([ERROR]) + json.dumps(exit_status(await process.wait())).encode())
            await socket.close()

        output = asyncio.create_task(end())
        assert process.stdin
        async for message in socket:
            if message.data[0] == STDIN:
                process.stdin.write(message.data[1:])
        process.stdin.close()
        await asyncio.gather(output, return_exceptions=True)

    async def _forward_port(self, request: web.Request) -> web.StreamResponse:
        """Forwards to a port of this machine, as if it were the pod's."""
        port = int(request.query["port"])
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (PORT_DATA, PORT_ERROR):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError as error:
            await socket.send_bytes(bytes([PORT_ERROR]) + str(error).encode())
            return socket

        async def copy() -> None:
            while data := await reader.read(CHUNK):
                await socket.send_bytes(bytes([PORT_DATA]) + data)
            await socket.close()

        output = asyncio.create_task(copy())
        async for message in socket:
            writer.write(message.data[1:])
        writer.close()
        await asyncio.gather(output, return_exceptions=True)
        return socket


def exit_status(code: int) -> dict[str, object]:
    """The status that the kubelet sends at the end of a command."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    words = {"reason": "NonZeroExitCode", "message": "command terminated with non-zero exit code"}
    return {"metadata": {}, "status": "Failure", **words, "details": {"causes": causes}}
