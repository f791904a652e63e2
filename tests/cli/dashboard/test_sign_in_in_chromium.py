"""The dashboard in a cluster, as Chromium shows it: signing in, choosing a namespace, the buttons, and forged forms."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from cli.cluster_state import ClusterState
from cli.dashboard.chromium import Chromium
from cli.dashboard.in_cluster import OPERATOR, Accounts, in_cluster
from cli.program import SECONDS
from support.api_client import Api, Object, wait_for


@contextlib.contextmanager
def other_site(form: str) -> Iterator[tuple[str, list[str]]]:
    """A page of another origin that sends a form when it is opened: its address, and the cookies that it has got."""
    cookies: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"{form}<script>document.forms[0].submit()</script>".encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", cookies
        server.shutdown()


def test_a_viewer_signs_in_chooses_a_namespace_suspends_a_job_and_signs_out(
    api: Api, cluster: ClusterState, started_chromium: Chromium, tmp_path: Path
) -> None:
    page = started_chromium
    uid = cluster.create()["metadata"]["uid"]
    cluster.run()
    job = f"/jobs/{cluster.namespace}/train"

    def policy() -> Object:
        found: Object = api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]
        return found

    accounts = Accounts(api, cluster.namespace)
    with contextlib.closing(accounts), in_cluster(api, tmp_path) as server:
        token = accounts.token("viewer", role=OPERATOR, namespace=cluster.namespace)
        page.open(f"{server.origin}{job}").shows("Sign in")
        assert page.problems_of_all_screens() == []
        page.press("wrong", Keys.ENTER)
        page.shows("does not accept this token")
        page.open(f"{server.origin}/").press(token, Keys.ENTER)
        page.shows("Choose a namespace", "cannot list")
        assert page.problems_of_all_screens() == []
        page.press(cluster.namespace, Keys.ENTER)
        page.shows("train", "Running")
        page.open(f"{server.origin}{job}").shows("Suspend")
        page.driver.find_element(By.XPATH, "//button[text()='Suspend']").click()
        WebDriverWait(page.driver, SECONDS).until(expected_conditions.alert_is_present()).accept()
        wait_for("the change", lambda: policy()["suspend"])
        page.shows("Resume")
        # Another port of this machine is the same site: the cookie is sent, and the Origin is not the dashboard's.
        form = f'<form method="post" action="{server.origin}{job}/terminate"><input name="uid" value="{uid}"></form>'
        with other_site(form) as (address, cookies):
            page.open(address).shows("Requests of other pages are refused.")
        # Browsers send the cookie to the other port, where it is worth nothing.
        assert "horovodjob_session" in cookies[0]
        replayed = requests.get(f"{server.origin}{job}/state", headers={"Cookie": cookies[0]}, timeout=SECONDS)
        assert (replayed.status_code, "Running" in replayed.text, "page.js" in replayed.text) == (200, False, True)
        assert not policy()["terminate"]
        page.open(f"{server.origin}{job}").shows("Sign out")
        page.driver.find_element(By.XPATH, "//button[text()='Sign out']").click()
        page.shows("Bearer token")
        assert token not in page.driver.page_source
        page.driver.back()
        page.driver.refresh()
        page.shows("Bearer token")
