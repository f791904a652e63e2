"""The dashboard in a cluster, as Chromium shows it: signing in, choosing a namespace, and the buttons."""

import contextlib
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from cli.cluster_state import ClusterState
from cli.dashboard.chromium import Chromium
from cli.dashboard.in_cluster import OPERATOR, Accounts, in_cluster
from cli.program import SECONDS
from support.api_client import Api, Object, wait_for


def test_a_viewer_signs_in_chooses_a_namespace_suspends_a_job_and_signs_out(
    api: Api, cluster: ClusterState, started_chromium: Chromium, tmp_path: Path
) -> None:
    page = started_chromium
    cluster.create()
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
        page.open(f"{server.origin}{job}").shows("Sign out")
        page.driver.find_element(By.XPATH, "//button[text()='Sign out']").click()
        page.shows("Bearer token")
        assert token not in page.driver.page_source
        page.driver.back()
        page.driver.refresh()
        page.shows("Bearer token")
