"""What an open page does while it gets no stream: it says why, in the server's words, and comes back by itself."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.chromium import Chromium
from cli.dashboard.in_cluster import OPERATOR, Accounts, InCluster, in_cluster
from cli.dashboard.signing_proxy import TOKEN_HEADER, signing_proxy
from cli.kubelet import NODE, Kubelet
from cli.proxy import proxy
from cli.service_account import RBAC
from horovodjob_dashboard.event_streams import STREAMS_OF_A_VIEWER
from support.api_client import Api, wait_for

# With the page itself one more than the connections that a browser opens to a server.
TABS = 6
ROWS = "return [...document.querySelectorAll('#rows tbody tr')].map((row) => row.id.split('/')[1])"
LINES = "return document.getElementById('lines').textContent"
# The document that asks for the page with the secret of the session, whose first two requests are lost.
PAGE_WITHOUT_CONNECTION = """
const connected = fetch;
let lost = 2;
window.fetch = (...request) => lost-- > 0 ? Promise.reject(new TypeError("Failed to fetch")) : connected(...request);
document.head.innerHTML = '<meta name="page-secret" content=""><meta name="page-target" content="">';
document.body.textContent = "";
const script = document.createElement("script");
script.src = "/static/page.js";
document.head.append(script);
"""
MARK = "window.isTheFirstDocument = true"
IS_MARKED = "return window.isTheFirstDocument"


@pytest.fixture
def token(accounts: Accounts, api: Api, cluster: ClusterState) -> Iterator[str]:
    """A viewer of the jobs and logs of the test's workspace."""
    role = f"/apis/{RBAC}/v1/clusterroles"
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list"]}]
    api.create(role, {"metadata": {"name": "log-reader"}, "rules": rules})
    made = accounts.token("viewer", role=OPERATOR)
    accounts.bind("viewer", "log-reader", cluster.namespace)
    yield made
    api.delete(f"{role}/log-reader")


def signed_in(page: Chromium, server: InCluster, token: str, path: str) -> Chromium:
    """The page of a viewer, marked: another document would have lost the mark."""
    page.open(f"{server.origin}/sign-out")
    page.open(f"{server.origin}{path}").shows("Bearer token")
    sign_in(page, token)
    return page


def sign_in(page: Chromium, token: str) -> None:
    """Signs in by the form, and marks the page after it."""
    page.run(
        "document.querySelector('input[name=token]').value = arguments[0]; document.forms[0].requestSubmit()", token
    )
    page.shows("Sign out").run(MARK)


def comes_back(page: Chromium, *texts: str) -> None:
    """Waits for these texts and for the end of every complaint, in the same document."""
    page.shows(*texts)
    wait_for("no complaint", lambda: page.run("return document.getElementById('live').hidden"))
    assert page.run(IS_MARKED), "the page was loaded again"


def test_the_api_server_is_away(
    started_chromium: Chromium, api: Api, token: str, cluster: ClusterState, kubelet: Kubelet, tmp_path: Path
) -> None:
    cluster.create("first")
    path, address = f"/?namespace={cluster.namespace}", urlsplit(api.server)
    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("epoch 1")
    with (
        proxy(address.netloc) as connection,
        in_cluster(api, tmp_path, server=f"https://{address.hostname}:{connection.port}") as server,
    ):
        page = signed_in(started_chromium, server, token, path).shows("first", "Queued")
        with connection.away():
            page.shows("no connection to 127.0.0.1", "Trying again.")
            cluster.create("second")
            cluster.run("first")
        comes_back(page, "second", "Running")
        assert sorted(page.run(ROWS)) == ["first", "second"]
        with connection.away():
            page.shows("no connection to 127.0.0.1")  # and no answer about rights is remembered
            page.open(f"{server.origin}{path}").shows("This page cannot be shown no connection", "Trying again.")
        page.shows("first", "Queued")

        cluster.pod(cluster.create(), "launcher", node=NODE)
        cluster.run()
        page.shows("train").open(f"{server.origin}/jobs/{cluster.namespace}/train").shows("epoch 1").run(MARK)
        with connection.away():
            page.shows("no connection to 127.0.0.1")
            log.write("epoch 2")
        comes_back(page, "epoch 2")
        log.write("epoch 3")
        page.shows("epoch 3")
        assert page.run(LINES) == "epoch 1\nepoch 2\nepoch 3\n"
        assert "trying again" not in page.text.lower()


def comes_back_after_sign_in(page: Chromium, server: InCluster, token: str, cluster: ClusterState) -> None:
    """The list with the job `first` asks for a new session, and shows another job when another tab has one."""
    page.shows("Your session has ended; sign in again. Sign in")
    cluster.create("second")
    with other_tab(page):
        page.open(f"{server.origin}/").shows("Bearer token")
        sign_in(page, token)
    comes_back(page, "first", "second")


def test_other_pages_have_all_streams_requests_are_lost_and_the_session_ends(
    started_chromium: Chromium, api: Api, token: str, cluster: ClusterState, tmp_path: Path
) -> None:
    cluster.create("first")
    with in_cluster(api, tmp_path) as server:
        greedy = server.visitor(token)
        streams = [greedy.get("/changes", stream=True) for _ in range(STREAMS_OF_A_VIEWER)]
        page = signed_in(started_chromium, server, token, "/").shows("first", "close some of your pages. Trying again.")
        cluster.create("third")
        for each in streams:
            each.close()
        comes_back(page, "first", "third")

        page.run(PAGE_WITHOUT_CONNECTION)
        page.shows("The connection is lost; trying again.").shows("first", "Queued").run(MARK)

        visitor = server.visitor()
        visitor.join(page)
        visitor.post("/sign-out", {})
        comes_back_after_sign_in(page, server, token, cluster)

        path = f"/jobs/{cluster.namespace}/first"
        page.open(f"{server.origin}{path}").shows("Queued").run(MARK)
        with contextlib.ExitStack() as tabs:
            for _ in range(TABS):
                tabs.enter_context(other_tab(page))
                page.open(f"{server.origin}{path}").shows("Queued")
            cluster.run("first")
            page.shows("Running")
        comes_back(page, "Running")  # tabs that nobody sees leave their connections to others


def test_a_proxy_leads_to_its_sign_in_page(
    started_chromium: Chromium, api: Api, token: str, cluster: ClusterState, tmp_path: Path
) -> None:
    cluster.create("first")
    with in_cluster(api, tmp_path, f"--token-header={TOKEN_HEADER}") as server, signing_proxy(server, token) as proxy:
        page = started_chromium.open(f"{proxy.origin}/").shows("first")
        page.run(MARK)
        proxy.is_signed_in = False
        proxy.end_streams()
        page.shows("Your session has ended; sign in again. Sign in")
        cluster.create("second")
        proxy.is_signed_in = True
        comes_back(page, "first", "second")


@contextlib.contextmanager
def other_tab(page: Chromium) -> Iterator[None]:
    """The next steps are those of a new page of the same browser."""
    before = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    yield
    page.driver.close()
    page.driver.switch_to.window(before)
