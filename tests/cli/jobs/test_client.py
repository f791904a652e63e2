"""`horovodjob.Client`: what `hvj` does, from Python. The notebook and the page of the documentation run here."""

import inspect
import json
import re
import threading
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from cli.cluster_state import TIME, ClusterState, condition
from cli.kubelet import NODE, Kubelet
from cli.program import run
from cli.service_account import token_kubeconfig
from horovodjob import Client, ClientError, NotFound, TimedOut, UsageError
from horovodjob.client.cluster.connections import THREADS
from horovodjob.client.jobs import logs
from support.api_client import ROOT, wait_for

NOTEBOOK, PAGE, SWEEPS = (ROOT / "docs" / name for name in ("python.ipynb", "python.md", "sweeps.md"))
LAST_LINES = ["[(1, 1.5), (2, 0.75)]", "digits-1 0.75"]
EPOCHS = [{"epoch": number, "time": TIME, "metrics": {"loss": 1.5 / number}, "learningRate": 0.1} for number in (1, 2)]


def code_cells() -> list[str]:
    """The code of the notebook."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs_a_job_and_reads_its_history(
    cluster: ClusterState,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print()")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    connect, run, *others = code_cells()
    exec(connect, names)  # noqa: S102
    exec(run, names)  # noqa: S102
    job = names["job"]
    cluster.pod(job.manifest, "launcher", node=NODE)
    log = kubelet.log(cluster.namespace, f"{job.name}-launcher")
    log.write("Epoch 1/2", "Epoch 2/2")
    log.end()
    cluster.end(f"{job.name}-launcher", "launcher")
    cluster.report(job.name, training={"progress": 1, "percent": "100%", "history": EPOCHS})
    cluster.succeed(job.name)
    sweep = re.search(r"```yaml\n(name: digits\n.*?)```", SWEEPS.read_text(), re.DOTALL)
    assert sweep
    (tmp_path / "sweep.yaml").write_text(sweep[1])
    cluster.claim("training-data")
    for cell in others:
        if "delete" in cell:
            cluster.api.delete(f"{cluster.pods}/{job.name}-launcher")
        if "sweep" in cell:
            threading.Thread(target=train, args=(cluster, ["digits-0", "digits-1"]), daemon=True).start()
        exec(cell, names)  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    name = f"{job.name} {cluster.namespace}"
    assert lines == [name, "Epoch 1/2", "Epoch 2/2", "Succeeded 100%", "Succeeded 0", *LAST_LINES]
    assert names["rows"][1] == {"job": job.name, "epoch": 2, "time": TIME, "learningRate": 0.1, "loss": 0.75}
    assert [each.name for each in names["client"].list()] == ["digits-0", "digits-1"]


def has_job(cluster: ClusterState, name: str) -> bool:
    """Whether the namespace has this job."""
    return name in {each["metadata"]["name"] for each in cluster.api.items(cluster.jobs)}


def train(cluster: ClusterState, jobs: list[str]) -> None:
    """Let these jobs succeed when they exist, each with a better value than the one before, as it declares."""
    for number, name in enumerate(jobs):
        wait_for(f"job {name}", partial(has_job, cluster, name))
        epoch = {"epoch": 1, "time": TIME, "metrics": {"val_accuracy": 0.5 + number / 4}}
        value = {"epoch": 1, "value": 0.5 + number / 4}
        extremes = {"val_accuracy": {"mode": "max", "min": value, "max": value}}
        cluster.run(name, training={"epoch": 1, "progress": 1, "history": [epoch], "extremes": extremes})
        cluster.succeed(name)


def test_the_page_has_the_code_of_the_notebook() -> None:
    blocks = re.findall(r"```python\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert blocks[: len(code_cells())] == code_cells()


def test_wait_reports_each_change_and_a_job_that_is_terminated_has_an_exit_code(cluster: ClusterState) -> None:
    cluster.create()
    cluster.run()
    seen: list[str] = []
    running = threading.Event()

    def progress(job: Any) -> None:
        seen.append(job.phase)
        running.set()

    client = Client()
    waiting = threading.Thread(target=lambda: seen.append(str(client.wait("train", progress).exit_code)))
    waiting.start()
    running.wait(120)
    assert client.terminate("train", wait=False).manifest["spec"]["runPolicy"]["terminate"] is True
    cluster.fail(conditions=[condition("Failed", "Terminated", "the user terminated the job")])
    waiting.join(120)
    assert (seen[0], seen[-2:]) == ("Running", ["Failed", "255"])
    assert client.get("train").message == "the user terminated the job"


def test_an_iterator_of_logs_that_is_left_ends_its_threads(
    cluster: ClusterState, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "QUEUED_PARTS", 1)  # so that a thread waits for room
    job = cluster.create()
    cluster.pod(job, "launcher", node=NODE)
    cluster.pod(job, "worker", node=NODE)
    kubelet.log(cluster.namespace, "train-launcher").write(*map(str, range(1000)))
    lines = Client().logs("train")
    assert [int(next(lines).text) for _ in range(100)] == list(range(100))
    assert readers() == 4, "watches of the job and its pods, a long log, and a silent one"
    del lines
    wait_for("the end of the threads", lambda: not readers())


def readers() -> int:
    """The number of threads that read from the API server."""
    return [thread.name for thread in threading.enumerate()].count(THREADS)


def test_errors_are_one_sentence_and_clients_of_several_clusters_work_side_by_side(
    cluster: ClusterState, tmp_path: Path
) -> None:
    client = Client()
    with pytest.raises(NotFound, match=r"^job missing does not exist in namespace .*; see `hvj job list`$"):
        client.get("missing")
    with pytest.raises(UsageError, match=r"the script missing\.py is not a file of the directory"):
        client.run("missing.py", workdir=tmp_path)
    accounts = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    cluster.api.create(accounts, {"metadata": {"name": "stranger"}})
    stranger = token_kubeconfig(cluster.api, cluster.namespace, "stranger", tmp_path, default="default")
    with pytest.raises(ClientError, match="ask the cluster's administrator for this permission"):
        Client("a-missing-one", kubeconfig=stranger).list()
    other = Client(kubeconfig=stranger)
    assert other.namespace == "default"
    cluster.create()
    assert [job.name for job in client.list()] == ["train"]
    with pytest.raises(ClientError):
        other.list()
    assert client.get("train").namespace == cluster.namespace
    with pytest.raises(ClientError, match="train has no files yet"):
        client.download("train", tmp_path)


def test_a_sweep_takes_what_a_run_takes(cluster: ClusterState, tmp_path: Path) -> None:
    run, sweep = (inspect.signature(each).parameters for each in (Client.run, Client.sweep))
    assert run.keys() - {"program"} <= sweep.keys()
    options = [get_args(each["options"].annotation)[0].__annotations__ for each in (run, sweep)]
    assert options[0].items() < options[1].items()
    (tmp_path / "train.py").touch()
    client = Client()
    job = client.run("train.py", "--epochs", "3", workdir=tmp_path, name="first", image="trainer:1")
    threading.Thread(target=train, args=(cluster, ["again-0", "again-1"]), daemon=True).start()
    search: dict[str, Any] = {"parameters": {"lr": [0.1, 0.01]}, "metric": "val_accuracy"}
    assert client.sweep(source=job, name="again", **search).job == "again-1"
    arguments = cluster.api.get(f"{cluster.jobs}/again-0")["spec"]["script"]["args"]
    assert (arguments[:2], arguments[2].partition("=")[0]) == (["--epochs", "3"], "--lr")


def test_what_is_left_out_is_named_as_the_command_names_it(
    cluster: ClusterState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("venv/pyvenv.cfg", "web/node_modules/index.js", "train.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    sentence = "left out by default: node_modules/, venv/; a line such as !node_modules/ in .hvjignore sends it\n"
    options: dict[str, Any] = {"workdir": tmp_path, "image": "trainer:1", "gpus": 0}
    for quiet in (False, True):
        Client().run("train.py", name=f"quiet-{quiet}".lower(), quiet=quiet, **options)
        assert capsys.readouterr().err == ("" if quiet else sentence)
    command = ("run", "--detach", "--workdir", str(tmp_path), "--image", "trainer:1", "--gpus", "0", "train.py")
    assert run(*command).stderr.startswith(sentence)
    with pytest.raises(TimedOut):
        Client().sweep("train.py", parameters={"lr": [1, 2]}, timeout=1, **options)
    assert capsys.readouterr().err == sentence


def test_an_option_that_does_not_exist_is_no_silence(cluster: ClusterState, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    wrong: dict[str, Any] = {"node": 2, "workdir": tmp_path}
    with pytest.raises(UsageError, match=r"^'node' is no option of a run; 'nodes' is one$"):
        Client().run("train.py", **wrong)
    with pytest.raises(UsageError, match=r"^'node' is no option of a run; 'nodes' is one$"):
        Client().sweep("train.py", parameters={"lr": [1, 2]}, **wrong)
    with pytest.raises(UsageError, match="a sweep of a program needs parameters"):
        Client().sweep("train.py", workdir=tmp_path)
    assert Client().list() == []
