"""GPU hours, their price, and links to other tools."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.program import run
from cli.service_account import account_kubeconfig
from support.api_client import ROOT, Api, wait_for
from support.tutorial.page import blocks

(DOCUMENTED,) = blocks(ROOT / "docs" / "dashboard.md", "sh", "GPU hours")
GRAFANA = "Grafana=https://grafana.example.com/d/jobs?var-namespace={namespace}&var-name={name}&e={experiment}"


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_gpu_hours_are_by_owner_namespace_and_experiment_with_their_price(cluster: ClusterState) -> None:
    for name, owner, experiment, hours in (("a", "ada", "digits", 10), ("b", "ada", "", 5), ("c", "bob", "digits", 1)):
        labels = {"horovodjob.dev/owner": owner} | ({"horovodjob.dev/experiment": experiment} if experiment else {})
        cluster.create(name, labels, worker={"replicas": 2, "gpus": 4}, spot=name == "b")
        times = {"startTime": hours_ago(50), "runningTime": hours_ago(40), "completionTime": hours_ago(40 - hours)}
        cluster.report(name, phase="Succeeded", executionState="succeeded", **times)
    _, _, *options = shlex.split(DOCUMENTED)
    with dashboard("-w", cluster.namespace, *options) as browser:
        shown = wait_for("all", lambda: text if "Jobs 3" in (text := browser.text("/usage")) else None)
        assert "GPU hours 128.0 Jobs 3 Cost 371.20 EUR" in shown
        assert "By owner Owner Jobs GPU hours Share Cost ada 2 120.0 94 % 348.00 EUR bob 1 8.0 6 % 23.20 EUR" in shown
        assert f"By namespace Namespace Jobs GPU hours Share Cost {cluster.namespace} 3 128.0 100 %" in shown
        assert (
            "By experiment Experiment Jobs GPU hours Share Cost digits 2 88.0 69 % 255.20 EUR none 1 40.0 31 %" in shown
        )
        assert "A job that was deleted, also by ttlSecondsAfterFinished , is not counted." in shown
        assert "has used a GPU in this time" in browser.text("/usage?days=1")
        job = browser.get(f"/jobs/{cluster.namespace}/a").text
        assert 'href="https://grafana.example.com/d/horovodjob-jobs?var-name=a"' in job
        assert "80 (232.00 EUR)" in job
    prices = ("--gpu-hour-price", "2.50 EUR", "--spot-gpu-hour-price", "0.50 EUR", "--link", GRAFANA)
    with dashboard("-w", cluster.namespace, *prices) as browser:
        shown = wait_for("all", lambda: text if "Jobs 3" in (text := browser.text("/usage")) else None)
        assert "GPU hours 128.0 Jobs 3 Cost 240.00 EUR Saved by spot nodes 80.00 EUR" in shown
        assert "ada 2 120.0 94 % 220.00 EUR bob 1 8.0 6 % 20.00 EUR" in shown
        assert "0.5 EUR for jobs with spot: true" in shown
        assert "40 (20.00 EUR)" in browser.get(f"/jobs/{cluster.namespace}/b").text
        link = f"https://grafana.example.com/d/jobs?var-namespace={cluster.namespace}&amp;var-name=a&amp;e=digits"
        shown = browser.get(f"/jobs/{cluster.namespace}/a").text
        assert f'<a href="{link}" rel="noopener noreferrer" target="_blank">Grafana</a>' in shown
    with dashboard("-w", cluster.namespace) as browser:
        text = wait_for("all", lambda: text if "Jobs 3" in (text := browser.text("/usage")) else None)
        assert "Cost" not in text
        assert "Links" not in browser.text(f"/jobs/{cluster.namespace}/a")


def test_a_viewer_sees_the_gpu_hours_of_jobs_that_they_may_list(
    api: Api, cluster: ClusterState, viewer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = ClusterState(api, f"{cluster.namespace}-other")
    api.create("/api/v1/namespaces", {"metadata": {"name": other.namespace}})
    for each in (cluster, other):
        each.create(worker={"replicas": 1, "gpus": 1})
        each.report(
            phase="Succeeded", executionState="succeeded", runningTime=hours_ago(2), completionTime=hours_ago(1)
        )
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, viewer)))
    with dashboard() as browser:
        shown = wait_for("the jobs", lambda: text if "Jobs 1" in (text := browser.text("/usage")) else None)
        assert "GPU hours 1.0 Jobs 1" in shown
        assert other.namespace not in shown
        assert browser.get(f"/usage?namespace={other.namespace}").status_code == 403
    api.delete(f"/api/v1/namespaces/{other.namespace}")


def test_a_wrong_setting_is_one_sentence(workspace: str) -> None:
    for options, expected in (
        (("--link", "Grafana=javascript:alert(1)"), "must begin with http:// or https://"),
        (("--link", "Grafana=https://{name}.example.com"), "a job must not decide the host"),
        (("--gpu-hour-price", "cheap"), "must be a number"),
        (("--spot-gpu-hour-price", "0.50 EUR"), "needs the price of a GPU hour on other nodes"),
    ):
        refused = run("dashboard", "--no-browser", *options)
        assert (refused.code, expected in refused.stderr) == (2, True), refused.stderr
