"""The log of all ranks in the page of a job: of its launchers, else on its share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.browser import Browser, dashboard
from cli.dashboard.in_cluster import READER, Accounts, in_cluster
from cli.job_share import ACCOUNT, HOSTILE_HOST, SEGMENT, key, logs, service
from cli.kubelet import NODE, Kubelet
from cli.service_account import account_kubeconfig
from support.api_client import Api, wait_for
from support.azure_fakes.files.server import FilesService

__all__ = ["key", "logs", "service"]
OLD_LINES = 40_000


@pytest.fixture
def browser(workspace: str, service: FilesService) -> Iterator[Browser]:
    """A browser with the jobs of the test's workspace; the dashboard knows the storage account."""
    with dashboard("-w", workspace) as opened:
        yield opened


def test_the_log_of_all_ranks_begins_with_the_launcher_and_continues_with_that_of_the_next_attempt(
    browser: Browser, cluster: ClusterState, kubelet: Kubelet
) -> None:
    job = cluster.create()
    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("first attempt")
    with browser.stream(f"/jobs/{cluster.namespace}/train/log/all") as stream:
        cluster.pod(job, "launcher", node=NODE)
        cluster.run()
        assert stream.log(until="attempt\n") == "first attempt\n"
        log.end()
        cluster.api.delete(f"{cluster.pods}/train-launcher", {"gracePeriodSeconds": 0})
        kubelet.logs.pop(f"{cluster.namespace}/train-launcher")
        second = kubelet.log(cluster.namespace, "train-launcher")
        second.write("second attempt")
        cluster.pod(job, "launcher", node=NODE, attempt=2)
        cluster.report(attempt=2)
        assert stream.log(until="attempt\n") == "second attempt\n"
        second.end()
        cluster.end("train-launcher", "launcher")
        cluster.succeed()
        assert stream.log(until="ended") == "The log has ended."
    assert browser.get(f"/jobs/{cluster.namespace}/train/log/all.txt").text == "second attempt\n"


def test_the_file_on_the_share_is_followed_and_its_last_lines_are_shown_after_the_job(
    browser: Browser, cluster: ClusterState, key: str, logs: Path
) -> None:
    path = f"/jobs/{cluster.namespace}/train"
    wait_for("the job", lambda: "stdout.txt on the share" in browser.text(path))
    with browser.stream(f"{path}/log/share") as stream:
        (logs / "stdout.txt").write_text("epoch 1\n")
        assert stream.log(until="1\n") == "epoch 1\n"
        with (logs / "stdout.txt").open("a") as file:
            file.write("epoch 2\n")
        assert stream.log(until="2\n") == "epoch 2\n"
        cluster.succeed()
        assert stream.log(until="ended.") == "The log has ended."
    text = "".join(f"step {number} of rank 0\n" for number in range(OLD_LINES)) + "the last line ü\n"
    (logs / "stdout.txt").write_text(text)
    wait_for("the end", lambda: "Succeeded" in browser.text(path))
    with browser.stream(f"{path}/log/all") as stream:
        shown = stream.log(until="ended.")
    assert shown.endswith("the last line ü\nThe log has ended.")
    assert shown.startswith("step ")
    assert 200_000 < len(shown) < 300_000
    assert browser.get(f"{path}/log/all.txt").content.decode() == text


def test_a_job_without_a_log_says_why_and_a_volume_is_not_read_through_a_new_pod(
    browser: Browser, cluster: ClusterState
) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"name": "data", "mountPath": "/data"}
    cluster.create("on-volume", volumes=[claim], volumeMounts=[mount], logs={"pathPrefix": "/data"})
    cluster.create()
    for name in ("on-volume", "train"):
        cluster.report(name, phase="Failed", outputPathSegment=SEGMENT)
    path = f"/jobs/{cluster.namespace}/train"
    wait_for("the end", lambda: browser.get(path).status_code == 200 and "Failed" in browser.text(path))
    with browser.stream(f"{path}/log/all") as stream:
        assert "job train writes no log files because it has no spec.logs" in stream.log(until="spec.logs")
    refused = browser.get(f"{path}/log/all.txt")
    assert (refused.status_code, "no spec.logs" in refused.text) == (404, True)
    with browser.stream(f"/jobs/{cluster.namespace}/on-volume/log/all") as stream:
        words = "is on a volume, which only a pod can read; `hvj job file list -j on-volume"
        assert words in stream.log(until="starts one")
    assert cluster.api.get(cluster.pods)["items"] == []


def end_of_log(browser: Browser, cluster: ClusterState, until: str, name: str = "train", log: str = "all") -> str:
    """The log of a job that has succeeded, up to this text."""
    path = f"/jobs/{cluster.namespace}/{name}"
    wait_for("the end", lambda: browser.get(path).status_code == 200 and "Succeeded" in browser.text(path))
    with browser.stream(f"{path}/log/{log}") as stream:
        return stream.log(until)


def test_a_viewer_without_the_right_to_pods_reads_the_share_in_a_cluster_with_their_rights_only(
    api: Api,
    cluster: ClusterState,
    key: str,
    logs: Path,
    accounts: Accounts,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (logs / "stdout.txt").write_text("epoch 1\n")
    cluster.succeed()
    with in_cluster(api, tmp_path) as server:
        end = end_of_log(server.visitor(accounts.token("reader")), cluster, "Azure", log="share")
    assert "Secret azure-storage-account-mystorageaccount-secret has no key for it, does not exist or is not for" in end
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, READER)))
    with dashboard() as browser:
        assert "pods is forbidden" in end_of_log(browser, cluster, "Entra ID")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    with dashboard() as browser:
        assert end_of_log(browser, cluster, "ended.") == "epoch 1\nThe log has ended."


def test_a_job_that_is_opened_does_not_decide_which_host_gets_the_viewers_credentials(
    cluster: ClusterState, key: str, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    monkeypatch.delenv("AZURE_STORAGE_SERVICE_ENDPOINT", raising=False)
    spec = cluster.api.get(f"{cluster.jobs}/train")["spec"]
    shares = [share | {"server": HOSTILE_HOST} for share in spec["azureFiles"]]
    cluster.create("hostile", azureFiles=shares, logs=spec["logs"])
    cluster.run("hostile", outputPathSegment=SEGMENT)
    cluster.succeed("hostile")
    with dashboard("-w", cluster.namespace) as browser:
        end = end_of_log(browser, cluster, "HVJ_STORAGE_HOSTS", name="hostile")
    assert f"the job names the server {HOSTILE_HOST} for storage account {ACCOUNT}, which is no host of Azure" in end
