"""What an open page does when jobs, logs, rights and the operator change."""

import statistics
import time
from pathlib import Path

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.dashboard.chromium import Chromium
from cli.kubelet import NODE, Kubelet
from support.api_client import wait_for

KEPT_CHARACTERS = 2_000_000
LOG_BYTES, LINE_BYTES = 30_000_000, 50_000
MOST_MEGABYTES = 15
# Notes the time at which the page shows a text, in milliseconds since 1970.
SEE = """
const [text] = arguments;
window.seen = new Promise((resolve) => {
  const look = () => document.body.innerText.includes(text) && resolve(Date.now());
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
});
"""
SEEN = "window.seen.then(arguments[0])"


def test_changes_appear_within_a_second_and_leave_focus_and_marks_until_the_connection_is_lost(
    started_chromium: Chromium, cluster: ClusterState
) -> None:
    cluster.create("first")
    with dashboard("-w", cluster.namespace, is_open=False) as opened:
        page = started_chromium.open(opened.address).shows("1 job", "Queued")
        page.open(f"{opened.origin}/?sort=name").shows("Queued")
        seconds = []
        for percent in range(1, 6):
            page.run(SEE, f"{percent}1 %")
            written = time.time()
            cluster.run("first", training={"progress": percent / 10 + 0.01, "percent": f"{percent}1%"})
            seconds.append(page.driver.execute_async_script(SEEN) / 1000 - written)
        assert statistics.median(seconds) < 1, seconds

        page.tab_to("Compare first")
        page.press(" ")
        cluster.create("another")
        page.shows("2 jobs")
        assert page.run("return document.activeElement.value") == f"{cluster.namespace}/first"
        marked = "return [...document.querySelectorAll('input:checked')].map((input) => input.value)"
        assert page.run(marked) == [f"{cluster.namespace}/first"]
        cluster.api.delete(f"{cluster.jobs}/first")
        page.shows("1 job")

        page.open(f"{opened.origin}/jobs/{cluster.namespace}/another").shows("Queued")
        cluster.api.delete(f"{cluster.jobs}/another")
        page.shows("job another does not exist", "it may have been deleted", "Commands")
        assert "lost" not in page.text
    page.shows("The connection is lost; trying again.")


def test_a_log_of_30_mb_is_streamed_and_not_held_and_a_page_keeps_its_end(
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
        wait_for("the end of the log", lambda: page.run("return lines.textContent.endsWith('the last line\\n')"))
        assert KEPT_CHARACTERS - LINE_BYTES < page.run("return lines.textContent.length") <= KEPT_CHARACTERS
        assert memory(opened.pid) - before < MOST_MEGABYTES


def memory(pid: int) -> float:
    """The most memory that a process has had, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))
