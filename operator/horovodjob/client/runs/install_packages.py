"""Installs the packages of a requirements file for all nodes of a job once. Runs in the containers, from its text.

One worker runs pip. The others, and later runs with the same file and image, take its archive: from the volume of the
job if it has one, else from worker 0 over HTTP. An archive is accepted only with the MAC of the run's key, which no
other job knows, because any job that mounts the volume can write there. For images with Python 3.8 and newer.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import hmac
import http.server
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import metadata

LOCK_SECONDS, BEAT_SECONDS, POLL_SECONDS = 60, 5, 1
# Without a sign of worker 0 for so long, such as in an elastic job that has lost it, a worker installs by itself.
SILENT_SECONDS = 120
MAC_LENGTH = 64
LOCAL = re.compile(r"^\s*(-e|--editable|\.|/|file:|git\+|\S+\s*@\s*(file:|git\+))", re.MULTILINE)
PIP = ("install", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location")


def main(requirements: str, target: str, store: str, token: str) -> None:
    """Make the directory `target`; `store` is a directory of the volume, or empty."""
    os.umask(0o002)  # other users of the volume are in the group of its files
    installed: dict[str, str] = {}
    for each in metadata.distributions():
        installed.setdefault(re.sub("[-_.]+", "-", each.metadata["Name"] or "").lower(), each.version)
    pinned = sorted(f"{name}=={version}" for name, version in installed.items() if name)
    text = "\n".join([_with_included(requirements), *pinned, sys.version, os.uname().machine])
    # What pip takes from elsewhere than an index can change under the same name.
    text += os.environ.get("HOROVODJOB_UID", "") if LOCAL.search(_with_included(requirements)) or not store else ""
    key = hashlib.sha256((token + text).encode()).hexdigest()
    with tempfile.TemporaryDirectory() as directory:
        archive = os.path.join(directory, "packages.tar")

        def build() -> None:
            _build(requirements, pinned, directory, archive, token)

        if store:
            _through_volume(os.path.join(store, key), archive, token, build)
        elif os.environ.get("HOROVODJOB_NAME", "")[:1].isalpha():  # else it has no Service, and worker 0 no name
            _through_worker_0(key, archive, token, build)
        else:
            build()
        with open(archive, "rb") as file:
            file.seek(MAC_LENGTH)
            with tarfile.open(fileobj=file) as tar:
                # Its MAC is valid: it is from this run or an earlier one of the same user.
                tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                tar.extractall(target)


def _with_included(path: str, depth: int = 0) -> str:
    """The text of a requirements file and of those that it includes."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    names = re.findall(r"^\s*(?:-r|--requirement|-c|--constraint)[\s=]+(\S+)", text, re.MULTILINE) if depth < 9 else []
    inner = (os.path.join(os.path.dirname(path), name) for name in names)
    return "\n".join([text, *(_with_included(each, depth + 1) for each in inner if os.path.isfile(each))])


def _build(requirements: str, pinned: list[str], directory: str, archive: str, token: str) -> None:
    """Run pip, and pack what it installed behind its MAC. Ends the program with one sentence if pip fails."""
    constraints, prefix = os.path.join(directory, "constraints.txt"), os.path.join(directory, "prefix")
    with open(constraints, "w", encoding="utf-8") as file:
        file.write("\n".join(pinned))
    words = [sys.executable, "-m", "pip", *PIP, "--prefix", prefix, "-c", constraints, "-r", requirements]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    if done.returncode:
        sys.exit(_sentence(os.path.basename(requirements), done.stdout, pinned))
    with open(archive, "wb") as file:
        file.write(b"0" * MAC_LENGTH)
        with tarfile.open(fileobj=file, mode="w") as tar:
            for each in glob.glob(os.path.join(prefix, "**", "*-packages"), recursive=True):
                tar.add(each, ".")
            if os.path.isdir(os.path.join(prefix, "bin")):
                tar.add(os.path.join(prefix, "bin"), "bin")
    mac = _mac(archive, token)
    with open(archive, "r+b") as file:
        file.write(mac)


def _sentence(name: str, output: str, pinned: list[str]) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        line[6:].strip(" .") for line in lines if line.startswith("ERROR:") and "ResolutionImpossible" not in line
    ]
    if any("No module named pip" in line for line in lines):
        return f"{name} cannot be installed: the image has no pip; use an image with pip, as the trainer's"
    problem = "; ".join(errors[:3] or lines[-1:] or ["pip gave no reason"])
    if "ResolutionImpossible" in output or "constraint" in output:
        words = set(re.split(r"[^a-z0-9-]+", problem.lower().replace("_", "-")))
        own = [each for each in pinned if each.partition("==")[0] in words]
        problem += f"; the image has {', '.join(own) or 'others'}, which it keeps: change {name}, or use another image"
    return f"{name} cannot be installed: {problem}"


