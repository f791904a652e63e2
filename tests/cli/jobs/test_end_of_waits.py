"""Nothing waits for what cannot come: stalled jobs, times of --timeout, images and claims that are missing."""

import contextlib
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cluster.kueue_objects import QUEUE, Kueue, remove_definitions
from cli.cluster.nodes import Nodes
from cli.cluster_state import ClusterState, condition
from cli.program import Hvj, Process, hvj_command, hvj_process
from horovodjob import Client, NotFound, Stalled, TimedOut
from horovodjob.client.jobs import wait_limit
from support.api_client import Object, wait_for

REASON = "spec.image is empty, and the operator has no default image: set spec.image"
SENTENCE = f"error: job {{}} cannot continue until you act: InvalidSpec: {REASON}\n"
STALLED = [condition("Stalled", "InvalidSpec", REASON)]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script and a sweep."""
    (tmp_path / "train.py").write_text("print(1)")
    spec = {"image": "trainer:1", "script": {"path": "train.py", "args": ["--lr=${lr}"]}}
    job = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "spec": spec}
    sweep = {"name": "digits", "metric": "loss", "direction": "min", "trials": 2, "parameters": {"lr": [0.1, 0.01]}}
    (tmp_path / "sweep.yaml").write_text(json.dumps({**sweep, "job": job}))
    (tmp_path / "job.yaml").write_text(json.dumps({**job, "metadata": {"name": "created"}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_command_that_waits_ends_at_a_job_that_only_the_user_can_mend(cluster: ClusterState) -> None:
    for name in ("waited", "streamed"):
        cluster.create(name)
    commands = {
        "waited": ("job", "wait", "-n", "waited"),
        "ran": ("run", "--name", "ran", "train.py"),
        "created": ("job", "create", "-f", "job.yaml", "--wait"),
        "digits-0": ("sweep", "-f", "sweep.yaml"),
        "streamed": ("job", "file", "stream", "-j", "streamed", "-f", "stdout.txt"),
    }
    running = {
        name: Process(hvj_command(*words), stderr=subprocess.PIPE, text=True) for name, words in commands.items()
    }
    for name in running:
        wait_for(f"job {name}", lambda: cluster.api.find(f"{cluster.jobs}/{name}"))  # noqa: B023
        cluster.report(name, phase="Queued", executionState="queued", conditions=STALLED)
    running["attached"] = Process(hvj_command("attach", "waited"), stderr=subprocess.PIPE, text=True)
    running["logs"] = Process(hvj_command("job", "logs", "-f", "-n", "waited"), stderr=subprocess.PIPE, text=True)
    for name, process in running.items():
        errors = process.communicate()[1]
        job = {"attached": "waited", "logs": "waited"}.get(name, name)
        assert (process.returncode, SENTENCE.format(job) in errors) == (4, True), (name, errors)
        assert ("hvj job delete" in errors) == (name in ("ran", "attached")), errors


def test_python_raises_at_a_stalled_job_and_after_its_time(
    cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create()
    client = Client()
    for wait in (client.wait, lambda job, timeout: list(client.logs(job, timeout=timeout))):
        with pytest.raises(TimedOut, match=r"job train did not end \(Queued\) within 1 s"):
            wait("train", timeout=1)
    monkeypatch.setattr(wait_limit, "STALLED_SECONDS", 1)
    cluster.report(phase="Queued", executionState="queued", conditions=STALLED)
    with pytest.raises(Stalled, match=REASON):
        client.wait("train")
    with pytest.raises(Stalled, match=REASON):
        list(client.logs("train"))


def test_each_wait_has_a_time(hvj: Hvj, cluster: ClusterState) -> None:
    end = "job train did not end (Running) within 1 s"
    pods: list[str] = []
    for command, words in (
        (("job", "wait", "-n", "train"), end),
        (("attach", "train"), end),
        (("job", "logs", "-f", "-n", "train", "--role", "launcher"), end),
        (("job", "file", "stream", "-j", "train", "-f", "stdout.txt"), end),
        (("job", "terminate", "-y", "-n", "train"), end),
        (("job", "delete", "-y", "-n", "train"), "job train and its pods were not deleted within 1 s"),
        (("experiment", "delete", "-y", "-n", "digits"), "the jobs of experiment digits were not deleted within 1 s"),
    ):
        if cluster.api.find(f"{cluster.jobs}/train") is None:
            job = cluster.create(labels={"horovodjob.dev/experiment": "digits"})
            cluster.run()
            pods.append(f"{cluster.pods}/{cluster.pod(job, 'worker', len(pods))['metadata']['name']}")
            cluster.api.patch(pods[-1], {"metadata": {"finalizers": ["example.com/test"]}})
        done = hvj(*command, "--timeout", "1s")
        assert (done.code, f"error: {words} (--timeout)\n" in done.stderr) == (5, True), done.stderr
    for pod in pods:
        cluster.api.patch(pod, {"metadata": {"finalizers": []}})


@pytest.fixture
def operator(cluster: ClusterState) -> Object:
    """The Deployment of an operator whose administrator has set no image."""
    labels = {"app.kubernetes.io/name": "horovodjob-operator"}
    defaults = {"name": "HOROVODJOB_OPERATOR_JOB_DEFAULTS", "value": '{"nodeSelector":{"a":"b"}}'}
    pod = {"containers": [{"name": "operator", "image": "operator:1", "env": [defaults]}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    body: dict[str, Any] = {"metadata": {"name": "horovodjob-operator", "labels": labels}}
    body["spec"] = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return cluster.api.create(f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments", body)


def set_default(cluster: ClusterState, operator: Object, variable: Object) -> None:
    """Set the variable of the operator with the defaults."""
    containers = operator["spec"]["template"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "HOROVODJOB_OPERATOR_JOB_DEFAULTS", **variable}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    cluster.api.patch(f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/horovodjob-operator", patch)


def test_a_job_without_any_image_is_refused_before_it_is_created(
    hvj: Hvj, cluster: ClusterState, operator: Object
) -> None:
    words = f"neither the operator nor namespace {cluster.namespace} has a default image: use --image"
    for command in (("run", "train.py"), ("run", "--sweep", "lr=0.1,0.2", "train.py")):
        done = hvj(*command)
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    assert cluster.api.items(cluster.jobs) == []
    assert hvj("run", "--detach", "--image", "trainer:1", "--name", "a", "train.py").code == 0
    set_default(cluster, operator, {"value": '{"image":"trainer:1"}'})
    assert hvj("run", "--detach", "--name", "b", "train.py").code == 0
    field = {"fieldPath": "metadata.annotations['defaults']"}  # nobody knows but the operator
    set_default(cluster, operator, {"valueFrom": {"fieldRef": field}})
    assert hvj("run", "--detach", "--name", "c", "train.py").code == 0
    set_default(cluster, operator, {"value": "{}"})
    annotations = {"horovodjob.dev/job-defaults": '{"image":"trainer:1"}'}
    cluster.api.patch(f"/api/v1/namespaces/{cluster.namespace}", {"metadata": {"annotations": annotations}})
    assert hvj("run", "--detach", "--name", "d", "train.py").code == 0


def test_doctor_sees_that_there_is_no_default_image_or_one_that_no_node_can_have(
    hvj: Hvj, cluster: ClusterState, operator: Object, nodes: Nodes
) -> None:
    def image(*options: str) -> list[Object]:
        return [row for row in json.loads(hvj("doctor", *options, "-o", "json").stdout) if row["check"] == "image"]

    (found,) = image()
    assert (found["result"], "has a default image" in found["message"]) == ("warning", True), found
    assert "jobDefaults.image" in found["command"]
    cluster.create("train", image="")
    (job,) = [row for row in image("-j", "train") if row["result"] == "blocks"]
    assert "job train has no image" in job["message"]
    set_default(cluster, operator, {"value": '{"image":"","gpuImage":"gpu:1"}'})
    assert image()[0]["result"] == "warning"
    set_default(cluster, operator, {"value": '{"image":"registry:5000/trainer:1"}'})
    assert "jobs without one get registry:5000/trainer:1" in str(image())
    nodes.add("kind-worker", gpus=0)
    set_default(cluster, operator, {"value": '{"image":"horovodjob/trainer:1"}'})
    (found,) = image()
    assert (found["result"], found["command"]) == ("warning", "kind load docker-image horovodjob/trainer:1")
    images = [{"names": ["docker.io/horovodjob/trainer:1"], "sizeBytes": 1}]
    cluster.api.patch("/api/v1/nodes/kind-worker/status", {"status": {"images": images}})
    assert image()[0]["result"] == "ok"


def test_an_unbound_claim_says_why_while_a_command_waits_and_a_missing_one_is_an_error(
    hvj: Hvj, cluster: ClusterState
) -> None:
    claim = {**cluster.claim(), "kind": "PersistentVolumeClaim"}
    words = "no persistent volumes available for this claim and no storage class is set"
    cluster.event(claim, "FailedBinding", words)
    unbound = "claim data is not bound to a volume: no persistent volumes available"
    cluster.create(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    cluster.report(phase="Queued", executionState="queued")
    with hvj_process("job", "wait", "-n", "train") as process:
        process.until(unbound)
    cluster.api.delete(f"{cluster.jobs}/train")
    run = ("run", "--claim", "data", "--image", "trainer:1")
    with hvj_process(*run, "train.py") as process:
        assert process.until(unbound).startswith("waiting for pod ")
        process.send_signal(signal.SIGINT)
        process.communicate()
    done = hvj(*run, "--timeout", "1s", "train.py")
    words = "which receives the directory on claim data, did not start within 1 s (--timeout)\n"
    assert (done.code, words in done.stderr) == (5, True), done.stderr
    with pytest.raises(TimedOut, match="did not start within 1 s"):
        Client().run("train.py", claim="data", image="trainer:1", timeout=1, quiet=True)
    words = f"claim missing does not exist in namespace {cluster.namespace}"
    mount = ("--mount", "missing=/data", "--image", "trainer:1")
    for command in (("run", *mount, "train.py"), ("run", *mount, "--sweep", "lr=0.1,0.2", "train.py")):
        done = hvj(*command)
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (3, True, 1), done.stderr
    assert (cluster.pods_of_hvj(), cluster.api.items(cluster.jobs)) == ([], [])


@pytest.fixture
def in_queue(project: Path) -> tuple[tuple[str, ...], ...]:
    """The commands that create jobs in the queue of the tests."""
    job = json.loads((project / "job.yaml").read_text())
    job["metadata"] = {"name": "filed", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    sweep = json.loads((project / "sweep.yaml").read_text())
    sweep["job"]["metadata"] = {"labels": job["metadata"]["labels"]}
    (project / "queued.yaml").write_text(json.dumps(job))
    (project / "queued-sweep.yaml").write_text(json.dumps(sweep))
    run = ("run", "--quiet", "--image", "trainer:1", "--queue", QUEUE)
    return (
        ("job", "create", "-f", "queued.yaml"),
        ("job", "create", "-f", "job.yaml", "--queue", QUEUE),
        (*run, "--detach", "--name", "ran", "train.py"),
        (*run, "--name", "search", "--sweep", "lr=0.1,0.2", "--timeout", "1s", "train.py"),
        ("sweep", "-f", "queued-sweep.yaml", "--quiet", "--timeout", "1s"),
    )


def test_a_queue_that_does_not_exist_is_an_error_before_anything_is_created(
    hvj: Hvj, cluster: ClusterState, in_queue: tuple[tuple[str, ...], ...]
) -> None:
    def refused(words: str) -> None:
        for command in in_queue:
            done = hvj(*command)
            assert (done.code, done.stderr) == (3, f"error: queue {QUEUE} does not exist{words}\n"), command
        assert cluster.api.items(cluster.jobs) == []

    remove_definitions(cluster.api)
    refused(": the cluster has no Kueue; run the job without a queue")
    with contextlib.closing(Kueue(cluster.api, "default", {})):
        refused(f" in namespace {cluster.namespace}; it has none")
        with pytest.raises(NotFound, match=f"queue {QUEUE} does not exist in namespace"):
            Client().sweep(Path("queued-sweep.yaml"))
    with contextlib.closing(Kueue(cluster.api, cluster.namespace, {})):
        assert [hvj(*command).code for command in in_queue] == [0, 0, 0, 5, 5]
        assert f"its queues are {QUEUE}\n" in hvj("run", "--image", "trainer:1", "--queue", "other", "train.py").stderr
    names = [job["metadata"]["name"] for job in cluster.api.items(cluster.jobs)]
    assert names == ["created", "digits-0", "filed", "ran", "search-0"]


def test_a_job_that_no_operator_has_seen_is_reported(cluster: ClusterState) -> None:
    cluster.create()
    with hvj_process("job", "wait", "-n", "train") as process:
        process.until("no operator has seen the job yet; `hvj doctor`")
