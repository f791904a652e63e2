"""Nothing waits for what cannot come: stalled jobs, times of --timeout, images and claims that are missing."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.cluster.kueue_objects import QUEUE, Kueue
from cli.cluster.nodes import Nodes
from cli.cluster_state import ClusterState, condition
from cli.program import Hvj, Process, hvj_command, hvj_process
from horovodjob import Client, NotFound, Stalled, TimedOut
from horovodjob.client.jobs import wait_limit
from support.api_client import Api, Object, wait_for

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


def test_a_wait_can_go_on_until_the_user_has_mended_the_job(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_limit, "STALLED_SECONDS", 1)
    cluster.create()
    cluster.report(phase="Queued", executionState="queued", conditions=STALLED)
    mended = threading.Timer(4, cluster.succeed)
    mended.start()
    done = hvj("job", "wait", "-n", "train", "--wait-stalled")
    assert done.code == 0, done.stderr
    mended.join()


def test_a_job_that_is_stalled_for_a_moment_is_waited_for(cluster: ClusterState) -> None:
    cluster.create()
    cluster.report(phase="Queued", executionState="queued", conditions=STALLED)
    with hvj_process("job", "wait", "-n", "train") as process:
        assert process.stderr
        assert REASON in process.stderr.readline()
        cluster.report(phase="Running", executionState="running", conditions=[])
        assert process.stderr.readline().endswith("Running\n")
        cluster.succeed()
        assert process.wait() == 0


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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("job", "wait", "-n", "train"), "job train did not end (Running) within 1 s"),
        (("attach", "train"), "job train did not end (Running) within 1 s"),
        (("job", "logs", "-f", "-n", "train", "--role", "launcher"), "job train did not end (Running) within 1 s"),
        (("job", "terminate", "-y", "-n", "train"), "job train did not end (Running) within 1 s"),
        (("job", "delete", "-y", "-n", "train"), "job train and its pods were not deleted within 1 s"),
        (("job", "file", "stream", "-j", "train", "-f", "stdout.txt"), "job train did not end (Running) within 1 s"),
        (("experiment", "delete", "-y", "-n", "digits"), "the jobs of experiment digits were not deleted within 1 s"),
    ],
)
def test_each_wait_has_a_time(hvj: Hvj, cluster: ClusterState, command: tuple[str, ...], words: str) -> None:
    job = cluster.create(labels={"horovodjob.dev/experiment": "digits"})
    cluster.run()
    pod = cluster.pod(job, "worker")
    path = f"{cluster.pods}/{pod['metadata']['name']}"
    cluster.api.patch(path, {"metadata": {"finalizers": ["example.com/test"]}})
    try:
        done = hvj(*command, "--timeout", "1s")
        assert (done.code, f"error: {words} (--timeout)\n" in done.stderr) == (5, True), done.stderr
    finally:
        cluster.api.patch(path, {"metadata": {"finalizers": []}})


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


@pytest.fixture
def nodes(api: Api, cluster: ClusterState) -> Iterator[Nodes]:
    """Nodes of the cluster, which has none otherwise."""
    made = Nodes(api, cluster.namespace)
    yield made
    made.delete_all()


def set_default(cluster: ClusterState, operator: Object, variable: Object) -> None:
    """Set the variable of the operator with the defaults."""
    containers = operator["spec"]["template"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "HOROVODJOB_OPERATOR_JOB_DEFAULTS", **variable}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    cluster.api.patch(f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/horovodjob-operator", patch)


def test_a_job_without_any_image_is_refused_before_it_is_created(
    hvj: Hvj, cluster: ClusterState, operator: Object
) -> None:
    words = f"neither the operator nor workspace {cluster.namespace} has a default image: use --image"
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


def test_doctor_sees_that_there_is_no_default_image(hvj: Hvj, cluster: ClusterState, operator: Object) -> None:
    def image() -> Object:
        return next(each for each in json.loads(hvj("doctor", "-o", "json").stdout) if each["check"] == "image")

    found = image()
    assert (found["result"], "has a default image" in found["message"]) == ("warning", True), found
    assert "jobDefaults.image" in found["command"]
    cluster.create("train", image="")
    job = next(
        each
        for each in json.loads(hvj("doctor", "-j", "train", "-o", "json").stdout)
        if each["check"] == "image" and each["result"] == "blocks"
    )
    assert "job train has no image" in job["message"]
    set_default(cluster, operator, {"value": '{"image":"registry:5000/trainer:1"}'})
    assert "jobs without one get registry:5000/trainer:1" in str(image())
    set_default(cluster, operator, {"value": '{"image":"","gpuImage":"gpu:1"}'})
    assert image()["result"] == "warning"


def test_doctor_sees_a_default_image_that_no_node_can_have(
    hvj: Hvj, cluster: ClusterState, operator: Object, nodes: Nodes
) -> None:
    def image() -> Object:
        return next(each for each in json.loads(hvj("doctor", "-o", "json").stdout) if each["check"] == "image")

    nodes.add("kind-worker", gpus=0)
    set_default(cluster, operator, {"value": '{"image":"horovodjob/trainer:1"}'})
    assert (image()["result"], image()["command"]) == ("warning", "kind load docker-image horovodjob/trainer:1")
    images = [{"names": ["docker.io/horovodjob/trainer:1"], "sizeBytes": 1}]
    cluster.api.patch("/api/v1/nodes/kind-worker/status", {"status": {"images": images}})
    assert image()["result"] == "ok"


def unbound_claim(cluster: ClusterState) -> None:
    """A claim for which nothing provides a volume, as the volume controller says."""
    claim = cluster.claim()
    words = "no persistent volumes available for this claim and no storage class is set"
    cluster.event({**claim, "kind": "PersistentVolumeClaim"}, "FailedBinding", words)


UNBOUND = "claim data is not bound to a volume: no persistent volumes available"


def test_an_unbound_claim_of_a_job_says_why_while_the_command_waits(cluster: ClusterState) -> None:
    unbound_claim(cluster)
    cluster.create(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    cluster.report(phase="Queued", executionState="queued")
    with hvj_process("job", "wait", "-n", "train") as process:
        process.until(UNBOUND)


def test_an_unbound_claim_of_a_run_says_why_while_it_waits_and_a_missing_one_is_an_error(
    hvj: Hvj, cluster: ClusterState
) -> None:
    unbound_claim(cluster)
    with hvj_process("run", "--claim", "data", "--image", "trainer:1", "train.py") as process:
        assert process.until(UNBOUND).startswith("waiting for pod ")
    words = f"claim missing does not exist in workspace {cluster.namespace}"
    mount = ("--mount", "missing=/data", "--image", "trainer:1")
    for command in (("run", *mount, "train.py"), ("run", *mount, "--sweep", "lr=0.1,0.2", "train.py")):
        done = hvj(*command)
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (3, True, 1), done.stderr
    assert cluster.api.items(cluster.jobs) == []


def test_the_pod_that_receives_a_directory_has_the_time_of_the_user(cluster: ClusterState) -> None:
    unbound_claim(cluster)
    with hvj_process("run", "--claim", "data", "--image", "trainer:1", "--timeout", "2s", "train.py") as process:
        errors = process.communicate()[1]
    assert process.returncode == 5, errors
    assert "which receives the directory on claim data, did not start within 2 s (--timeout)\n" in errors
    with pytest.raises(TimedOut, match="did not start within 1 s"):
        Client().run("train.py", claim="data", image="trainer:1", timeout=1, quiet=True)
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
    for command in in_queue:
        done = hvj(*command)
        words = f"error: queue {QUEUE} does not exist: the cluster has no Kueue; run the job without a queue\n"
        assert (done.code, done.stderr) == (3, words), command
    kueue = Kueue(cluster.api, "default", {})
    try:
        for command in in_queue:
            done = hvj(*command)
            words = f"error: queue {QUEUE} does not exist in workspace {cluster.namespace}; it has none\n"
            assert (done.code, done.stderr) == (3, words), command
        with pytest.raises(NotFound, match=f"queue {QUEUE} does not exist in workspace"):
            Client().sweep(Path("queued-sweep.yaml"))
        assert cluster.api.items(cluster.jobs) == []
    finally:
        kueue.remove()
    kueue = Kueue(cluster.api, cluster.namespace, {})
    try:
        assert [hvj(*command).code for command in in_queue] == [0, 0, 0, 5, 5]
        assert f"its queues are {QUEUE}\n" in hvj("run", "--image", "trainer:1", "--queue", "other", "train.py").stderr
    finally:
        kueue.remove()
    names = [job["metadata"]["name"] for job in cluster.api.items(cluster.jobs)]
    assert names == ["created", "digits-0", "filed", "ran", "search-0"]


def test_a_job_that_no_operator_has_seen_is_reported(cluster: ClusterState) -> None:
    cluster.create()
    with hvj_process("job", "wait", "-n", "train") as process:
        process.until("no operator has seen the job yet; `hvj doctor`")