def _mac(archive: str, token: str) -> bytes:
    found = hmac.new(token.encode(), digestmod="sha256")
    with open(archive, "rb") as file:
        file.seek(MAC_LENGTH)
        for part in iter(lambda: file.read(1 << 20), b""):
            found.update(part)
    return found.hexdigest().encode()


def _is_valid(archive: str, token: str) -> bool:
    try:
        with open(archive, "rb") as file:
            return hmac.compare_digest(file.read(MAC_LENGTH), _mac(archive, token))
    except OSError:
        return False


def _through_volume(path: str, archive: str, token: str, build: Callable[[], None]) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _delete_old(os.path.dirname(path))
        with tempfile.TemporaryFile(dir=os.path.dirname(path)):
            pass
    except OSError as error:
        sys.stderr.write(f"packages are not kept on the volume, and each node installs them: {error}\n")
        build()
        return
    lock, seen, since = path + ".lock", None, time.monotonic()
    while True:
        if os.path.exists(path + ".tar"):
            shutil.copyfile(path + ".tar", archive)
            if _is_valid(archive, token):
                return
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o660))
            break
        except FileExistsError:
            time.sleep(POLL_SECONDS)
        # The clocks of nodes differ: a lock is old if it has not changed for so long.
        state = _changed(lock)
        seen, since = (seen, since) if state == seen else (state, time.monotonic())
        if time.monotonic() - since > LOCK_SECONDS:
            _delete(lock)
    ended = threading.Event()
    threading.Thread(target=_beat, args=(lock, ended), daemon=True).start()
    try:
        build()
        _keep(archive, path)
    finally:
        ended.set()
        _delete(lock)


def _keep(archive: str, path: str) -> None:
    temporary = f"{path}.hvj-{os.urandom(8).hex()}"
    try:
        shutil.copyfile(archive, temporary)
        os.replace(temporary, path + ".tar")
    except OSError as error:  # such as a full volume
        _delete(temporary)
        sys.stderr.write(f"the packages are not kept on the volume: {error}\n")


def _changed(lock: str) -> int | None:
    try:
        return os.stat(lock).st_mtime_ns
    except OSError:
        return None


def _beat(lock: str, ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        try:
            os.utime(lock)
        except OSError:
            return


def _delete(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _delete_old(directory: str) -> None:
    """Delete what installations that were killed have left."""
    for each in glob.glob(os.path.join(directory, "*.hvj-*")):
        if time.time() - (_changed(each) or 0) / 1e9 > 86400:
            _delete(each)


def _through_worker_0(key: str, archive: str, token: str, build: Callable[[], None]) -> None:
    job, uid = os.environ["HOROVODJOB_NAME"], os.environ["HOROVODJOB_UID"]
    port = 20000 + int(hashlib.sha256(uid.encode()).hexdigest()[:4], 16) % 10000
    if os.environ["HOROVODJOB_POD"] != f"{job}-worker-0":
        url = f"http://{job}-worker-0.{job}:{port}/{key}"
        if not _fetched(url, archive, token):
            build()
        return
    kept = tempfile.mkdtemp()
    server = _serve(port, key, kept)
    build()
    if server:
        shutil.copyfile(archive, os.path.join(kept, "new"))
        os.rename(os.path.join(kept, "new"), os.path.join(kept, key))


def _serve(port: int, key: str, directory: str) -> bool:
    """A process that gives the archive to other workers until the container ends, and 503 until there is one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = os.path.join(directory, key)
            if self.path != "/" + key or not os.path.exists(path):
                self.send_error(404 if self.path != "/" + key else 503)
                return
            with open(path, "rb") as file:
                self.send_response(200)
                self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
                self.end_headers()
                shutil.copyfileobj(file, self.wfile)

        def log_message(self, *_: object) -> None:
            pass

    try:
        server = http.server.ThreadingHTTPServer(("", port), Handler)
    except OSError:  # the port of the node belongs to another: the workers install by themselves
        return False
    if os.fork():
        server.socket.close()
        return True
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    try:
        server.serve_forever()
    finally:
        os._exit(0)


def _fetched(url: str, archive: str, token: str) -> bool:
    """Whether worker 0 gave the archive. While it answers that it installs, it is waited for."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    since = time.monotonic()
    while time.monotonic() - since < SILENT_SECONDS:
        try:
            with opener.open(url, timeout=30) as response, open(archive, "wb") as file:
                shutil.copyfileobj(response, file)
            if _is_valid(archive, token):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 503:
                since = time.monotonic()
        except OSError:
            response = None
        time.sleep(POLL_SECONDS)
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
