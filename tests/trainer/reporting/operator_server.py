"""A server that receives progress reports as the operator does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIMEOUT_SECONDS = 120


class OperatorServer:
    """Receives reports as the operator does; `answers` are the status codes of its first responses, with `sentence`."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.sentence = ""
        self.reports: list[tuple[str, Any]] = []
        self.connections: set[Any] = set()
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.changed:
                    outer.connections.add(self.client_address)
                    code = outer.answers.pop(0) if outer.answers else 204
                    if code == 204:
                        outer.reports.append((self.headers["Authorization"], body))
                    outer.changed.notify_all()
                self.send_response(code)
                answer = b"" if code == 204 else outer.sentence.encode()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/progress"

    def has_remaining(self, answers: int) -> bool:
        return len(self.answers) == answers

    def wait_for_reports(self, count: int) -> list[tuple[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= count, TIMEOUT_SECONDS)
            return list(self.reports)
