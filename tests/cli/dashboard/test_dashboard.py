"""`hvj dashboard`: the pages, with a real API server."""

import itertools
import os
import re
import shlex
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from cli.cluster_state import ClusterState, condition
from cli.dashboard.browser import Browser, dashboard, words
from cli.kubelet import NODE, Kubelet
from cli.program import SECONDS, hvj_process
from cli.service_account import account_kubeconfig
from horovodjob_dashboard.page_session import HEADER
from support.api_client import ROOT, Api, Object, wait_for
from support.tutorial.page import blocks

SCRIPT = "<script>alert(1)</script>"


def history(*losses: float) -> list[Object]:
    return [
        {"epoch": epoch, "time": "2026-11-22T12:00:00Z", "metrics": {"loss": loss, "val_loss": 2 * loss}}
        for epoch, loss in enumerate(losses, start=1)
    ]


def test_the_list_shows_each_job_with_what_it_waits_for_and_changes_arrive_without_a_reload(
    browser: Browser, cluster: ClusterState
) -> None:
    wait_for("the empty list", lambda: "There is no job in namespace" in browser.text("/"))
    labels = {"horovodjob.dev/experiment": "digits", "horovodjob.dev/owner": "ada"}
    cluster.create("train", labels, worker={"replicas": 3, "gpus": 2})
    cluster.run("train", training={"progress": 0.25, "percent": "25%", "epoch": 1, "epochs": 4})
    cluster.create("waits")
    queue = {"name": "gpus", "position": 2}
    blocked = condition("Queued", "Unschedulable", "0/3 nodes have the GPUs")
    cluster.report("waits", phase="Queued", executionState="queued", conditions=[blocked], queue=queue)
    shown = wait_for("both jobs", lambda: text if "25 %" in (text := browser.text("/")) and "0/3" in text else None)
    assert "2 jobs" in shown
    assert re.search(r"train \S+ Running 25 % 3 6 digits ada", shown), shown
    assert "Queued 0/3 nodes have the GPUs 2 gpus, 2" in shown
    rows = "Compare the selected"
    assert "waits" not in browser.text("/?owner=ada").partition(rows)[2]
    by_queue = browser.text("/?sort=queue").partition(rows)[2]
    assert by_queue.index("waits") < by_queue.index("train")
    assert "waits" not in browser.text("/?phase=Running").partition(rows)[2]
    assert "1 job" in browser.text("/?text=DIGITS train")
    assert "No job matches the filter." in browser.text("/?text=other")
    assert browser.get("/?page=99999999999&sort=none&phase=x").status_code == 200

    path = f"/jobs/{cluster.namespace}/train"
    since = re.search(r'data-version="(\d+)"', browser.get(path).text)
    assert since
    with browser.stream(f"{path}/changes?since={since[1]}") as changes, browser.stream("/changes") as all_changes:
        all_changes.next()
        cluster.succeed("train")
        changes.next()
        all_changes.next()
        assert "Succeeded" in browser.text(f"{path}/state")
        cluster.api.delete(f"{cluster.jobs}/train")
        changes.next()
    missing = browser.get(f"{path}/state")
    assert (missing.status_code, "it may have been deleted" in missing.text) == (404, True)


