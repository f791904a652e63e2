"""GPU hours, their price, and links to other tools."""

import shlex
from datetime import UTC, datetime, timedelta

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.program import run
from support.api_client import ROOT, wait_for
from support.tutorial.page import blocks

(DOCUMENTED,) = blocks(ROOT / "docs" / "dashboard.md", "sh", "GPU hours")
GRAFANA = "Logs=https://grafana.example.com/d/jobs?var-namespace={namespace}&var-name={name}&e={experiment}"


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_gpu_hours_are_by_owner_namespace_and_experiment_with_their_price(cluster: ClusterState) -> None:
    for name, owner, experiment, hours in (("a", "ada", "digits", 10), ("b", "ada", "", 5), ("c", "bob", "digits", 1)):
        labels = {"horovodjob.dev/owner": owner} | ({"horovodjob.dev/experiment": experiment} if experiment else {})
        cluster.create(name, labels, worker={"replicas": 2, "gpus": 4}, spot=name == "b")
        times = {"startTime": hours_ago(50), "runningTime": hours_ago(40), "completionTime": hours_ago(40 - hours)}
        cluster.report(name, phase="Succeeded", executionState="succeeded", **times)
    _, _, *options = shlex.split(DOCUMENTED)
    more = ("--spot-gpu-hour-price", "0.50 EUR", "--link", GRAFANA)
    with dashboard("-w", cluster.namespace, *options, *more) as browser:
        shown = wait_for("all", lambda: text if "Jobs 3" in (text := browser.text("/usage")) else None)
        assert "GPU hours 128.0 Jobs 3 Cost 275.20 EUR Saved by spot nodes 96.00 EUR" in shown
        assert "By owner Owner Jobs GPU hours Share Cost ada 2 120.0 94 % 252.00 EUR bob 1 8.0 6 % 23.20 EUR" in shown
        assert f"By namespace Namespace Jobs GPU hours Share Cost {cluster.namespace} 3 128.0 100 %" in shown
        assert "Cost digits 2 88.0 69 % 255.20 EUR none 1 40.0 31 % 20.00 EUR" in shown
        assert "A job that was deleted, also by ttlSecondsAfterFinished , is not counted." in shown
        assert "has used a GPU in this time" in browser.text("/usage?days=1")
        assert "40 (20.00 EUR)" in browser.get(f"/jobs/{cluster.namespace}/b").text
        job = browser.get(f"/jobs/{cluster.namespace}/a").text
        assert 'href="https://grafana.example.com/d/horovodjob-jobs?var-name=a"' in job
        link = f"https://grafana.example.com/d/jobs?var-namespace={cluster.namespace}&amp;var-name=a&amp;e=digits"
        assert f'<a href="{link}" rel="noopener noreferrer" target="_blank">Logs</a>' in job
    with dashboard("-w", cluster.namespace) as browser:
        text = wait_for("all", lambda: text if "Jobs 3" in (text := browser.text("/usage")) else None)
        assert "Cost" not in text
        assert "Links" not in browser.text(f"/jobs/{cluster.namespace}/a")


def test_a_wrong_setting_is_one_sentence(workspace: str) -> None:
    for options, expected in (
        (("--link", "Grafana=javascript:alert(1)"), "must begin with http:// or https://"),
        (("--link", "Grafana=https://{name}.example.com"), "a job must not decide the host"),
        (("--gpu-hour-price", "cheap"), "must be a number"),
        (("--spot-gpu-hour-price", "0.50 EUR"), "needs the price of a GPU hour on other nodes"),
    ):
        refused = run("dashboard", "--no-browser", *options)
        assert (refused.code, expected in refused.stderr) == (2, True), refused.stderr
