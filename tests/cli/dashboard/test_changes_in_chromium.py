"""What an open page does when jobs, logs, rights and the operator change."""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.dashboard.chromium import Chromium
from cli.kubelet import NODE, Kubelet
from cli.service_account import account_kubeconfig
from support.api_client import Api, wait_for

OPERATOR = "horovodjob-operator"
KEPT_CHARACTERS = 2_000_000
LOG_BYTES, LINE_BYTES = 100_000_000, 50_000
MOST_MEGABYTES = 40
# Notes the time at which the page shows a text, in milliseconds since 1970.
SEE = """
const [text] = arguments;
window.seen = new Promise((resolve) => {
  const look = () => document.body.innerText.includes(text) && resolve(Date.now());
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
});
"""
SEEN = "window.seen.then(arguments[0])"


def test_a_change_appears_within_a_second(page: Chromium, address: str, cluster: ClusterState) -> None:
    cluster.create()
    page.shows("Queued", "train").open(f"{address.partition('/?')[0]}/?sort=name").shows("Queued")
    seconds = []
    for percent in range(1, 6):
        page.run(SEE, f"{percent}1 %")
        written = time.time()
        cluster.run(training={"progress": percent / 10 + 0.01, "percent": f"{percent}1%"})
        seconds.append(page.driver.execute_async_script(SEEN) / 1000 - written)
    assert statistics.median(seconds) < 1, seconds


def test_a_change_leaves_focus_marks_and_scroll_where_they_are(page: Chromium, cluster: ClusterState) -> None:
    for name in ("first", "second"):
        cluster.create(name)
    page.shows("2 jobs")
    page.tab_to("Compare first")
    page.press(" ")
    cluster.create("another")
    cluster.run("first")
    page.shows("3 jobs", "Running")
    assert page.run("return document.activeElement.value") == f"{cluster.namespace}/first"
    marked = "return [...document.querySelectorAll('input:checked')].map((input) => input.value)"
    assert page.run(marked) == [f"{cluster.namespace}/first"]
    cluster.api.delete(f"{cluster.jobs}/another")
    page.shows("2 jobs")
    assert page.run("return document.activeElement.value") == f"{cluster.namespace}/first"


def test_a_job_that_is_deleted_while_it_is_looked_at(page: Chromium, address: str, cluster: ClusterState) -> None:
    cluster.create()
    page.shows("1 job").open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train").shows("Queued")
    cluster.api.delete(f"{cluster.jobs}/train")
    page.shows("job train does not exist", "it may have been deleted", "Commands")


def test_a_log_of_100_mb_is_streamed_and_not_held(
    started_chromium: Chromium, cluster: ClusterState, kubelet: Kubelet
) -> None:
    cluster.pod(cluster.create(), "launcher", node=NODE)
    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("the first line")
    with dashboard("-w", cluster.namespace, is_open=False) as opened:
        page = started_chromium.open(opened.address).shows("1 job")
        opened.join(page)
        page.open(f"{opened.origin}/jobs/{cluster.namespace}/train").shows("the first line")
        before = memory(opened.pid)
        log.write(*["x" * LINE_BYTES] * (LOG_BYTES // LINE_BYTES), "the last line")
        received = 0
        with opened.get(f"/jobs/{cluster.namespace}/train/log/train-launcher.txt", stream=True) as download:
            for chunk in download.iter_content(LINE_BYTES):
                received += len(chunk)
        assert received > LOG_BYTES
        assert memory(opened.pid) - before < MOST_MEGABYTES


def test_a_page_keeps_the_end_of_a_long_log(
    page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet
) -> None:
    cluster.pod(cluster.create(), "launcher", node=NODE)
    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("the first line", *["x" * LINE_BYTES] * (3 * KEPT_CHARACTERS // LINE_BYTES), "the last line")
    page.shows("1 job").open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train")
    wait_for("the end of the log", lambda: page.run("return lines.textContent.endsWith('the last line\\n')"))
    assert KEPT_CHARACTERS - LINE_BYTES < page.run("return lines.textContent.length") <= KEPT_CHARACTERS


def test_a_page_of_another_origin_cannot_press_a_button(page: Chromium, address: str, cluster: ClusterState) -> None:
    uid = cluster.create()["metadata"]["uid"]
    page.shows("1 job")
    target = f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train/terminate"
    form = f'<form method=post action="{target}"><input name=uid value="{uid}"><button>Win</button></form>'
    for policy in ("unsafe-url", "no-referrer"):
        # Cookies do not know ports: the browser sends that of the dashboard with this page's form.
        with site(f'<meta name=referrer content="{policy}">{form}') as origin:
            page.open(origin).run("document.querySelector('button').click()")
            page.shows("Requests of other pages are refused.")
    assert not cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"].get("terminate")


def test_a_viewer_without_rights_reads_what_the_api_server_says(
    started_chromium: Chromium,
    api: Api,
    cluster: ClusterState,
    viewer: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cluster.pod(cluster.create(), "launcher")
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, viewer)))
    with dashboard(is_open=False) as opened:
        page = started_chromium.open(opened.address).shows("train")
        page.open(f"{opened.origin}/cluster").shows("nodes is forbidden", "cannot list resource")
        page.open(f"{opened.origin}/jobs/{cluster.namespace}/train").shows("pods is forbidden", "events")
        page.run("document.querySelector('button[formaction$=terminate]').click()")
        page.driver.switch_to.alert.accept()
        page.shows("This page cannot be shown", "cannot patch resource")


def test_an_operator_that_is_away_is_reported(
    absent_operator: str, page: Chromium, address: str, cluster: ClusterState
) -> None:
    cluster.create()
    origin = address.partition("/?")[0]
    for path in ("/", f"/jobs/{cluster.namespace}/train", "/cluster"):
        page.open(origin + path).shows("Nothing acts on jobs now", absent_operator)
    assert page.violations() == []


def test_a_page_says_that_its_connection_is_lost(started_chromium: Chromium, cluster: ClusterState) -> None:
    with dashboard("-w", cluster.namespace, is_open=False) as opened:
        page = started_chromium.open(opened.address).shows("There is no job")
        assert "lost" not in page.text
    page.shows("The connection is lost; trying again.")


@pytest.fixture
def absent_operator(cluster: ClusterState) -> Iterator[str]:
    """An installation of the operator that is scaled to zero, and the sentence about it."""
    labels = {"app.kubernetes.io/name": OPERATOR}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "operator:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    deployments = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"
    cluster.api.create(deployments, {"metadata": {"name": OPERATOR, "labels": labels}, "spec": spec})
    yield "the operator is scaled to zero"
    cluster.api.delete(f"{deployments}/{OPERATOR}")


def memory(pid: int) -> float:
    """The most memory that a process has had, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


@contextmanager
def site(page: str) -> Iterator[str]:
    """The address of a server with one page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Writes nothing to the output of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