def test_the_page_of_a_job_shows_pods_curves_errors_events_and_its_log(
    browser: Browser, cluster: ClusterState, kubelet: Kubelet
) -> None:
    job = cluster.create(worker={"replicas": 1, "gpus": 4})
    cluster.pod(job, "launcher", node=NODE)
    cluster.pod(job, "worker", node=NODE)
    failed = {"time": "2026-11-22T12:30:00Z", "attempt": 1, "reason": "ProgramFailed", "exitCode": 3}
    training = {"progress": 0.5, "percent": "50%", "history": history(2.5, 1.25)}
    where = {"pod": "train-launcher", "node": "gpu-1"}
    ready = condition("Running", "RanksRunning", "all ranks run")
    cluster.run(training=training, errors=[failed | where | {"message": SCRIPT}], conditions=[ready])
    about = {key: job["metadata"][key] for key in ("name", "namespace", "uid")} | {"kind": "HorovodJob"}
    event = {"reason": "Restarted", "message": "attempt 2 starts", "type": "Warning", "count": 2}
    times = {"lastTimestamp": "2026-11-22T12:31:00Z", "firstTimestamp": "2026-11-22T12:31:00Z"}
    metadata = {"generateName": "train-"}
    events = f"/api/v1/namespaces/{cluster.namespace}/events"
    cluster.api.create(events, {"metadata": metadata, "involvedObject": about, **event, **times})
    # Others can create events that say nothing, and pods with some labels of the job.
    cluster.api.create(events, {"metadata": metadata, "involvedObject": about})
    labels = {f"horovodjob.dev/{key}": job["metadata"][field] for key, field in (("job", "name"), ("job-uid", "uid"))}
    for name, more in (("copy", {}), ("odd", {"horovodjob.dev/role": "worker", "horovodjob.dev/replica-index": "x"})):
        spec = {"containers": [{"name": "worker", "image": "trainer:1"}]}
        cluster.api.create(cluster.pods, {"metadata": {"name": name, "labels": labels | more}, "spec": spec})
    path = f"/jobs/{cluster.namespace}/train"
    wait_for("the report", lambda: browser.get(path).status_code == 200 and "ProgramFailed" in browser.get(path).text)
    page = browser.get(path)
    shown = words(page)
    assert f"launcher {NODE} Running yes 0" in shown
    assert re.search(r"Attempt 1 .* Starting .* ProgramFailed, exit code 3 train-launcher, gpu-1", shown), shown
    assert "Conditions Condition Status Since Reason Running True 2026-11-22 12:00" in shown
    assert "RanksRunning all ranks run" in shown
    assert re.search(r"Restarted attempt 2 starts 2 Commands", shown), shown
    assert "Values Epoch loss val_loss 1 2.5 5 2 1.25 2.5" in shown
    assert (page.text.count("<polyline"), SCRIPT in page.text) == (2, False)
    manifest = yaml.safe_load(page.text.partition("<summary>YAML</summary><pre>")[2].partition("</pre>")[0])
    assert (manifest["spec"]["worker"]["gpus"], "status" in manifest) == (4, False)

    log = kubelet.log(cluster.namespace, "train-launcher")
    log.write("epoch 1 ü", "epoch 2")
    path = f"{path}/log/train-launcher"
    with browser.stream(path) as stream:
        assert "epoch 1 ü\nepoch 2" in stream.log(until="epoch 2")
        log.write("epoch 3")
        assert "epoch 3" in stream.log(until="epoch 3")
        log.end()
        cluster.end("train-launcher", "launcher")  # Without it, the connection alone has ended.
        assert stream.log(until="ended") == "The container has ended."
    download = browser.get(f"{path}.txt")
    assert download.content.decode() == "epoch 1 ü\nepoch 2\nepoch 3\n"
    assert 'filename="train-launcher.log"' in download.headers["Content-Disposition"]
    assert browser.get(f"{path}-2.txt").status_code == 404


