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
from support.api_client import wait_for

LABEL = "horovodjob.dev/experiment"
ELASTIC = {"minReplicas": 1, "maxReplicas": 4}


def test_a_table_has_the_columns_of_batch_ai_and_progress(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create(pool="gpunp")
    cluster.fail(exit_code=1, training={"progress": 0.5, "percent": "50%"})
    lines = hvj("job", "list", "-o", "table").stdout.splitlines()
    assert lines[0] == "Name   Cluster  Tool  Nodes  State   Exit code  Progress  Age  Duration"
    assert lines[2].split()[:7] == ["train", "gpunp", "mpi", "2", "failed", "1", "50%"]


def test_a_job_that_waits_is_shown_with_its_reason_and_its_last_events(hvj: Hvj, cluster: ClusterState) -> None:
    job = cluster.create(worker={"replicas": 2, "gpus": 4})
    waits = condition("Reconciling", "WaitingForNodes", "0/3 pods have a node")
    cluster.report(phase="Queued", executionState="queued", conditions=[waits], workersReady="0/2")
    for number in range(6):
        cluster.event(job, "Waiting", f"message {number}", minute=number)
    lines = hvj("job", "show", "-n", "train", "-o", "table").stdout.splitlines()
    shown = {line[:15].strip(): line[15:] for line in lines}
    assert (shown["State"], shown["Reason"], shown["Message"]) == ("queued", "WaitingForNodes", "0/3 pods have a node")
    assert (shown["GPU hours"], shown["Workers ready"]) == ("0.0", "0/2")
    events = [line.split("  ")[-1] for line in lines[-5:]]
    assert events == [f"message {number}" for number in range(1, 6)]
    listed = hvj("job", "list", "-o", "table").stdout.splitlines()
    assert listed[0].endswith("Age  Reason           GPU hours")
    assert "WaitingForNodes" in listed[2]


def test_a_suspended_job_is_not_queued(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create(labels={LABEL: "cifar"})
    cluster.report(phase="Suspended", executionState="queued")
    assert hvj("job", "list", "--query", "[0].[state, executionState]").data == ["suspended", "queued"]
    assert hvj("experiment", "show", "-n", "cifar", "--query", "jobs.[queued, suspended]").data == [0, 1]


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
        assert done.stderr.startswith(f"error: workspace {workspace}x does not exist; similar names are {workspace}")


def test_the_record_has_the_fields_of_batch_ai(hvj: Hvj, cluster: ClusterState) -> None:
    script = {"path": "/share/train.py", "args": ["--epochs", "2"]}
    cluster.create(command=None, script=script, worker={"replicas": 2, "gpus": 4})
    error = {
        "time": TIME,
        "attempt": 1,
        "reason": "RankFailed",
        "exitCode": 3,
        "message": "rank 1 ended",
    }
    cluster.fail(exit_code=3, errors=[{**error, "pod": "train-worker-1"}], outputPathSegment="a/b")
    record = hvj("job", "show", "-n", "train").data
    assert (record["toolType"], record["nodeCount"]) == ("horovod", 2)
    settings = record["horovodSettings"]
    assert (settings["commandLineArgs"], settings["processCount"]) == ("--epochs 2", 8)
    info = record["executionInfo"]
    assert (info["exitCode"], info["endTime"]) == (3, TIME)
    assert (info["errors"][0]["code"], info["errors"][0]["message"]) == ("RankFailed", "rank 1 ended")
    assert record["jobOutputDirectoryPathSegment"] == "a/b"


@pytest.mark.parametrize(
    ("state", "arguments", "text"),
    [
        ("run", ("--query", "executionState"), '"running"\n'),
        ("run", ("--query", "executionState", "-o", "tsv"), "running\n"),
        ("succeed", ("--query", "executionInfo.exitCode"), "0\n"),
    ],
)
def test_queries_of_batch_ai_scripts_work(
    hvj: Hvj, cluster: ClusterState, state: str, arguments: tuple[str, ...], text: str
) -> None:
    cluster.create()
    getattr(cluster, state)()
    assert hvj("job", "show", "-n", "train", "-g", "batchai.horovod", *arguments).stdout == text


def test_many_jobs_are_read_in_pages_and_printed_by_age(
    hvj: Hvj, cluster: ClusterState, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "OBJECTS_OF_A_PAGE", 2)
    names = ["e", "d", "c", "b", "a"]
    for name in names:
        created = cluster.create(name, labels={LABEL: "digits"})["metadata"]["creationTimestamp"]
        wait_for("the next second", lambda: f"{datetime.now(UTC):%FT%TZ}" > created)  # noqa: B023
    id_ = re.compile(f"/namespaces/{cluster.namespace}/horovodjobs/(\\w)\\b")
    for options in (("-w", cluster.namespace), ("-A",), ("-e", "digits")):
        for format_ in ("json", "tsv"):
            assert id_.findall(hvj("job", "list", *options, "-o", format_).stdout) == names
    lines = hvj("job", "list", "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == names
    assert [each.name for each in Client().list()] == names
    requests = [json.loads(line)["requestURI"] for line in control_plane.audit_log.read_text().splitlines()]
    pages = [uri for uri in requests if f"{cluster.namespace}/horovodjobs?" in uri]
    assert ["continue=" in uri for uri in pages] == [False, True, True] * 6
    assert all("limit=2" in uri for uri in pages)


def test_jobs_are_listed_by_age_and_by_experiment(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create("b", labels={LABEL: "cifar"})
    cluster.create("a")
    assert sorted(hvj("job", "list", "--query", "[].name").data) == ["a", "b"]
    assert hvj("job", "list", "-e", "cifar", "--query", "[].name").data == ["b"]


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show", "-n", "none"),
        ("job", "wait", "-n", "none"),
        ("job", "terminate", "-n", "none", "-y"),
        ("job", "delete", "-n", "none", "-y"),
        ("job", "suspend", "-n", "none"),
        ("job", "scale", "-n", "none", "-t", "2"),
        ("job", "logs", "-n", "none"),
        ("job", "node", "list", "-j", "none"),
        ("job", "node", "exec", "-j", "none", "--", "true"),
    ],
)
def test_a_job_that_does_not_exist_is_not_found(hvj: Hvj, workspace: str, command: tuple[str, ...]) -> None:
    done = hvj(*command)
    assert (done.code, done.stdout) == (3, "")
    assert done.stderr == f"error: job none does not exist in workspace {workspace}; see `hvj job list`\n"


def test_a_job_of_another_experiment_is_not_found(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create(labels={LABEL: "cifar"})
    assert hvj("job", "show", "-n", "train", "-e", "cifar").code == 0
    assert hvj("job", "show", "-n", "train", "-e", "other").code == 3


def test_terminate_waits_for_the_end_and_keeps_the_job(cluster: ClusterState) -> None:
    cluster.create()
    cluster.run()
    with hvj_process("job", "terminate", "-n", "train", "-y", "--query", "executionState") as process:
        while not cluster.api.get(f"{cluster.jobs}/train")["spec"].get("runPolicy", {}).get("terminate"):
            assert process.poll() is None
        cluster.fail(conditions=[condition("Failed", "Terminated", "ended by runPolicy.terminate")])
        assert process.communicate() == ('"failed"\n', "")


def test_a_finished_job_is_not_terminated_again(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    cluster.succeed()
    assert hvj("job", "terminate", "-n", "train").data["executionState"] == "succeeded"


def test_a_job_that_ends_while_its_termination_is_confirmed_is_no_error(cluster: ClusterState) -> None:
    cluster.create()
    cluster.run()
    with terminal("job", "terminate", "-n", "train", "--query", "executionState") as screen:
        screen.until("Terminate job train? [y/N]: ")
        cluster.succeed()
        screen.type("y\n")
        screen.until("succeeded")
        assert screen.end() == 0


@pytest.mark.parametrize("command", [("suspend",), ("resume",), ("scale", "-t", "3")], ids=lambda command: command[0])
def test_a_finished_job_cannot_change(hvj: Hvj, cluster: ClusterState, command: tuple[str, ...]) -> None:
    cluster.create(elastic=ELASTIC)
    cluster.succeed()
    done = hvj("job", *command, "-n", "train")
    sentence = "job train has ended (Succeeded) and never runs again; create a job with another name"
    assert (done.code, done.stdout, done.stderr) == (1, "", f"error: {sentence}\n")


def test_suspend_and_resume_set_the_field(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    for command, value in (("suspend", True), ("resume", False)):
        assert hvj("job", command, "-n", "train").code == 0
        assert cluster.api.get(f"{cluster.jobs}/train")["spec"]["runPolicy"]["suspend"] is value


def test_an_elastic_job_is_scaled_and_another_must_be_suspended_first(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create("elastic", elastic=ELASTIC)
    cluster.create("fixed")
    assert hvj("job", "scale", "-n", "elastic", "--target", "3").data["nodeCount"] == 3
    assert "from elastic.minReplicas to elastic.maxReplicas" in hvj("job", "scale", "-n", "elastic", "-t", "9").stderr
    done = hvj("job", "scale", "-n", "fixed", "-t", "3")
    assert done.code == 1
    assert "set runPolicy.suspend to true" in done.stderr


def test_delete_waits_until_the_job_is_deleted(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    done = hvj("job", "delete", "-n", "train", "--yes")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert cluster.api.find(f"{cluster.jobs}/train") is None


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_delete_prompts_in_a_terminal(cluster: ClusterState, answer: str, code: int) -> None:
    cluster.create()
    with terminal("job", "delete", "-n", "train") as screen:
        screen.until(f"Delete job train of workspace {cluster.namespace}? [y/N]: ")
        screen.type(answer)
        assert screen.end() == code
    assert (cluster.api.find(f"{cluster.jobs}/train") is None) is (code == 0)


def test_a_job_in_a_queue_is_shown_with_its_place_and_the_sentence_of_kueue(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    assert hvj("job", "show", "-n", "train", "--query", "queue").stdout == "null\n"
    message = "insufficient unused quota for cpu in flavor spot, 400m more needed"
    waits = [condition(kind, "WaitingForQuota", message) for kind in ("Queued", "Reconciling")]
    cluster.report(phase="Queued", executionState="queued", queue={"name": "gpus", "position": 3}, conditions=waits)
    record = hvj("job", "show", "-n", "train").data
    assert record["queue"] == {
        "name": "gpus",
        "clusterQueue": None,
        "position": 3,
        "flavors": [],
        "reason": "WaitingForQuota",
    }
    assert record["message"] == message


def test_only_a_job_that_runs_has_an_expected_end(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    cluster.run(training={"progress": 0.5, "eta": "2026-11-22T13:00:00Z"})
    show = ("job", "show", "-n", "train", "-o", "table")
    assert "Expected end" in hvj(*show).stdout
    cluster.fail()
    assert "Expected end" not in hvj(*show).stdout


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
    assert completed(monkeypatch, "hvj --kubeconfig /none job show -n ") == []


@pytest.mark.parametrize("name", ["$(touch x)", "`id`", "a;id", "a\nb", "-o", "a\x1b[2J", "a\u202eb", "a b", "a'b"])
def test_a_name_that_a_shell_would_run_is_not_completed(
    cluster: ClusterState, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cluster.create("plain")
    cluster.create("odd")
    cluster.api.patch(f"{cluster.jobs}/odd", {"metadata": {"annotations": {ANNOTATION_NAME: name}}})
    assert kubectl_completions("job", "show", "-n", "") == ["plain", ":4"]
