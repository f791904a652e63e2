"""The output of a program in the page of a job: as a terminal shows it, and never as HTML."""

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.chromium import Chromium
from cli.kubelet import NODE, Kubelet, Log
from support.api_client import wait_for

TIME = "2026-11-22T12:00:00Z"
LINES = "return document.getElementById('lines').textContent"
GREEN = "return [...document.querySelectorAll('#lines .fg-2')].map((each) => each.textContent)"
HOSTILE = "<img src=x onerror='window.isHacked = 1'>\x1b[31m<script>window.isHacked = 1</script>\x1b]52;c;YQ==\x07"


@pytest.fixture
def log(page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet) -> Log:
    """The log of the launcher, which the browser shows."""
    cluster.pod(cluster.create(), "launcher", node=NODE)
    cluster.run()
    written = kubelet.log(cluster.namespace, "train-launcher")
    written.write("begin")
    page.shows("1 job").open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/train").shows("begin")
    return written


def is_shown(page: Chromium, text: str) -> None:
    wait_for("the log", lambda: page.run(LINES) == text)


def test_the_output_is_shown_as_a_terminal_shows_it_and_never_becomes_a_part_of_the_page(
    page: Chromium, log: Log
) -> None:
    bar = "{}\r\x1b[1m{}/2\x1b[0m \x1b[32m{}\x1b[0m - loss: {}"
    log.write_at(TIME, bar.format("", 1, "━", 0.51).encode())
    is_shown(page, "begin\n1/2 ━ - loss: 0.51")
    for piece in bar.format(20 * "\b", 2, "━━", 0.25).encode().partition("━━".encode()[:4]):
        log.write_at(TIME, piece)
    is_shown(page, "begin\n2/2 ━━ - loss: 0.25")
    log.write_at(TIME, b"\n")
    log.write("end")
    is_shown(page, "begin\n2/2 ━━ - loss: 0.25\nend\n")
    assert page.run(GREEN) == ["━━"]
    page.run("document.querySelector('#log input[name=find]').value = '━━ - loss'")
    page.run("document.querySelector('#log').elements.find.dispatchEvent(new Event('input'))")
    is_shown(page, "2/2 ━━ - loss: 0.25")
    page.run("document.querySelector('#log input[name=find]').value = ''")
    page.run("document.querySelector('#log').elements.find.dispatchEvent(new Event('input'))")
    before = "begin\n2/2 ━━ - loss: 0.25\nend\n"
    for text in ("loading ", "...", "..."):
        log.write_at(TIME, text.encode())
    is_shown(page, f"{before}loading ......")
    log.write_at(TIME, b" done\n")
    is_shown(page, f"{before}loading ...... done\n")
    log.write(HOSTILE, f"0%\r{HOSTILE}\b", "\x1b[38;5;1;999;;mcolors \x1b[48;2;300;1m", "the end")
    page.shows("colors", "the end")
    assert not page.run("return window.isHacked || document.querySelector('#lines :not(span)')")
    assert page.run(LINES).count("<script>") == 2
    assert not set(page.run(LINES)) & set("\x1b\x07\b")