def test_jobs_are_compared_by_their_validation_loss_and_the_best_of_an_experiment_are_first(
    browser: Browser, cluster: ClusterState
) -> None:
    labels = {"horovodjob.dev/experiment": "digits"}
    for number in range(9):
        name, losses = f"run-{number}", [1.0, (number + 1) / 10]
        cluster.create(name, labels, command=["python3", "train.py", f"--seed={number}"])
        epochs = history(*losses)
        for entry in epochs:
            entry["metrics"] = {"accuracy": 0.5, "loss": 9.0, "val_loss": entry["metrics"]["loss"]}
        cluster.run(name, training={"progress": 1, "percent": "100%", "history": epochs})
    cluster.create("other", command=["true"])
    names = [f"job={cluster.namespace}/{name}" for name in ("run-3", "run-1", "gone")]
    address = f"/compare?{'&'.join(names)}"
    shown = wait_for("both", lambda: found if "Running 0.4 2 3" in (found := browser.text(address)) else None)
    assert "Job Phase Best val_loss Epoch --seed" in shown
    assert shown.index("run-1 Running 0.2 2 1") < shown.index("run-3 Running 0.4 2 3")
    assert f"These jobs do not exist, or you may not see them: {cluster.namespace}/gone" in shown
    unknown = browser.text(f"{address}&metric=accuracy")
    assert "Whether a lower or a higher accuracy is better is not known" in unknown
    assert "Lowest accuracy Highest accuracy" in unknown
    assert "Best accuracy" in browser.text(f"{address}&metric=accuracy&goal=max")
    group = f"/compare?experiment=digits&namespace={cluster.namespace}"
    experiment = wait_for("all", lambda: found if "9 jobs; " in (found := browser.text(group)) else None)
    assert "9 jobs; curves of the best 8." in experiment
    table, _, curves = experiment.partition("Values")
    assert ("run-8" in table, "run-7" in curves, "run-8" in curves, "other" in experiment) == (True, True, False, False)
    by_seed = browser.text(f"{group}&sort=setting:--seed&descending=1")
    assert by_seed.index("run-8 ") < by_seed.index("run-0 ")
    assert "There is no job of experiment none." in browser.text("/compare?experiment=none")


def test_only_the_browser_that_opened_the_address_is_answered_and_its_buttons_change_the_job_that_was_shown(
    browser: Browser, cluster: ClusterState
) -> None:
    uid = cluster.create()["metadata"]["uid"]
    path = f"/jobs/{cluster.namespace}/train"
    stranger = requests.Session()
    for given in (path, "/?token=wrong", "/static/dashboard.js"):
        refused = stranger.get(f"{browser.origin}{given}", timeout=SECONDS)
        assert (refused.status_code, "hvj dashboard" in refused.text) == (403, True)
    rebound = browser.get(path, headers={"Host": "attacker.example"})
    assert (rebound.status_code, "This dashboard answers as" in rebound.text) == (403, True)
    for origin in ("http://attacker.example", "null", browser.origin.replace("127.0.0.1", "127.0.0.2")):
        assert browser.post(f"{path}/terminate", {"uid": uid}, Origin=origin).status_code == 403
    assert not cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]["terminate"]
    again = requests.get(browser.address, timeout=SECONDS, allow_redirects=False)  # an address is valid once
    assert (again.status_code, "Set-Cookie" in again.headers, "Location" in again.headers) == (403, False, False)
    thief = requests.Session()
    thief.cookies.update(browser.session.cookies)  # as a server at another port gets them
    for headers in ({}, {HEADER: ""}, {HEADER: "guessed"}):
        answer = thief.get(f"{browser.origin}{path}", headers=headers, timeout=SECONDS)
        assert (answer.status_code, uid in answer.text) == (403 if headers else 200, False)
        stolen = thief.post(
            f"{browser.origin}{path}/terminate", data={"uid": uid}, headers=headers | {"Origin": browser.origin}
        )
        assert stolen.status_code == 403
    page = browser.get("/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == browser.get("/static/charts.js").headers["Cache-Control"] == "no-store"
    assert "immutable" in browser.get("/static/uPlot-1.6.32.min.js").headers["Cache-Control"]
    assert not re.search(r"<script(?! src)|\sstyle=|\son\w+=|https?://", page.text)

    def policy() -> Object:
        found: Object = cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]
        return found

    for action, field, value in (("suspend", "suspend", True), ("resume", "suspend", False)):
        assert browser.post(f"{path}/{action}", {"uid": uid}).headers["Location"] == path
        assert policy()[field] is value
    other = browser.post(f"{path}/terminate", {"uid": "of another job of this name"})
    assert (other.status_code, policy().get("terminate", False)) == (422, False)
    assert browser.post(f"{path}/delete", {"uid": uid}).status_code == 404
    assert browser.post(f"{path}/terminate", {"uid": uid}).status_code == 303
    assert policy()["terminate"] is True


