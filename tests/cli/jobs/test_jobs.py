"""`hvj job show, list, terminate, suspend, resume, scale, delete`."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from cli.cluster_state import TIME, ClusterState, condition
from cli.program import Hvj, hvj_process, kubectl_completions, run, terminal
from horovodjob import Client
from horovodjob.batchai.names import ANNOTATION_NAME
from horovodjob.client.cluster import kube
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Object, wait_for

LABEL = "horovodjob.dev/experiment"
ELASTIC = {"minReplicas": 1, "maxReplicas": 4}
# Each is something else to a shell or to a terminal than a word.
ODD_NAMES = ["$(touch x)", "`id`", "a;id", "a\nb", "-o", "a\x1b[2J", "a\u202eb", "a b", "a'b"]


def test_a_job_is_shown_with_what_it_waits_for_its_expected_end_and_its_failure(
    hvj: Hvj, cluster: ClusterState
) -> None:
    job = cluster.create(worker={"replicas": 2, "gpus": 4}, pool="gpunp")
    show, list_ = ("job", "show", "-n", "train", "-o", "table"), ("job", "list", "-o", "table")
    assert hvj(*show[:4], "--query", "queue").stdout == "null\n"
    waits = [condition(kind, "WaitingForQuota", "400m of cpu more needed") for kind in ("Queued", "Reconciling")]
    queue = {"name": "gpus", "position": 3}
    cluster.report(phase="Queued", executionState="queued", conditions=waits, queue=queue, workersReady="0/2")
    for number in range(6):
        cluster.event(job, "Waiting", f"message {number}", minute=number)
    lines = hvj(*show).stdout.splitlines()
    shown = dict(re.split(" {2,}", line, maxsplit=1) for line in lines if "  " in line.strip())
    assert (shown["State"], shown["Reason"], shown["Message"]) == ("queued", waits[0]["reason"], waits[0]["message"])
    assert (shown["GPU hours"], shown["Workers ready"]) == ("0.0", "0/2")
    assert [line.split("  ")[-1] for line in lines[-5:]] == [f"message {number}" for number in range(1, 6)]
    place: Object = {"name": "gpus", "clusterQueue": None, "position": 3, "flavors": [], "reason": "WaitingForQuota"}
    assert hvj(*show[:4]).data["queue"] == place
    listed = hvj(*list_).stdout.splitlines()
    assert listed[0].endswith("Age  Reason           GPU hours")
    assert "WaitingForQuota" in listed[2]

    progress = {"progress": 0.5, "percent": "50%"}
    cluster.run(conditions=[], training=progress | {"eta": "2026-11-22T13:00:00Z"})
    assert "Expected end" in hvj(*show).stdout
    cluster.fail(exit_code=1, training=progress)
    assert "Expected end" not in hvj(*show).stdout
    lines = hvj(*list_).stdout.splitlines()
    assert lines[0].startswith("Name   Cluster  Tool  Nodes  State   Exit code  Progress  Age  Duration")
    assert lines[2].split()[:7] == ["train", "gpunp", "mpi", "2", "failed", "1", "50%"]


def test_the_jobs_of_all_workspaces_are_listed_with_their_workspace(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create("everywhere")
    lines = hvj("job", "list", "-A", "-o", "table").stdout.splitlines()
    assert lines[0].split()[:2] == ["Workspace", "Name"]
    assert [cluster.namespace, "everywhere"] in [line.split()[:2] for line in lines]
    assert hvj("job", "list", "-A", "-w", cluster.namespace).code == 2


def test_a_mistyped_workspace_is_an_error_with_similar_names(hvj: Hvj, workspace: str) -> None:
    for command in (("list",), ("show", "-n", "train")):
        done = hvj("job", *command, "-w", f"{workspace}x")
        assert (done.code, done.stdout) == (3, "")
        assert done.stderr.startswith(f"error: namespace {workspace}x does not exist; similar names are {workspace}")


def test_the_record_has_the_fields_of_batch_ai(hvj: Hvj, cluster: ClusterState) -> None:
    script = {"path": "/share/train.py", "args": ["--epochs", "2"]}
    cluster.create(command=None, script=script, worker={"replicas": 2, "gpus": 4})
    error = {"time": TIME, "attempt": 1, "reason": "RankFailed", "message": "rank 1 ended", "pod": "train-worker-1"}
    cluster.fail(exit_code=3, errors=[error], outputPathSegment="a/b")
    record = hvj("job", "show", "-n", "train").data
    assert (record["toolType"], record["nodeCount"]) == ("horovod", 2)
    settings = record["horovodSettings"]
    assert (settings["commandLineArgs"], settings["processCount"]) == ("--epochs 2", 8)
    info = record["executionInfo"]
    assert (info["exitCode"], info["endTime"]) == (3, TIME)
    assert (info["errors"][0]["code"], info["errors"][0]["message"]) == ("RankFailed", "rank 1 ended")
    assert record["jobOutputDirectoryPathSegment"] == "a/b"


def test_many_jobs_are_read_in_pages_and_printed_by_age(
    hvj: Hvj, cluster: ClusterState, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "OBJECTS_OF_A_PAGE", 2)
    names = ["c", "b", "a"]
    for name in names:
        created = cluster.create(name, labels={LABEL: "digits"})["metadata"]["creationTimestamp"]
        wait_for("the next second", lambda: f"{datetime.now(UTC):%FT%TZ}" > created)  # noqa: B023
    cluster.create("last")
    id_ = re.compile(f"/namespaces/{cluster.namespace}/horovodjobs/(\\w+)\\b")
    for options, found in (
        (("-w", cluster.namespace, "-o", "json"), [*names, "last"]),
        (("-A", "-o", "tsv"), [*names, "last"]),
        (("-e", "digits", "-o", "json"), names),
    ):
        assert id_.findall(hvj("job", "list", *options).stdout) == found
    lines = hvj("job", "list", "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [each.name for each in Client().list()] == [*names, "last"]
    requests = [json.loads(line)["requestURI"] for line in control_plane.audit_log.read_text().splitlines()]
    pages = [uri for uri in requests if f"{cluster.namespace}/horovodjobs?" in uri]
    assert ["continue=" in uri for uri in pages] == [False, True] * 4
    assert all("limit=2" in uri for uri in pages)


def test_a_job_that_does_not_exist_is_not_found(hvj: Hvj, cluster: ClusterState) -> None:
    for command in (
        ("job", "show", "-n", "none"),
        ("job", "wait", "-n", "none"),
        ("job", "delete", "-n", "none", "-y"),
        ("job", "suspend", "-n", "none"),
        ("job", "node", "exec", "-j", "none", "--", "true"),
    ):
        done = hvj(*command)
        words = f"error: job none does not exist in namespace {cluster.namespace}; see `hvj job list`\n"
        assert (done.code, done.stdout, done.stderr) == (3, "", words), command
    cluster.create(labels={LABEL: "cifar"})
    assert [hvj("job", "show", "-n", "train", "-e", name).code for name in ("cifar", "other")] == [0, 3]


def test_terminate_waits_for_the_end_and_a_job_that_ends_before_it_is_confirmed_is_no_error(
    cluster: ClusterState,
) -> None:
    for name in ("train", "ends"):
        cluster.create(name)
        cluster.run(name)
    with hvj_process("job", "terminate", "-n", "train", "-y", "--query", "executionState") as process:
        wait_for("the request", lambda: cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]["terminate"])
        assert process.poll() is None
        cluster.fail(conditions=[condition("Failed", "Terminated", "ended by runPolicy.terminate")])
        assert process.communicate() == ('"failed"\n', "")
    with terminal("job", "terminate", "-n", "ends", "--query", "executionState") as screen:
        screen.until("Terminate job ends? [y/N]: ")
        cluster.succeed("ends")
        screen.type("y\n")
        screen.until("succeeded")
        assert screen.end() == 0


def test_a_finished_job_cannot_change(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create(elastic=ELASTIC)
    cluster.succeed()
    assert hvj("job", "terminate", "-n", "train").data["executionState"] == "succeeded"
    sentence = "job train has ended (Succeeded) and never runs again; create a job with another name"
    for command in (("suspend",), ("resume",), ("scale", "-t", "3")):
        done = hvj("job", *command, "-n", "train")
        assert (done.code, done.stdout, done.stderr) == (1, "", f"error: {sentence}\n")


def test_suspend_resume_and_scale_set_fields_and_a_fixed_job_must_be_suspended_first(
    hvj: Hvj, cluster: ClusterState
) -> None:
    cluster.create("elastic", elastic=ELASTIC)
    cluster.create("fixed")
    for command, value in (("suspend", True), ("resume", False)):
        assert hvj("job", command, "-n", "fixed").code == 0
        assert cluster.api.get(f"{cluster.jobs}/fixed")["spec"]["runPolicy"]["suspend"] is value
    assert hvj("job", "scale", "-n", "elastic", "--target", "3").data["nodeCount"] == 3
    assert "from elastic.minReplicas to elastic.maxReplicas" in hvj("job", "scale", "-n", "elastic", "-t", "9").stderr
    done = hvj("job", "scale", "-n", "fixed", "-t", "3")
    assert (done.code, "set runPolicy.suspend to true" in done.stderr) == (1, True)


def test_delete_prompts_in_a_terminal_and_waits_until_the_job_is_deleted(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    with terminal("job", "delete", "-n", "train") as screen:
        screen.until(f"Delete job train of workspace {cluster.namespace}? [y/N]: ")
        screen.type("n\n")
        assert screen.end() == 1
    assert cluster.api.get(f"{cluster.jobs}/train")
    done = hvj("job", "delete", "-n", "train", "--yes")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert cluster.api.find(f"{cluster.jobs}/train") is None


def test_options_of_kubectl_can_be_where_kubectl_has_them(
    cluster: ClusterState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.create()
    kubeconfig = yaml.safe_load(cluster.api.kubeconfig.read_text())
    kubeconfig["contexts"].append(kubeconfig["contexts"][0] | {"name": "other"})
    kubeconfig["current-context"] = "nothing"
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    before = ("--kubeconfig", str(tmp_path / "config"), "--context", "other")
    command = ("job", "list", "-n", cluster.namespace)
    for words in ((*before, *command), (*before[:2], *command, *before[2:])):
        assert [job["name"] for job in run(*words).data] == ["train"]
    assert run("job", "list").code == 1


def completed(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    """What bash offers for the last word of a command line."""
    with monkeypatch.context() as shell:
        for variable, value in (
            ("_HVJ_COMPLETE", "complete_bash"),
            ("COMP_WORDS", words),
            ("COMP_CWORD", str(words.count(" "))),
        ):
            shell.setenv(variable, value)
        done = run()
    assert (done.code, done.stderr) == (0, "")
    return done.stdout.split()


def test_shells_complete_the_names_of_jobs_experiments_and_workspaces(
    cluster: ClusterState, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("cifar-1")
    cluster.api.patch(f"{cluster.jobs}/cifar-1", {"metadata": {"annotations": {ANNOTATION_NAME: "cifar_1"}}})
    cluster.create("digits", labels={LABEL: "small"})
    assert completed(monkeypatch, "hvj job show -n ") == ["cifar_1", "digits"]
    assert completed(monkeypatch, "hvj job file list -j dig") == ["digits"]
    assert completed(monkeypatch, f"hvj job wait -w {workspace} -n ci") == ["cifar_1"]
    assert completed(monkeypatch, "hvj job delete -w none -n ") == []
    assert completed(monkeypatch, "hvj job create -n ") == []
    assert completed(monkeypatch, "hvj job list -e s") == ["small"]
    assert kubectl_completions("job", "show", "-n", "") == ["cifar_1", "digits", ":4"]
    assert completed(monkeypatch, f"hvj job list -w {workspace}") == [workspace]
    assert completed(monkeypatch, f"hvj run --namespace {workspace}") == [workspace]
    assert completed(monkeypatch, f"hvj attach -w {workspace} ci") == ["cifar_1"]
    assert completed(monkeypatch, "hvj attach -w none ci") == []
    assert completed(monkeypatch, "hvj --kubeconfig /none job show -n ") == []


def test_a_name_that_a_shell_would_run_is_not_completed(cluster: ClusterState) -> None:
    cluster.create("plain")
    for number, name in enumerate(ODD_NAMES):
        cluster.create(f"odd-{number}")
        cluster.api.patch(f"{cluster.jobs}/odd-{number}", {"metadata": {"annotations": {ANNOTATION_NAME: name}}})
    assert kubectl_completions("job", "show", "-n", "") == ["plain", ":4"]
