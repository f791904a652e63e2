"""`hvj dashboard` and a browser's requests to it."""

import contextlib
import html
import json
import queue
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

import requests

from cli.program import SECONDS, hvj_process
from horovodjob_cli.__main__ import INTERRUPTED
from horovodjob_dashboard.page_session import HEADER
from support.forked_python import forked_pid

TAGS = re.compile(r"<[^>]+>")
SECRET = re.compile(r'<meta name="page-secret" content="([^"]+)">')


class Browser:
    """A session with the cookie of a dashboard, and the secret that its pages have."""

    def __init__(self, address: str, pid: int = 0) -> None:
        self.address, self.pid = address, pid
        self.origin = address.partition("/?")[0]
        self.session = requests.Session()

    def open(self) -> requests.Response:
        """Opens the address that the dashboard printed."""
        return self.keep(self.session.get(self.address, timeout=SECONDS))

    def keep(self, first: requests.Response) -> requests.Response:
        """Keeps the secret of the first page of a session, as its script does."""
        if found := SECRET.search(first.text):
            self.session.headers[HEADER] = html.unescape(found[1])
        return first

    def join(self, page: Any) -> None:
        """Continues the session of a page in Chromium: an address is valid once."""
        for cookie in page.driver.get_cookies():
            self.session.cookies.set(cookie["name"], cookie["value"])
        self.session.headers[HEADER] = page.run("return localStorage.getItem('horovodjob-page')")

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(f"{self.origin}{path}", timeout=SECONDS, **options)

    def text(self, path: str) -> str:
        """The words of a page, without its tags."""
        response = self.get(path)
        assert response.status_code == 200, response.text
        return words(response)

    def post(self, path: str, data: dict[str, str], **headers: str) -> requests.Response:
        """Sends a form, as a page of the dashboard does if the headers say nothing else."""
        return self.session.post(
            f"{self.origin}{path}",
            data=data,
            headers={"Origin": self.origin} | headers,
            timeout=SECONDS,
            allow_redirects=False,
        )

    @contextlib.contextmanager
    def stream(self, path: str) -> Iterator["Stream"]:
        """A stream of the dashboard, as a page opens it."""
        with self.get(path, stream=True) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream"), response.text
            stream = Stream(response)
            yield stream
            with contextlib.suppress(RuntimeError):  # The stream has ended.
                response.raw.shutdown()  # The thread waits for the next message.
            stream.end()  # The thread closes the connection, which is not yet the next request's.


class Stream:
    """Server-sent events."""

    def __init__(self, response: requests.Response) -> None:
        self._messages: queue.Queue[str] = queue.Queue()
        self._has_ended = threading.Event()
        self._lines = response.iter_lines(chunk_size=1)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(requests.RequestException, AttributeError):  # the test has closed it
            for line in self._lines:
                if line.startswith(b"data: "):
                    self._messages.put(line.removeprefix(b"data: ").decode())
        self._has_ended.set()

    def end(self) -> None:
        """Returns when the dashboard has ended the stream."""
        assert self._has_ended.wait(SECONDS)

    def next(self) -> str:
        """The next message."""
        return self._messages.get(timeout=SECONDS)

    def log(self, until: str) -> str:
        """The text of a log up to this text."""
        text = ""
        while until not in text:
            message = json.loads(self.next())
            text += message.get("finished", "") + message.get("end", "")
        return text


def words(response: requests.Response) -> str:
    """The words of a page, without its tags."""
    return html.unescape(" ".join(TAGS.sub(" ", response.text).split()))


@contextlib.contextmanager
def dashboard(*arguments: str, is_open: bool = True) -> Iterator[Browser]:
    """`hvj dashboard` and a browser, which has opened it unless another one will; Ctrl-C ends it."""
    with hvj_process("dashboard", "--no-browser", *arguments) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address, process.stderr and process.stderr.read()
        browser = Browser(address, forked_pid(process.pid))
        if is_open:
            browser.open()
        yield browser
        process.send_signal(signal.SIGINT)
        assert process.wait() == INTERRUPTED