def test_an_address_with_a_token_leads_to_no_other_host(workspace: str) -> None:
    with hvj_process("dashboard", "--no-browser", "-w", workspace) as process:
        assert process.stdout
        address = urlsplit(process.stdout.readline().strip())
        for path, query in itertools.product(("//evil.example/x", "/\\evil.example/x"), ("token=a", address.query)):
            with socket.create_connection(("127.0.0.1", address.port or 0), timeout=SECONDS) as connection:
                request = f"GET {path}?{query} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
                connection.sendall(request.encode())
                with connection.makefile(encoding="utf-8") as answer:
                    assert "evil.example" not in answer.read()


def test_the_browser_gets_the_address_in_a_private_file_and_not_in_its_arguments(
    workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "firefox"
    program.write_text(f'#!/bin/sh\necho "$@" > {seen}.part\nmv {seen}.part {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    _, command = blocks(ROOT / "docs" / "dashboard.md", "sh")[0].splitlines()
    with hvj_process(*shlex.split(command)[1:]) as process:
        assert process.stdout
        printed = process.stdout.readline().strip()
        arguments = wait_for("the browser", lambda: seen.is_file() and seen.read_text().strip())
        assert "token" not in str(arguments)
        file = Path(urlsplit(str(arguments)).path)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        found = re.search(r"url=(http://[^\"]+)", file.read_text())
        assert found
        assert found[1] != printed
        for address in (found[1], printed):  # each begins the session of one browser
            assert [Browser(address).open().status_code for _ in range(2)] == [200, 403]
        process.send_signal(signal.SIGINT)
        process.wait()
        assert not file.parent.exists()


def test_each_context_has_its_own_pages(api: Api, cluster: ClusterState, tmp_path: Path) -> None:
    """Two contexts of one cluster; -w is not given, so each shows all jobs with the rights of its own user."""
    uid = cluster.create()["metadata"]["uid"]
    kubeconfig = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    (context,) = kubeconfig["contexts"]
    kubeconfig["users"].append({"name": "stranger", "user": {"token": "invalid"}})
    kubeconfig["contexts"].append({"name": "b/2", "context": context["context"] | {"user": "stranger"}})
    path = tmp_path / "two.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    with dashboard("--kubeconfig", str(path), "--context", context["name"], "--context", "b/2") as browser:
        first = browser.get("/")
        assert first.url.endswith("/contexts/1/")
        assert (context["name"] in first.text, 'href="/contexts/2/"' in first.text) == (True, True)
        wait_for("the job", lambda: "train" in browser.text("/contexts/1/"))
        job = f"/contexts/1/jobs/{cluster.namespace}/train"
        assert f'data-changes="{job}/changes"' in browser.get(job).text
        assert browser.post(f"{job}/suspend", {"uid": uid}).headers["Location"] == job
        assert cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]["suspend"] is True
        refused = browser.get("/contexts/2/")
        assert (refused.status_code, "does not accept your credentials" in refused.text) == (401, True)
        assert browser.post(f"{job.replace('/1/', '/2/')}/terminate", {"uid": uid}).status_code == 401
        assert browser.get("/contexts/3/").status_code == 404
        assert requests.get(f"{browser.origin}/contexts/1/", timeout=SECONDS).status_code == 403
    with dashboard("--kubeconfig", str(path), "--context", "b/2") as browser:
        assert browser.get("/").status_code == 401


def test_a_viewer_without_rights_sees_what_the_api_server_says(
    api: Api, cluster: ClusterState, viewer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.pod(cluster.create(), "launcher")
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, viewer)))
    with dashboard() as browser:
        wait_for("the job, although the user may not list all namespaces", lambda: "train" in browser.text("/"))
        shown = browser.text(f"/jobs/{cluster.namespace}/train")
        assert "pods is forbidden" in shown
        assert "events is forbidden: User" in shown
        nodes = browser.text("/cluster")
        assert 'nodes is forbidden: User "system:serviceaccount' in nodes
        assert "Without a queue Position Job" in nodes
        uid = cluster.api.get(f"{cluster.jobs}/train")["metadata"]["uid"]
        refused = browser.post(f"/jobs/{cluster.namespace}/train/terminate", {"uid": uid})
        assert (refused.status_code, "forbidden" in refused.text) == (403, True)
