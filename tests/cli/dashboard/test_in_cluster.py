"""The dashboard in a cluster: each viewer has the rights of their own token, and the process has none."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from cli.cluster_state import ClusterState
from cli.dashboard.browser import words
from cli.dashboard.in_cluster import OPERATOR, READER, Accounts, InCluster, in_cluster
from cli.kubelet import NODE, Kubelet
from cli.program import SECONDS
from cli.proxy import proxy
from cli.service_account import RBAC
from horovodjob_dashboard.event_streams import STREAMS_OF_A_VIEWER
from horovodjob_dashboard.page_session import HEADER
from horovodjob_dashboard.token_access import SESSIONS_OF_A_USER
from support.api_client import JOBS, Api, job, wait_for

WATCHES = re.compile(
    r'^apiserver_longrunning_requests\{.*resource="horovodjobs".*verb="WATCH".*\} (\d+)$', re.MULTILINE
)


@pytest.fixture
def server(api: Api, accounts: Accounts, tmp_path: Path) -> Iterator[InCluster]:
    """A dashboard with a form to sign in."""
    with in_cluster(api, tmp_path, "--url=https://jobs.example.com", "--cluster=blue") as made:
        yield made


@pytest.fixture
def other(api: Api, workspace: str) -> Iterator[str]:
    """A second namespace, with a job."""
    name = f"{workspace}-other"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    api.create(JOBS.format(name), job("hidden"))
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


def watches(api: Api) -> int:
    """The number of watches of HorovodJobs that the API server serves now."""
    return sum(int(found[1]) for found in WATCHES.finditer(api.text("/metrics")))


def target(first: requests.Response) -> str:
    """The page that opens after the first one of a session."""
    found = re.search(r'<meta name="page-target" content="([^"]+)">', first.text)
    assert found
    return found[1]


def _status(api: Api, token: str) -> int:
    """What the API server answers to a token."""
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(
        f"{api.server}/api", headers=headers, verify=str(api.authority_file), timeout=SECONDS
    ).status_code


def test_each_viewer_sees_what_the_api_server_gives_to_their_token(
    server: InCluster, accounts: Accounts, cluster: ClusterState, other: str
) -> None:
    cluster.create("train")
    few = server.visitor(accounts.token("few", namespace=cluster.namespace))
    all_ = server.visitor(accounts.token("all"))
    seen = wait_for("the jobs", lambda: text if "train" in (text := all_.text("/")) else None)
    assert "hidden" in seen
    assert (f"system:serviceaccount:{cluster.namespace}:all" in seen, "blue" in seen) == (True, True)
    assert all_.status(f"/jobs/{other}/hidden") == 200
    choice = few.get("/")
    assert choice.status_code == 403
    assert "Choose a namespace" in choice.text
    assert 'cannot list resource "horovodjobs"' in words(choice)
    wait_for("the job", lambda: "train" in few.text(f"/?namespace={cluster.namespace}"))
    assert "hidden" not in few.text(f"/?namespace={cluster.namespace}")
    for path in (f"/?namespace={other}", f"/usage?namespace={other}", f"/changes/{other}", f"/jobs/{other}/hidden"):
        refused = few.get(path)
        assert (refused.status_code, "hidden" in words(refused)) == (403, False)
        assert f'in the namespace "{other}"' in words(refused)
    assert few.status(f"/compare?job={other}/hidden") == 403
    assert few.status(f"/jobs/{other}/hidden/changes") == 403
    none = server.visitor(accounts.token("none", role=None))
    assert none.status(f"/?namespace={cluster.namespace}") == 403


def test_nobody_sees_anything_before_they_have_signed_in(server: InCluster, cluster: ClusterState) -> None:
    cluster.create("train")
    visitor = server.visitor()
    for path in ("/", "/rows", "/changes", "/compare", f"/jobs/{cluster.namespace}/train", "/?namespace=default"):
        page = visitor.get(path)
        assert (page.status_code, "Bearer token" in page.text, "train" in words(page)) == (401, True, False)
    assert visitor.status("/static/dashboard.css") == 200
    assert visitor.status("/healthz") == 200
    for token, sentence in (
        ("abc", "does not accept"),
        ("", "not a bearer token"),
        ("a\r\nX: b", "not a bearer token"),
    ):
        refused = visitor.sign_in(token)
        assert (refused.status_code, sentence in refused.text, "Set-Cookie" in refused.headers) == (401, True, False)


def test_viewers_share_a_watch_which_passes_on_when_its_viewer_signs_out(
    api: Api, server: InCluster, accounts: Accounts, cluster: ClusterState
) -> None:
    before = watches(api)
    first, second = (server.visitor(accounts.token(name)) for name in ("first", "second"))
    wait_for("the list", lambda: "There is no job" in first.text("/") or "Jobs" in first.text("/"))
    second.text("/")
    wait_for("one watch for two viewers", lambda: watches(api) == before + 1)
    with second.stream("/changes") as changes:
        changes.next()
        left = first.post("/sign-out", {})
        assert (left.status_code, first.status("/")) == (303, 401)
        cluster.create("later")
        changes.next()
        wait_for("the job", lambda: "later" in second.text("/"))
        wait_for("one watch for one viewer", lambda: watches(api) == before + 1)
    second.post("/sign-out", {})
    wait_for("no watch without viewers", lambda: watches(api) == before)


def test_a_watch_passes_on_when_the_api_server_refuses_its_token(
    api: Api, accounts: Accounts, cluster: ClusterState, tmp_path: Path
) -> None:
    address = urlsplit(api.server)
    with (
        proxy(address.netloc) as connection,
        in_cluster(api, tmp_path, server=f"https://{address.hostname}:{connection.port}") as server,
    ):
        tokens = [accounts.token(name) for name in ("first", "second")]
        first, second = map(server.visitor, tokens)
        cluster.create("earlier")
        wait_for("the list", lambda: "earlier" in first.text("/"))
        with second.stream("/changes") as changes:
            changes.next()
            accounts.delete("first")
            # The API server remembers for 10 s that a token is valid.
            wait_for("the refusal", lambda: _status(api, tokens[0]) == 401)
            connection.cut()
            cluster.create("later")

            def has_later() -> bool:
                text = second.text("/")
                assert "earlier" in text, text  # the list is neither empty nor read again
                return "later" in text

            wait_for("the job", has_later)
        assert "has left" not in server.log()
        refused = first.get("/")
        assert (refused.status_code, "does not accept your credentials" in words(refused)) == (401, True)
        assert "Your session has ended" in first.get("/").text


def test_localhost_is_answered_only_where_it_is_configured(api: Api, accounts: Accounts, tmp_path: Path) -> None:
    with in_cluster(api, tmp_path, url="https://jobs.example.com") as server:
        visitor = server.visitor()
        for host in ("localhost", "localhost:8080", "127.0.0.1", urlsplit(server.origin).netloc, "jobs.example.com:80"):
            assert visitor.get("/", headers={"Host": host}).status_code == 403
        assert visitor.get("/", headers={"Host": "jobs.example.com"}).status_code == 401


def test_a_viewer_who_loses_a_right_is_refused_also_in_open_streams_and_logs(
    server: InCluster, accounts: Accounts, cluster: ClusterState, kubelet: Kubelet, api: Api
) -> None:
    cluster.pod(cluster.create(), "launcher", node=NODE)
    cluster.run()
    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("epoch 1")
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}]
    role = f"/apis/{RBAC}/v1/clusterroles"
    api.create(role, {"metadata": {"name": "log-reader"}, "rules": rules})
    viewer = server.visitor(accounts.token("viewer", namespace=cluster.namespace))
    binding = accounts.bind("viewer", "log-reader", cluster.namespace)
    path, logs = f"/?namespace={cluster.namespace}", f"/jobs/{cluster.namespace}/train/log"
    viewer.text(path)
    with viewer.stream(f"/changes/{cluster.namespace}") as changes:
        changes.next()
        with viewer.stream(f"{logs}/all") as all_ranks, viewer.stream(f"{logs}/train-launcher") as pod:
            for stream in (all_ranks, pod):
                assert "epoch 1" in stream.log(until="epoch 1")
            accounts.unbind(binding)
            for stream in (all_ranks, pod):
                stream.end()
        api.delete(f"{role}/log-reader")
        assert (viewer.status(f"{logs}/train-launcher"), viewer.status(path)) == (403, 200)
        accounts.unbind()
        changes.end()
    assert viewer.status(path) == 403
    accounts.bind("viewer", READER, cluster.namespace)
    wait_for("the right", lambda: viewer.status(path) == 200)


def test_neither_a_stolen_cookie_nor_the_form_of_another_page_shows_or_changes_a_job(
    api: Api, server: InCluster, accounts: Accounts, cluster: ClusterState
) -> None:
    uid = cluster.create("train")["metadata"]["uid"]
    viewer = server.visitor(accounts.token("viewer", role=OPERATOR))
    wait_for("the job", lambda: "train" in viewer.text("/"))
    job = f"/jobs/{cluster.namespace}/train"
    thief = requests.Session()
    thief.cookies.update(viewer.session.cookies)  # as a server at another port gets them
    for path in ("/", "/rows", "/changes", job, f"{job}/log/all", f"{job}/log/all.txt"):
        for headers in ({}, {HEADER: ""}, {HEADER: "guessed"}, {HEADER: str(viewer.session.cookies.values()[0])}):
            answer = thief.get(f"{server.origin}{path}", headers=headers, timeout=SECONDS)
            shown = "train" in answer.text.replace(job, "")
            assert (answer.status_code, shown) == (401 if headers else 200, False)
            assert str(viewer.session.headers[HEADER]) not in answer.text
    for target in (f"{job}/suspend", f"{job}/terminate", "/sign-out"):
        own = {"Origin": server.origin}
        assert thief.post(f"{server.origin}{target}", {"uid": uid}, headers=own, timeout=SECONDS).status_code == 403
    attacks = [{"Origin": "http://attacker.example"}, {"Origin": "null"}, {"Origin": server.origin + "0"}]
    attacks += [{"Origin": server.origin.replace("http:", "https:")}, {"Host": "attacker.example"}]
    for headers in attacks:
        for target in (f"{job}/suspend", f"{job}/resume", f"{job}/terminate", "/sign-out"):
            assert viewer.post(target, {"uid": uid}, **headers).status_code == 403
        assert server.visitor().post("/sign-in", {"token": "abc"}, **headers).status_code == 403
    nameless = viewer.session.post(f"{server.origin}{job}/terminate", data={"uid": uid}, timeout=SECONDS)
    assert (nameless.status_code, "other pages" in nameless.text) == (403, True)
    assert viewer.status(f"{job}/terminate") == 405
    policy = api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]
    assert (policy["suspend"], policy["terminate"], viewer.status("/")) == (False, False, 200)
    assert viewer.post(f"{job}/terminate", {"uid": uid}).status_code == 303
    assert api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]["terminate"] is True
    reader = server.visitor(accounts.token("reader"))
    refused = reader.post(f"{job}/suspend", {"uid": uid})
    assert (refused.status_code, 'cannot patch resource "horovodjobs"' in words(refused)) == (403, True)


def test_a_session_is_a_cookie_of_the_https_address_and_ends(server: InCluster, accounts: Accounts) -> None:
    token = accounts.token("viewer")
    visitor = server.visitor()
    https = {"Host": "jobs.example.com", "Origin": "https://jobs.example.com"}
    signed_in = visitor.post("/sign-in", {"token": token, "target": "/compare?job=a/b"}, **https)
    assert (signed_in.status_code, target(signed_in)) == (200, "/compare?job=a/b")
    cookie = signed_in.headers["Set-Cookie"]
    words_ = {word.strip() for word in cookie.split(";")}
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=28800"} <= words_
    assert token not in cookie
    assert visitor.get("/", headers={"Host": "other.example.com"}).status_code == 403
    for given in ("https://attacker.example", "//attacker.example", "/\\attacker.example", "/\t/attacker.example"):
        assert target(server.visitor().sign_in(token, target=given)) == "/"
    sessions = [server.visitor(token) for _ in range(SESSIONS_OF_A_USER + 1)]
    assert [each.status("/") for each in sessions] == [401] + SESSIONS_OF_A_USER * [200]


def test_a_viewer_has_a_limit_of_streams_and_others_still_have_theirs(server: InCluster, accounts: Accounts) -> None:
    token = accounts.token("greedy")
    greedy, also_greedy, modest = server.visitor(token), server.visitor(token), server.visitor(accounts.token("modest"))
    streams = [greedy.get("/changes", stream=True) for _ in range(STREAMS_OF_A_VIEWER)]
    assert {each.status_code for each in streams} == {200}
    refused = also_greedy.get("/changes")
    assert (refused.status_code, "close some of your pages" in words(refused)) == (429, True)
    with modest.stream("/changes") as changes:
        changes.next()
    for each in streams:
        each.close()
    wait_for("a free stream", lambda: also_greedy.get("/changes", stream=True).status_code == 200)


def test_a_viewer_who_looks_at_one_page_after_the_other_has_one_stream(
    api: Api, accounts: Accounts, tmp_path: Path
) -> None:
    with in_cluster(api, tmp_path, "--review-seconds=60") as server:
        viewer = server.visitor(accounts.token("quick"))
        for _ in range(STREAMS_OF_A_VIEWER + 8):
            with viewer.stream("/changes"):
                pass


def test_a_proxy_signs_viewers_in_with_a_header_of_each_request(
    api: Api, accounts: Accounts, cluster: ClusterState, other: str, tmp_path: Path
) -> None:
    cluster.create("train")
    few, all_ = accounts.token("few", namespace=cluster.namespace), accounts.token("all", role=OPERATOR)
    with in_cluster(api, tmp_path, "--token-header=X-Forwarded-Access-Token") as server:
        browser = server.visitor()

        def get(path: str, token: str) -> tuple[int, str]:
            page = browser.get(path, headers={"X-Forwarded-Access-Token": token})
            return page.status_code, words(page)

        # One connection, as a proxy has it: what one viewer may see is nothing to the next.
        wait_for("the jobs", lambda: "hidden" in get("/", all_)[1])
        assert get("/", few)[0] == 403
        assert get(f"/jobs/{other}/hidden", few)[0] == 403
        assert get(f"/jobs/{other}/hidden", f"Bearer {all_}")[0] == 200
        assert "Sign out" not in get("/", all_)[1]
        missing = browser.get("/")
        assert (missing.status_code, "no token in the header X-Forwarded-Access-Token" in words(missing)) == (401, True)
        assert get("/", "abc")[0] == 401
        assert browser.sign_in(all_).status_code == 404
        assert (
            browser.post(
                f"/jobs/{cluster.namespace}/train/suspend", {}, **{"X-Forwarded-Access-Token": few}
            ).status_code
            == 403
        )


def test_the_log_names_users_and_has_no_token(
    server: InCluster, accounts: Accounts, cluster: ClusterState, kubelet: Kubelet
) -> None:
    created = cluster.create()
    cluster.pod(created, "launcher", node=NODE)
    token = accounts.token("viewer", role=OPERATOR)
    viewer = server.visitor(token)
    path = f"/jobs/{cluster.namespace}/train"
    assert viewer.get(f"{path}/log/train-launcher").status_code == 403
    viewer.post(f"{path}/suspend", {"uid": created["metadata"]["uid"]})
    viewer.sign_in(token[:-9])
    session = str(viewer.session.cookies[f"horovodjob_session_{urlsplit(server.origin).port}"])
    secret = str(viewer.session.headers[HEADER])
    for header in (f"Authorization: Bearer {token}\x01", f"Cookie: horovodjob_session={session}\x01", f"{token} x: y"):
        with socket.create_connection(("127.0.0.1", urlsplit(server.origin).port or 0), timeout=SECONDS) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode())
            assert b" 400 " in connection.recv(4096)
    viewer.post("/sign-out", {})
    assert server.end() == 0
    log = server.log()
    user = f"system:serviceaccount:{cluster.namespace}:viewer"
    assert f"{user} has signed in" in log
    assert f"{cluster.namespace}/train: suspend by {user}" in log
    assert f"{user} has left" in log
    assert not [
        part for part in (token[:40], token[-40:], token[:-9][-40:], session[:20], secret[:20]) if part in log
    ], log
