"""The pages of the dashboard in a real browser: what they show, on all screens, with the keyboard, and without help."""

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.chromium import Chromium
from cli.dashboard.sample_jobs import BLOCKED, COMPARED, FAILED, LOST_WORKER, QUEUED, RESTARTING, RUNNING, create_samples
from cli.kubelet import Kubelet
from horovodjob.api.constants import Phase



def test_each_page_shows_jobs_of_every_phase_without_serious_problems(
    page: Chromium, address: str, cluster: ClusterState, kubelet: Kubelet
) -> None:
    origin, job = address.partition("/?")[0], f"/jobs/{cluster.namespace}"
    create_samples(cluster)
    kubelet.log(cluster.namespace, f"{RUNNING}-launcher").write("Epoch 16/24", "loss 1.04")
    page.shows("10 jobs", *Phase, BLOCKED)
    compared = "&".join(f"job={cluster.namespace}/{name}" for name in COMPARED)
    shown = {
        "/": (RUNNING, "Running"),
        f"{job}/{RUNNING}": ("worker-3", "loss 1.04", "val_loss", "AllRanksRun", "Terminate"),
        f"{job}/{FAILED}": ("No such file or directory", "exit code 1"),
        f"{job}/{RESTARTING}": (LOST_WORKER, "PodEvicted"),
        f"{job}/{QUEUED}": (BLOCKED, "research"),
        f"/compare?{compared}": (*COMPARED, "0.03", "learning-rate"),
        "/compare": ("Select jobs",),
        f"{job}/other": ("it may have been deleted",),
        "/other": ("There is no page /other.",),
    }
    problems = {}
    for path, texts in shown.items():
        page.open(origin + path).shows(*texts)
        problems[path] = page.problems_of_all_screens()
    assert {path: found for path, found in problems.items() if found} == {}
    assert page.requested() == [address.split("/")[2]]


def test_everything_is_reached_with_the_keyboard(page: Chromium, cluster: ClusterState) -> None:
    create_samples(cluster)
    page.shows("10 jobs")
    assert page.tab()["name"] == "Skip to the content"
    seen = [page.tab() for _ in range(int(page.run("return document.querySelectorAll(FOCUSABLE).length".replace(
        "FOCUSABLE", "'a[href], button, input:not([type=hidden]), select, summary, [tabindex]'"))) - 1)]
    assert {"Text", "Compare the selected", f"Compare {QUEUED}", QUEUED} <= {
        str(one["name"]).splitlines()[0].strip() for one in seen
    }
    assert [one for one in seen if not (one["outline"] and one["isSeen"] and one["name"])] == []
    page.tab_to(RUNNING)
    page.press("\ue007")
    page.shows("worker-3")
    page.tab_to("Suspend")
    page.press("\ue007")
    assert "Its pods are deleted" in page.driver.switch_to.alert.text
    page.driver.switch_to.alert.dismiss()
    assert not cluster.api.get(f"{cluster.jobs}/{RUNNING}")["spec"]["runPolicy"]["suspend"]


@pytest.mark.parametrize(
    ("action", "field", "job", "value"),
    [("Suspend", "suspend", RUNNING, True), ("Terminate", "terminate", RUNNING, True), ("Resume", "suspend", "efficientnet-b7", False)],
)
def test_a_button_asks_before_it_changes_the_job(
    page: Chromium, address: str, cluster: ClusterState, action: str, field: str, job: str, value: bool
) -> None:
    create_samples(cluster)
    page.open(f"{address.partition('/?')[0]}/jobs/{cluster.namespace}/{job}").shows(action)

    def policy() -> object:
        return cluster.api.get(f"{cluster.jobs}/{job}")["spec"]["runPolicy"][field]

    before = policy()
    for is_accepted in (False, True):
        page.run("document.querySelector(`button[formaction$=${arguments[0]}]`).click()", action.lower())
        question = page.driver.switch_to.alert
        assert question.text.startswith(f"{action} {job}?")
        assert policy() == before
        if is_accepted:
            question.accept()
        else:
            question.dismiss()
    page.shows("Resume" if action == "Suspend" else "Suspend")
    assert policy() == value
